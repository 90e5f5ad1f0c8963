"""Ends a run of several processes after the same batch in all of them."""

from collections.abc import Callable
from typing import Protocol

import keras

from kformer.training.checkpoints import TrainingState

# Batches between two comparisons. The result of a comparison is read when the next one begins.
_EVERY = 4
_ERROR = 4  # a wish larger than those of all callbacks


def end_run(model: keras.Model, state: TrainingState, reason: str) -> None:
    """Lets `fit` end after the current batch or validation. The first reason is kept."""
    state.end_reason = state.end_reason or reason
    model.stop_training = True


class Ending(Protocol):
    """A callback that may end the run: an `ends_run.EndsRun`."""

    wish: int

    def end(self) -> None:
        """Ends the run of this process."""


class StopTogether(keras.callbacks.Callback):
    """Makes all processes stop, or raise an error, after the same batch when one of them wants to.

    Clocks, signals and the time when a loss is read differ between processes. If one process stopped alone, the others
    would wait for it in their next step. So a callback that wants to stop only informs this one. Every few batches the
    processes begin to compare what they want. They do not wait for the result, but act on it at the next comparison.
    They compare once more when an epoch ends.

    In every process it is made before the callbacks that it informs, and comes after them in the list. A run that it
    ends gets its reason from the process's own callback with the same `EndsRun.wish`.

    Args:
        state: Shared with the other callbacks.
        all_reduce_max: `kformer.training.distributed.ProcessGroup.all_reduce_max`.
    """

    def __init__(self, state: TrainingState, all_reduce_max: Callable[[int], Callable[[], int]]) -> None:
        super().__init__()
        self.state = state
        self.all_reduce_max = all_reduce_max
        self._endings: dict[int, Ending] = {}  # by their wishes
        self._wish = 0  # 0: go on
        self._error: FloatingPointError | None = None

    def add(self, ending: Ending) -> None:
        """Takes note of a callback that may end the run."""
        self._endings[ending.wish] = ending

    def request(self, ending: Ending) -> None:
        """Asks all processes to end the run, because a callback of this one wants to."""
        self._endings[ending.wish] = ending
        self._wish = max(self._wish, ending.wish)

    def fail(self, error: FloatingPointError) -> None:
        """Asks all processes to raise an error."""
        self._error = self._error or error
        self._wish = _ERROR

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._asked: Callable[[], int] | None = None

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if batch % _EVERY == 0:
            if self._asked is not None:
                self._act(self._asked())
            self._asked = self.all_reduce_max(self._wish)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.compare()

    def compare(self) -> None:
        """Asks all processes and acts on the answer. All must call it at the same place."""
        self._act(self.all_reduce_max(self._wish)())

    def _act(self, wish: int) -> None:
        if wish == _ERROR:
            raise self._error or FloatingPointError(
                "The loss is not finite any more. The message of another process names the batch."
            )
        if wish in self._endings:
            self._endings[wish].end()
        elif wish:  # only the main process has the callbacks of a user
            end_run(self.model, self.state, "a callback of process 0 stopped the training")


class CompareLast(keras.callbacks.Callback):
    """Compares once more at the end of an epoch, after all other callbacks, because one of them may want to stop.

    Args:
        together: The callback that compares.
    """

    def __init__(self, together: StopTogether) -> None:
        super().__init__()
        self.together = together

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.together.compare()
