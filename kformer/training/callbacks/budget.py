"""Callbacks that end a run after a number of updates or minutes."""

import time
from collections.abc import Callable

from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.checkpoints import TrainingState
from kformer.training.optimizers import accumulation_steps
from kformer.wording import count

# Both callbacks check their budget when a batch begins, because on JAX Keras runs ahead and calls `on_train_batch_end`
# late. The batch that begins is still trained, and the run ends after it.


class StepBudget(EndsRun):
    """Stops `fit` after the update number `max_steps`.

    The updates in `state`, done before a resume, count too. `fit` always trains at least one batch: do not call it
    if the budget is already spent. After the last batch `fit` still validates.

    Args:
        state: What the run starts from; shared with the other callbacks.
        max_steps: Optimizer updates, from the start of the first run.
    """

    def __init__(self, state: TrainingState, max_steps: int) -> None:
        super().__init__(state)
        self.max_steps = max_steps
        self.reason = f"the budget of {count(max_steps, 'step')} is spent"

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._batches_at_once = self.model.steps_per_execution
        accumulation = accumulation_steps(self.model.optimizer)
        pending = self.state.batch % accumulation  # micro-batches that await their update
        self._batches_left = (self.max_steps - self.state.step) * accumulation - pending

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._batches_left -= self._batches_at_once
        if self._batches_left <= 0:
            self.request_stop()


class TimeBudget(EndsRun):
    """Stops `fit` after the batch during which `max_minutes` run out. After that batch `fit` still validates.

    Args:
        state: Shared with the other callbacks.
        max_minutes: Minutes of training, from the start of the first run.
        started: The time of `clock` from which the minutes count; None: the time when `fit` begins. For a resumed run,
            subtract the time that the run has trained already.
        clock: Returns the time in seconds; tests replace it.
    """

    def __init__(
        self,
        state: TrainingState,
        max_minutes: float,
        started: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(state)
        self.max_minutes = max_minutes
        self.started = started
        self.clock = clock
        self.reason = f"the budget of {count(max_minutes, 'minute')} is spent"

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.started is None:
            self.started = self.clock()
        self._ends_at = self.started + self.max_minutes * 60

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if self.clock() >= self._ends_at:
            self.request_stop()
