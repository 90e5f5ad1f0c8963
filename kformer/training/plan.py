"""How many batches a run trains on: its plan, its budget, and the interval between validations."""

import math
from collections.abc import Sequence

from kformer.config import MONITORS, TrainingConfig
from kformer.data import BatchPlan, EncodedPairs
from kformer.data.arrangements import Arrangement
from kformer.data.buckets import FEW_BUCKETS, MANY_BUCKETS
from kformer.data.mixture import passes_of
from kformer.training.callbacks import Budget
from kformer.training.checkpoints import TrainingState
from kformer.training.compile import compiled_by_xla
from kformer.wording import count

_FEWEST_UPDATES = 50  # between two validations, by default
_FITTED_SHARE = 4  # a fitted warm-up takes at most one update in 4
_LARGEST_SHARE = 0.5  # a longer warm-up leaves too few updates behind it


def plan_batches(
    train_pairs: EncodedPairs, training: TrainingConfig, arrangement: Arrangement | None = None
) -> BatchPlan:
    """The batches of a run, with a number of shapes that suits the backend. `arrangement`: see `BatchPlan`."""
    return BatchPlan(
        train_pairs,
        training.tokens_of_pairs,
        row_multiple=training.batch_size_multiple,
        max_buckets=FEW_BUCKETS if compiled_by_xla() else MANY_BUCKETS,
        arrangement=arrangement,
        passes=passes_of(train_pairs.parts, training.weights, training.corpus_temperature),
    )


def describe_plan(plan: BatchPlan, training: TrainingConfig) -> str:
    """One line with the mean numbers of tokens of an update and the share of padding."""
    source, target = (tokens * training.gradient_accumulation_steps for tokens in plan.mean_tokens)
    twice = "; each pair is read twice (r_drop)" if training.r_drop else ""
    return (
        f"An update sees {source:,.0f} source and {target:,.0f} target tokens on average; "
        f"{plan.padding_share:.1%} of all positions are padding{twice}"
    )


def describe_mixture(plan: BatchPlan, names: Sequence[str], batches: float | None = None) -> str:
    """One line with the passes over each of several corpora, in an epoch or in so many batches."""
    epochs = 1 if batches is None else float(batches / plan.batches_per_epoch)
    passes = (f"{name} {epochs * times:,.4g}" for name, times in zip(names, plan.passes, strict=True))
    begin = "An epoch has" if batches is None else "The run has had"
    return f"{begin} so many passes over each corpus: {', '.join(passes)}"


def budget_of(training: TrainingConfig, plan: BatchPlan) -> Budget:
    """What a run may use. Its `max_steps` is the smaller of the limits in steps and in epochs, which are rounded up."""
    limits = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        batches = training.max_epochs * plan.batches_per_epoch
        limits.append(math.ceil(batches / training.gradient_accumulation_steps))
    max_steps = min(limits, default=None)
    monitor = MONITORS[training.monitor]
    return Budget(max_steps, training.max_minutes, training.patience, monitor, training.least_improvement)


def last_update(training: TrainingConfig, pairs: EncodedPairs, arrangement: Arrangement | None) -> int | None:
    """The update at which the budget of steps and epochs ends; None if there is no such budget."""
    if training.max_epochs is None:  # a large corpus takes a while to plan
        return training.max_steps
    return budget_of(training, plan_batches(pairs, training, arrangement)).max_steps


def fit_warmup(training: TrainingConfig, pairs: EncodedPairs, arrangement: Arrangement | None) -> TrainingConfig:
    """The configuration with a warm-up that fits the budget, if `training.fit_warmup` asks for it.

    The budget must be in steps or epochs. A budget in minutes is not known in updates before the training.
    """
    updates = last_update(training, pairs, arrangement) if training.fit_warmup else None
    return training if updates is None else shorten_warmup(training, updates).replace(fit_warmup=True)


def shorten_warmup(training: TrainingConfig, updates: int) -> TrainingConfig:
    """The configuration with a warm-up of at most a quarter of so many updates, and the same peak of the rate.

    The peak of equation 3 is scale * (d_model * warmup_steps)**-0.5. That of the other schedules does not depend on
    the warm-up.

    Examples:
        >>> shorter = shorten_warmup(TrainingConfig(warmup_steps=400, learning_rate_scale=1.0), updates=400)
        >>> shorter.warmup_steps, shorter.learning_rate_scale
        (100, 0.5)
    """
    warmup_steps = min(training.warmup_steps, max(1, updates // _FITTED_SHARE))
    if training.learning_rate is not None:
        return training.replace(warmup_steps=warmup_steps)
    scale = training.learning_rate_scale * math.sqrt(warmup_steps / training.warmup_steps)
    return training.replace(warmup_steps=warmup_steps, learning_rate_scale=scale)


def describe_budget(training: TrainingConfig, plan: BatchPlan, updates: int) -> str:
    """One line with the updates of a budget, the passes over the training pairs, and the share of the warm-up."""
    passes = float(updates * training.gradient_accumulation_steps / plan.batches_per_epoch)
    return (
        f"The budget is {count(updates, 'update')} ({passes:,.2f} passes over the training pairs); "
        f"{describe_warmup(training, updates)}"
    )


def describe_warmup(training: TrainingConfig, updates: int) -> str:
    """What share of a run's updates the warm-up takes, and if it is too large, what to change; the end of a sentence.

    Examples:
        >>> describe_warmup(TrainingConfig(warmup_steps=250), updates=1000)
        'the warm-up takes 250 of them (25%).'
    """
    warmup = training.warmup_steps
    share = warmup / updates
    if share <= _LARGEST_SHARE:
        return f"the warm-up takes {warmup:,} of them ({share:.0%})."
    if share > 1:
        problem = f"takes {warmup:,}, so the learning rate only reaches {updates / warmup:.0%} of its peak"
    else:
        problem = f"takes {warmup:,} of them ({share:.0%}), which leaves few for the rest"
    shorter = shorten_warmup(training, updates)
    remedy = f"warmup_steps {shorter.warmup_steps}"
    if training.learning_rate is None:
        remedy += f" and learning_rate_scale {shorter.learning_rate_scale:.3g} keep the peak of the learning rate"
    return (
        f"the warm-up {problem}. Little is learned in this way. Raise the budget, or begin a new run with smaller "
        f"batches (tokens_per_batch), a smaller model or a shorter warm-up: {remedy}."
    )


def describe_minutes(
    training: TrainingConfig, state: TrainingState, seconds_per_update: float, max_steps: int | None
) -> str:
    """How many updates the budget in minutes holds; "" if the budget of steps and epochs, `max_steps`, ends first."""
    minutes = training.max_minutes or 0.0
    left = max(0.0, minutes * 60 - state.seconds)
    expected = state.step + int(left / seconds_per_update)
    if max_steps is not None and expected >= max_steps:
        return ""
    return (
        f"At the speed of the first updates, about {count(expected, 'update')} fit into {count(minutes, 'minute')}; "
        f"{describe_warmup(training, expected)}"
    )


def batches_between_validations(training: TrainingConfig, plan: BatchPlan) -> int:
    """How many batches are trained on from one validation to the next.

    By default those of an epoch. A small corpus has several epochs between two validations, or validation would take
    more time than training.
    """
    accumulated = training.gradient_accumulation_steps
    if training.validation_steps is None:
        return max(plan.steps_per_epoch, _FEWEST_UPDATES * accumulated)
    return training.validation_steps * accumulated
