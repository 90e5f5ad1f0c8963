"""The learning rate of a run: the schedule that its configuration names."""

from collections.abc import Callable, Mapping

from keras.optimizers.schedules import LearningRateSchedule

from kformer.config import TrainingConfig
from kformer.schedules import WarmupConstant, WarmupCosine, WarmupInverseSqrt, WarmupLinear


def build_schedule(d_model: int, training: TrainingConfig, updates: int | None = None) -> LearningRateSchedule:
    """The schedule that `training.schedule` names.

    Args:
        d_model: Size of the model, which equation 3 needs.
        training: The settings.
        updates: The last update of the run, where `linear` and `cosine` end; None: `training.max_steps`.

    Raises:
        ValueError: The schedule ends with the budget, and `updates` and `training.max_steps` are both None.
    """
    return _SCHEDULES[training.schedule](d_model, training, updates)


def _equation_3(d_model: int, training: TrainingConfig, updates: int | None) -> LearningRateSchedule:
    return WarmupInverseSqrt(d_model, scale=training.learning_rate_scale, **_warmup(training))


def _constant(d_model: int, training: TrainingConfig, updates: int | None) -> LearningRateSchedule:
    return WarmupConstant(_peak(training), **_warmup(training))


def _inverse_sqrt(d_model: int, training: TrainingConfig, updates: int | None) -> LearningRateSchedule:
    return WarmupInverseSqrt.with_peak(_peak(training), **_warmup(training))


def _linear(d_model: int, training: TrainingConfig, updates: int | None) -> LearningRateSchedule:
    final = training.final_learning_rate
    return WarmupLinear(_peak(training), _last_update(training, updates), final=final, **_warmup(training))


def _cosine(d_model: int, training: TrainingConfig, updates: int | None) -> LearningRateSchedule:
    final = training.final_learning_rate
    return WarmupCosine(_peak(training), _last_update(training, updates), final=final, **_warmup(training))


def _warmup(training: TrainingConfig) -> dict[str, int]:
    return {
        "warmup_steps": training.warmup_steps,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
    }


def _peak(training: TrainingConfig) -> float:
    return training.learning_rate or 0.0  # the configuration has refused None


def _last_update(training: TrainingConfig, updates: int | None) -> int:
    last = training.max_steps if updates is None else updates
    if last is None:
        raise ValueError(
            f"The schedule {training.schedule} ends at the last update. Received: a budget in epochs, and no number of "
            "updates. Give updates, or max_steps in training."
        )
    return last


# By the names in `kformer.config.SCHEDULES`.
_SCHEDULES: Mapping[str, Callable[[int, TrainingConfig, int | None], LearningRateSchedule]] = {
    "equation_3": _equation_3,
    "constant": _constant,
    "inverse_sqrt": _inverse_sqrt,
    "linear": _linear,
    "cosine": _cosine,
}
