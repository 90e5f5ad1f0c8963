"""The learning rate of "Attention Is All You Need", equation 3."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kformer")
class WarmupInverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """`scale * d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)`, n = 1 at the first update (equation 3).

    The rate rises linearly to its peak `scale * (d_model * warmup_steps)**-0.5` at update `warmup_steps`, and
    falls with the inverse square root of the update's number from there.

    Keras counts from 0, and with gradient accumulation it counts micro-batches: the last of k micro-batches,
    numbered k - 1, 2k - 1, ..., completes the update. Hence `n = step // gradient_accumulation_steps + 1`.

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
        for name, value in self.get_config().items():
            if not value > 0:
                raise ValueError(f"{name} must be greater than 0. Received: {name}={value}.")

    def __call__(self, step: Any) -> Any:
        """The rate, a float32 scalar, at Keras's `step` (integer, from 0)."""
        # Divided as integers: float32 would round steps above 2**24.
        update = ops.cast(ops.floor_divide(step, self.gradient_accumulation_steps), "float32") + 1.0
        rise = update * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(update), rise)

    def get_config(self) -> dict[str, Any]:
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }
