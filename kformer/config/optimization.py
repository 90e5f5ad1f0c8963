"""The optimizers and the schedules of the learning rate by their names, and which fields belong to each."""

from typing import Any

OPTIMIZERS = ("adam", "adamw", "adafactor")
EQUATION_3 = "equation_3"
_TO_THE_END = ("linear", "cosine")  # they end at the last update of the budget
SCHEDULES = (EQUATION_3, "constant", "inverse_sqrt", *_TO_THE_END)
_OF_ADAM = ("beta_1", "beta_2", "adam_epsilon")


def ends_with_budget(schedule: str) -> bool:
    """Whether the rate falls until the last update of the budget.

    Examples:
        >>> ends_with_budget("cosine"), ends_with_budget("constant")
        (True, False)
    """
    return schedule in _TO_THE_END


def without_rate_of_other(schedule: str) -> dict[str, float | None]:
    """The field that says how large the rate is in schedules of the other kind, with the value of one not given."""
    return {"learning_rate": None} if schedule == EQUATION_3 else {"learning_rate_scale": 1.0}


def check_optimizer(training: Any) -> None:
    """Refuses a field of an optimizer that is not chosen.

    Args:
        training: A `TrainingConfig`, whose module needs this one.

    Raises:
        ValueError: Weight decay without AdamW, AdamW without weight decay, or a changed field of Adam with Adafactor.
    """
    if (training.weight_decay > 0) != (training.optimizer == "adamw"):
        raise ValueError(
            "weight_decay must be above 0 with the optimizer adamw, such as 0.01, and 0 with another one. Received: "
            f"optimizer={training.optimizer!r}, weight_decay={training.weight_decay}."
        )
    defaults = {name: type(training).__dataclass_fields__[name].default for name in _OF_ADAM}
    changed = [f"{name}={getattr(training, name)}" for name in _OF_ADAM if getattr(training, name) != defaults[name]]
    if training.optimizer == "adafactor" and changed:
        raise ValueError(
            f"The optimizer adafactor has no {', '.join(_OF_ADAM)}. Received: {', '.join(changed)}. Leave them out, or "
            "choose the optimizer adam or adamw."
        )


def check_schedule(training: Any) -> None:
    """Refuses a schedule that lacks what it needs, or is given what it does not use.

    Args:
        training: A `TrainingConfig`.

    Raises:
        ValueError: The peak of the rate is missing or given twice, or the schedule has no end.
    """
    schedule, rate, final = training.schedule, training.learning_rate, training.final_learning_rate
    others = ", ".join(name for name in SCHEDULES if name != EQUATION_3)
    if schedule == EQUATION_3 and rate is not None:
        raise ValueError(
            "The schedule equation_3 has the peak learning_rate_scale * (d_model * warmup_steps)**-0.5, and no "
            f"learning_rate. Received: learning_rate={rate}. Leave it out, or choose the schedule from {others}."
        )
    if schedule != EQUATION_3 and rate is None:
        raise ValueError(
            f"The schedule {schedule} needs the peak of the rate. Received: learning_rate=None. Give learning_rate, "
            "such as 0.0005."
        )
    if schedule != EQUATION_3 and training.learning_rate_scale != 1:
        raise ValueError(
            "learning_rate_scale is a factor of the schedule equation_3. Received: "
            f"schedule={schedule!r}, learning_rate_scale={training.learning_rate_scale}. Leave it out: the peak is "
            "learning_rate."
        )
    if ends_with_budget(schedule) and (training.max_steps, training.max_epochs) == (None, None):
        raise ValueError(
            f"The schedule {schedule} ends at the last update of the budget. Received: neither max_steps nor "
            "max_epochs. Give one of them, or choose the schedule inverse_sqrt."
        )
    if final and not ends_with_budget(schedule):
        raise ValueError(
            f"final_learning_rate is of the schedules {' and '.join(_TO_THE_END)}. Received: schedule={schedule!r}, "
            f"final_learning_rate={final}. Leave it out."
        )
    if not 0 <= final < (rate or 1.0):
        raise ValueError(
            "final_learning_rate must be at least 0 and below learning_rate. Received: "
            f"final_learning_rate={final}, learning_rate={rate}."
        )
