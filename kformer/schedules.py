"""Schedules of the learning rate: that of "Attention Is All You Need", equation 3, and others with a warm-up."""

import math
from typing import Any, Self

import keras
from keras import ops


def _check_positive(arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(f"{name} must be greater than 0. Received: {name}={value}.")


def _update_of(step: Any, gradient_accumulation_steps: int) -> Any:
    """The number of the update, from 1 up, as float32.

    Keras counts from 0, and with gradient accumulation it counts micro-batches: the last of k micro-batches,
    numbered k - 1, 2k - 1, ..., completes the update.
    """
    # Divided as integers: float32 would round steps above 2**24.
    return ops.cast(ops.floor_divide(step, gradient_accumulation_steps), "float32") + 1.0


@keras.saving.register_keras_serializable(package="kformer")
class WarmupInverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """`scale * d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)`, n = 1 at the first update (equation 3).

    The rate rises linearly to its peak `scale * (d_model * warmup_steps)**-0.5` at update `warmup_steps`, and
    falls with the inverse square root of the update's number from there.

    Keras counts from 0, and with gradient accumulation it counts micro-batches. Hence
    `n = step // gradient_accumulation_steps + 1`.

    Args:
        d_model: Size of the model, in the paper's formula.
        warmup_steps: Updates until the peak.
        scale: Factor on the whole; 1 in the paper.
        gradient_accumulation_steps: As in the optimizer; 1 without accumulation.

    Raises:
        ValueError: An argument is not greater than 0.

    Examples:
        The rate rises to its peak at the fourth update, and is half the peak at the sixteenth:

        >>> rate = WarmupInverseSqrt(d_model=100, warmup_steps=4)
        >>> [round(float(rate(step)), 4) for step in (0, 1, 3, 15)]
        [0.0125, 0.025, 0.05, 0.025]
    """

    def __init__(
        self,
        d_model: int,
        warmup_steps: int = 4000,
        scale: float = 1.0,
        gradient_accumulation_steps: int = 1,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale
        self.gradient_accumulation_steps = gradient_accumulation_steps
        _check_positive(self.get_config())

    @classmethod
    def with_peak(cls, peak: float, warmup_steps: int = 4000, gradient_accumulation_steps: int = 1) -> Self:
        """The same curve with a given peak: `peak * min((warmup_steps / n)**0.5, n / warmup_steps)`.

        Examples:
            >>> rate = WarmupInverseSqrt.with_peak(0.1, warmup_steps=4)
            >>> [round(float(rate(step)), 4) for step in (0, 1, 3, 15)]
            [0.025, 0.05, 0.1, 0.05]
        """
        return cls(1, warmup_steps, peak * math.sqrt(warmup_steps), gradient_accumulation_steps)

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar, at Keras's `step` (integer, from 0)."""
        update = _update_of(step, self.gradient_accumulation_steps)
        rise = update * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(update), rise)

    def get_config(self) -> dict[str, Any]:
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }


@keras.saving.register_keras_serializable(package="kformer")
class WarmupConstant(keras.optimizers.schedules.LearningRateSchedule):
    """`peak * min(1, n / warmup_steps)`, n = 1 at the first update: a linear rise to the peak, which stays.

    Args:
        peak: The rate from update `warmup_steps` on.
        warmup_steps: Updates until the peak; 1 without a warm-up.
        gradient_accumulation_steps: As in the optimizer; 1 without accumulation. Hence
            `n = step // gradient_accumulation_steps + 1`.

    Raises:
        ValueError: An argument is not greater than 0.

    Examples:
        >>> rate = WarmupConstant(0.1, warmup_steps=4)
        >>> [round(float(rate(step)), 4) for step in (0, 1, 3, 15)]
        [0.025, 0.05, 0.1, 0.1]
    """

    def __init__(self, peak: float, warmup_steps: int = 4000, gradient_accumulation_steps: int = 1) -> None:
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.gradient_accumulation_steps = gradient_accumulation_steps
        amounts = {"peak": peak, "warmup_steps": warmup_steps}
        _check_positive({**amounts, "gradient_accumulation_steps": gradient_accumulation_steps})

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar, at Keras's `step` (integer, from 0)."""
        update = _update_of(step, self.gradient_accumulation_steps)
        return self.peak * ops.minimum(1.0, update / self.warmup_steps)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }


@keras.saving.register_keras_serializable(package="kformer")
class WarmupLinear(WarmupConstant):
    """As `WarmupConstant` up to update `warmup_steps`, and from there on a straight line to `final` at the last update.

    With p = (n - warmup_steps) / (updates - warmup_steps), from 0 to 1, the rate is `peak + (final - peak) * p`.
    If there are no updates after the warm-up, the rate only rises.

    Args:
        peak: The rate at update `warmup_steps`.
        updates: The number of the last update. The rate stays `final` after it.
        warmup_steps: Updates until the peak.
        final: The rate at the last update, at least 0. With 0 this update changes no weights.
        gradient_accumulation_steps: As in the optimizer; 1 without accumulation.

    Raises:
        ValueError: An argument is not greater than 0, or `final` is below 0.

    Examples:
        >>> rate = WarmupLinear(0.1, updates=8, warmup_steps=4)
        >>> [round(float(rate(step)), 4) for step in (1, 3, 4, 5, 7)]
        [0.05, 0.1, 0.075, 0.05, 0.0]
    """

    def __init__(
        self,
        peak: float,
        updates: int,
        warmup_steps: int = 4000,
        final: float = 0.0,
        gradient_accumulation_steps: int = 1,
    ) -> None:
        super().__init__(peak, warmup_steps, gradient_accumulation_steps)
        self.updates = updates
        self.final = final
        _check_positive({"updates": updates})
        if not final >= 0:
            raise ValueError(f"final must be at least 0. Received: final={final}.")

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar, at Keras's `step` (integer, from 0)."""
        update = _update_of(step, self.gradient_accumulation_steps)
        rise = self.peak * update / self.warmup_steps
        done = ops.clip((update - self.warmup_steps) / max(1, self.updates - self.warmup_steps), 0.0, 1.0)
        return ops.where(update < self.warmup_steps, rise, self.final + (self.peak - self.final) * self._left(done))

    def _left(self, done: Any) -> Any:
        """What is left of the way from the peak to `final`, from 1 to 0, when the share `done` of the time is over."""
        return 1.0 - done

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "updates": self.updates, "final": self.final}


@keras.saving.register_keras_serializable(package="kformer")
class WarmupCosine(WarmupLinear):
    """As `WarmupLinear`, but on half a wave of a cosine (Loshchilov and Hutter 2017, equation 5, without restarts).

    With the same p, the rate after the warm-up is `final + (peak - final) * (1 + cos(pi * p)) / 2`.

    Args:
        peak, updates, warmup_steps, final, gradient_accumulation_steps: As of `WarmupLinear`.

    Raises:
        ValueError: An argument is not greater than 0, or `final` is below 0.

    Examples:
        >>> rate = WarmupCosine(0.1, updates=8, warmup_steps=4)
        >>> [round(float(rate(step)), 4) for step in (1, 3, 4, 5, 7)]
        [0.05, 0.1, 0.0854, 0.05, 0.0]
    """

    def _left(self, done: Any) -> Any:
        return (1.0 + ops.cos(math.pi * done)) / 2
