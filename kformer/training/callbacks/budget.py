"""When a run ends by itself: after a number of updates, of minutes, or of validations without better weights."""

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

from kformer.config import MONITORS, Monitor
from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.callbacks.stop_together import StopTogether
from kformer.training.checkpoints import TrainingState
from kformer.training.optimizers import accumulation_steps
from kformer.wording import count


class Spent(NamedTuple):
    """Why a run ends, in words: `now`, or, where a resumed run has nothing left to do, `already`."""

    now: str
    already: str


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a run may use. The first limit that is reached ends it.

    Attributes:
        max_steps: Optimizer updates; None: no limit.
        max_minutes: Minutes of training; None: no limit.
        patience: Validations without a better value of the monitored metric.
        monitor: That metric.
        least_improvement: Only what is better by more than this counts for the patience, see `KeepBest`.
    """

    max_steps: int | None = None
    max_minutes: float | None = None
    patience: int = 10
    monitor: Monitor = MONITORS["loss"]
    least_improvement: float = 0.0

    def spent(self, state: TrainingState) -> Spent | None:
        """Why a run with this progress is over; None if it goes on."""
        return self.out_of_steps(state) or self._out_of_minutes(state) or self.out_of_patience(state)

    def out_of_steps(self, state: TrainingState) -> Spent | None:
        """The same for the updates alone, which all processes count alike. Their clocks differ."""
        if self.max_steps is None or state.step < self.max_steps:
            return None
        return _spent(count(self.max_steps, "step"))

    def _out_of_minutes(self, state: TrainingState) -> Spent | None:
        if self.max_minutes is None or state.seconds < self.max_minutes * 60:
            return None
        return _spent(count(self.max_minutes, "minute"))

    def out_of_patience(self, state: TrainingState) -> Spent | None:
        """The same for the patience alone. While the best value says nothing (a BLEU of 0.0), no validation counts."""
        uninformative = state.best is not None and state.best == self.monitor.uninformative
        if state.waited < self.patience or uninformative:
            return None
        reason = f"{count(state.waited, 'validation')} brought no better {self.monitor.label}"
        if self.least_improvement:
            reason += f" by more than {self.least_improvement:g}"
        return Spent(reason, f"{reason} already; raise patience to go on")


def _spent(amount: str) -> Spent:
    return Spent(f"the budget of {amount} is spent", f"the budget of {amount} was spent already; raise it to go on")


# During `fit`, both callbacks look at the budget when a batch begins, because on JAX Keras runs ahead and calls
# `on_train_batch_end` late. The batch that begins is still trained, and the run ends after it.


class StepBudget(EndsRun):
    """Stops `fit` after the update number `max_steps`.

    The updates in `state`, done before a resume, count too. `fit` always trains at least one batch: do not call it
    if the budget is already spent. After the last batch `fit` still validates. All processes count alike, so each of
    them stops by itself.

    Args:
        state: What the run starts from; shared with the other callbacks.
        max_steps: Optimizer updates, from the start of the first run.
    """

    def __init__(self, state: TrainingState, max_steps: int) -> None:
        super().__init__(state)
        self.max_steps = max_steps
        self.reason = _spent(count(max_steps, "step")).now

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

    If they run out during a validation, `fit` stops after it, and trains and validates no more. So this callback comes
    after those that work at the end of a validation.

    Args:
        state: Shared with the other callbacks.
        max_minutes: Minutes of training, from the start of the first run.
        started: The time of `clock` from which the minutes count; None: the time when `fit` begins. For a resumed run,
            subtract the time that the run has trained already.
        clock: Returns the time in seconds; tests replace it.
        together: See `EndsRun`.
    """

    wish = 1

    def __init__(
        self,
        state: TrainingState,
        max_minutes: float,
        started: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        together: StopTogether | None = None,
    ) -> None:
        super().__init__(state, together)
        self.max_minutes = max_minutes
        self.started = started
        self.clock = clock
        self.reason = _spent(count(max_minutes, "minute")).now

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.started is None:
            self.started = self.clock()
        self._ends_at = self.started + self.max_minutes * 60

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._look()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._look()

    def _look(self) -> None:
        if self.clock() >= self._ends_at:
            self.request_stop()
