"""Ends a run of several processes after the same batch in all of them."""

import functools
from collections.abc import Callable, Sequence

import keras

from kformer.training.callbacks.ends_run import EndsRun, NoticeStop, end_run
from kformer.training.callbacks.stop_on_nan import StopOnNaN
from kformer.training.checkpoints import TrainingState

# Batches between two comparisons. The result of a comparison is read when the next one begins.
_EVERY = 4


class StopTogether(keras.callbacks.Callback):
    """Makes all processes stop, or raise an error, after the same batch when one of them wants to.

    Clocks, signals and the time when a loss is read differ between processes. If one process stopped alone, the others
    would wait for it in their next step. So a callback that wants to stop only informs this one. Every few batches the
    processes begin to compare what they want. They do not wait for the result, but act on it at the next comparison.
    They compare once more when an epoch ends.

    It comes after `endings` in the list of callbacks, in every process.

    Args:
        endings: Callbacks that may end the run: the same ones in every process. If several want to, the last one in
            the list gives the reason.
        loss_check: The callback that may find a loss that is not finite.
        noticed: `NoticeStop` callbacks, anywhere in the list. Only the main process has them.
        state: Shared with the other callbacks.
        all_reduce_max: `kformer.training.distributed.ProcessGroup.all_reduce_max`.
    """

    def __init__(
        self,
        endings: Sequence[EndsRun],
        loss_check: StopOnNaN,
        noticed: Sequence[NoticeStop],
        state: TrainingState,
        all_reduce_max: Callable[[int], Callable[[], int]],
    ) -> None:
        super().__init__()
        self.state = state
        self.all_reduce_max = all_reduce_max
        self._ends = [*(ending.end for ending in endings), self._end_for_callback]
        self._callback_reason = "a callback of process 0 stopped the training"
        self._wish = 0  # 0: go on; n: end by `self._ends[n - 1]`; a larger number: an error
        self._error: FloatingPointError | None = None
        for number, ending in enumerate(endings, start=1):
            ending.request_stop = functools.partial(self._request, number)
        for notice in noticed:
            notice.request_stop = functools.partial(self._request_for_callback, notice.reason)
        loss_check.report = self._keep_error

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

    def _request(self, number: int) -> None:
        self._wish = max(self._wish, number)

    def _request_for_callback(self, reason: str) -> None:
        self._callback_reason = reason
        self._request(len(self._ends))

    def _end_for_callback(self) -> None:
        end_run(self.model, self.state, self._callback_reason)

    def _keep_error(self, error: FloatingPointError) -> None:
        self._error = self._error or error
        self._wish = len(self._ends) + 1

    def _act(self, wish: int) -> None:
        if wish > len(self._ends):
            raise self._error or FloatingPointError(
                "The loss is not finite any more. The message of another process names the batch."
            )
        if wish:
            self._ends[wish - 1]()


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
