"""How many batches a run trains on: its plan, its budget, and the interval between validations."""

from kformer.config import TrainingConfig
from kformer.data import BatchPlan, EncodedPairs
from kformer.data.arrangements import Arrangement
from kformer.data.buckets import FEW_BUCKETS, MANY_BUCKETS
from kformer.training.checkpoints import TrainingState
from kformer.training.compile import compiled_by_xla
from kformer.wording import count

_FEWEST_UPDATES = 50  # between two validations, by default


def plan_batches(
    train_pairs: EncodedPairs, training: TrainingConfig, arrangement: Arrangement | None = None
) -> BatchPlan:
    """The batches of a run, with a number of shapes that suits the backend. `arrangement`: see `BatchPlan`."""
    return BatchPlan(
        train_pairs,
        training.tokens_per_batch,
        row_multiple=training.batch_size_multiple,
        max_buckets=FEW_BUCKETS if compiled_by_xla() else MANY_BUCKETS,
        arrangement=arrangement,
    )


def describe_plan(plan: BatchPlan, training: TrainingConfig) -> str:
    """One line with the mean numbers of tokens of an update and the share of padding."""
    source, target = (tokens * training.gradient_accumulation_steps for tokens in plan.mean_tokens)
    return (
        f"An update sees {source:,.0f} source and {target:,.0f} target tokens on average; "
        f"{plan.padding_share:.1%} of all positions are padding"
    )


def step_budget(training: TrainingConfig, plan: BatchPlan) -> int | None:
    """The budget of steps and epochs as one number of optimizer updates; None without such a budget."""
    limits = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        batches = training.max_epochs * plan.steps_per_epoch
        limits.append(max(1, batches // training.gradient_accumulation_steps))
    return min(limits, default=None)


def spent_already(training: TrainingConfig, state: TrainingState, max_steps: int | None) -> str:
    """Why a resumed run has nothing left to do; "" if there is something to do."""
    if state.validating:
        return ""
    if max_steps is not None and state.step >= max_steps:
        return f"the budget of {count(max_steps, 'step')} was spent already; raise it to go on"
    if training.max_minutes is not None and state.seconds >= training.max_minutes * 60:
        return f"the budget of {count(training.max_minutes, 'minute')} was spent already; raise it to go on"
    return ""


def batches_between_validations(training: TrainingConfig, plan: BatchPlan) -> int:
    """How many batches are trained on from one validation to the next.

    By default those of an epoch. A small corpus has several epochs between two validations, or validation would take
    more time than training.
    """
    accumulated = training.gradient_accumulation_steps
    if training.validation_steps is None:
        return max(plan.steps_per_epoch, _FEWEST_UPDATES * accumulated)
    return training.validation_steps * accumulated
