"""Keeps a `TrainingState` up to date during `fit`, and completes the logs."""

import threading
import time
from collections.abc import Callable

import keras

from kformer.training.checkpoints import TrainingState
from kformer.training.optimizers import accumulation_steps, inner_optimizer, update_count

# Batches that Keras may start before their metrics are read, on JAX: enough to keep the device busy, and few enough
# to notice a time limit or an interrupt soon.
_MAX_BATCHES_AHEAD = 16


class TrackState(keras.callbacks.Callback):
    """Brings `state` up to date and adds values to the logs of an epoch. It must come first in the list.

    After every batch it sets `state.batch`, `state.step`, `state.epoch_seconds` and `state.seconds`. At the end of an
    epoch it sets `state.epoch` and adds to the logs: `step` (updates done), `learning_rate` (of the next update),
    `gradient_norm` (of the last batch; the optimizer is from `build_optimizer`), `tokens_per_second` (target tokens
    without padding, validation time not counted; needs the metric `TokenCount` under the name "tokens") and `minutes`
    (of the whole run, those before a resume included).

    Args:
        state: What the run starts from; shared with the other callbacks.
        clock: Returns the time in seconds; tests replace it.
    """

    async_safe = True

    def __init__(self, state: TrainingState, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.state = state
        self.clock = clock
        self._lock = threading.Lock()  # on JAX, ends of batches come from several threads, in any order

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._accumulation = accumulation_steps(self.model.optimizer)
        self._began = self.clock() - self.state.seconds

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._batch_before = self.state.batch
        self._step_before = self.state.step
        # For a resumed epoch, the seconds before the resume count, too.
        self._epoch_began = self.clock() - self.state.epoch_seconds
        # A new semaphore for every epoch, because a batch that begins after the end of the data never ends.
        self._ahead = threading.Semaphore(_MAX_BATCHES_AHEAD)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._ahead.acquire()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        with self._lock:
            self.state.batch = max(self.state.batch, self._batch_before + batch + 1)
            pending = self._batch_before % self._accumulation  # micro-batches that await their update
            done = self.state.batch - self._batch_before
            self.state.step = self._step_before + (pending + done) // self._accumulation
            now = self.clock()
            self.state.epoch_seconds, self.state.seconds = now - self._epoch_began, now - self._began
        self._ahead.release()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        seconds, self.state.seconds = self.state.epoch_seconds, self.clock() - self._began
        self.state.epoch, self.state.epoch_batch, self.state.epoch_seconds = epoch + 1, 0, 0.0
        self.state.validating = False
        # The optimizer's own count: under float16 it skips the batches whose gradients overflow.
        self.state.step = update_count(self.model.optimizer)
        if logs is None:
            return
        logs["step"] = self.state.step
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs["gradient_norm"] = float(keras.ops.convert_to_numpy(inner_optimizer(self.model.optimizer).gradient_norm))
        if "tokens" in logs and seconds > 0:
            logs["tokens_per_second"] = logs["tokens"] / seconds
        logs["minutes"] = self.state.seconds / 60
