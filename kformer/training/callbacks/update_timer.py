"""Measures, soon after the beginning, how long an update takes."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable

import keras

from kformer.training.compile import compiled_by_xla
from kformer.training.optimizers import accumulation_steps

_FEWEST_UPDATES = 3  # that are timed


class UpdateTimer(keras.callbacks.Callback):
    """Times the first updates, and calls `measured` once with the seconds of an update.

    The time of an update is the median: the training step is traced or compiled in the first batch, and XLA compiles it
    for each shape of a batch, most of them at the beginning.

    Args:
        measured: Gets the seconds of an update.
        seconds: How long updates are timed at least; None: 5, or 30 where XLA compiles them.
        clock: Returns the time in seconds; tests replace it.
    """

    async_safe = True

    def __init__(
        self,
        measured: Callable[[float], None],
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.measured = measured
        self.seconds = (30.0 if compiled_by_xla() else 5.0) if seconds is None else seconds
        self.clock = clock
        self._ends: list[float] = []  # of batches
        self._done = False
        self._lock = threading.Lock()  # on JAX, ends of batches come from several threads

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        with self._lock:
            if self._done:
                return
            self._ends.append(self.clock())
            batches = accumulation_steps(self.model.optimizer)  # of an update
            if self._ends[-1] - self._ends[0] < self.seconds or len(self._ends) <= _FEWEST_UPDATES * batches:
                return
            self._done = True
        updates = itertools.pairwise(self._ends[::batches])
        self.measured(statistics.median(end - start for start, end in updates))
