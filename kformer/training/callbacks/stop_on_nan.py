"""Ends a run whose loss became NaN or infinite."""

import math

import keras

from kformer.training.callbacks.stop_together import StopTogether
from kformer.training.checkpoints import TrainingState


class StopOnNaN(keras.callbacks.Callback):
    """Raises an error after the first batch whose loss is NaN or infinite, so that nothing is saved after it.

    On JAX several threads report the ends of batches, so the error may name a slightly later batch.

    Args:
        state: Shared with the other callbacks; `TrackState` must come before.
        together: Where several processes train, it makes all of them raise an error after the same batch.
    """

    async_safe = True

    def __init__(self, state: TrainingState, together: StopTogether | None = None) -> None:
        super().__init__()
        self.state = state
        self.together = together

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        loss = float((logs or {}).get("loss", 0.0))  # Keras's mean since the epoch began: once NaN, always NaN
        if not math.isfinite(loss):
            error = FloatingPointError(
                f"The loss is {loss} after batch {self._before + batch + 1}, update {self.state.step}. The best "
                "weights and the last checkpoint are from before. Start again with a lower "
                "learning_rate_scale or learning_rate, or more warmup_steps, or look for broken pairs in the corpus."
            )
            if self.together is None:
                raise error
            self.together.fail(error)
