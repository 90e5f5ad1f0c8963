"""Saves and ends a run at Ctrl-C or another signal."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.callbacks.stop_together import StopTogether
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed.initialization import wait_for_the_others

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The run's state is in a checkpoint, and `fit` is left because of a signal."""


class GracefulInterrupt(EndsRun):
    """The first SIGINT (Ctrl-C) or SIGTERM saves the run and leaves `fit`; the second one ends the process at once.

    Signals are handled inside a `with` block that encloses `fit`:

        with GracefulInterrupt(state) as interrupt, contextlib.suppress(Interrupted):
            model.fit(..., callbacks=[..., interrupt])

    After the first signal, a message is printed on standard error, and `fit` finishes the current batch. Then the
    callback `Checkpoint` saves the run and raises `Interrupted`. There is no extra validation, so a resumed run
    validates at the same updates as a run that was not stopped. A running validation ends at its next batch, because
    the run was saved before it. (Several processes finish the validation: if one of them left it, the others would
    wait.) A second signal raises `KeyboardInterrupt`.

    At its end the block restores the former handlers. After a SIGTERM, it then raises SIGTERM again for them, because
    the sender wanted to end the process, not only the training. Outside the main thread, where Python allows no
    handlers, the block changes nothing.

    Args:
        state: Shared with the other callbacks.
        more_signals: Numbers of further signals to handle in the same way, such as `signal.SIGUSR1`, which Slurm can
            send as a warning.
        together: See `EndsRun`.
    """

    reason = "interrupted"
    wish = 2

    def __init__(
        self, state: TrainingState, more_signals: Sequence[int] = (), together: StopTogether | None = None
    ) -> None:
        super().__init__(state, together)
        self._signals = tuple(dict.fromkeys((*_SIGNALS, *more_signals)))
        self._received: list[int] = []
        self._former: dict[int, Any] = {}
        self._in_fit = False
        self._in_hand = "preparation"  # what is finished after the first signal

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in self._signals}
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}
        if signal.SIGTERM in self._received:
            _say(f"the training ended at update {self.state.step}, and SIGTERM is raised again")
            if sys.stdout is not None:  # None if it was closed when the process began
                sys.stdout.flush()
            if error is None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                wait_for_the_others()  # this process ends here
            signal.raise_signal(signal.SIGTERM)
            # In the first process of a container, the system ignores SIGTERM.
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                sys.exit(128 + signal.SIGTERM)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._in_fit = True
        if self._received:  # before `fit` began
            self.request_stop()

    def end(self) -> None:
        self.state.end_reason = self.state.end_reason or self.reason
        self.state.interrupted = True

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._in_hand = "step"

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._in_hand = "batch of the validation"

    def on_test_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self.leave_validation()

    def leave_validation(self) -> None:
        """Leaves a validation if a signal came. The run was saved when the validation began.

        Raises:
            Interrupted: A signal came.
        """
        if self.state.interrupted:
            raise Interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs at any point of the main thread, even while a line is being printed."""
        self._received.append(number)
        if len(self._received) > 1:
            raise KeyboardInterrupt
        if self._in_fit:
            self.request_stop()
        _say(f"saving the run after this {self._in_hand}. A second signal stops at once, and loses what is not saved")


def _say(words: str) -> None:
    # It does not use print or logging, because the interrupted code may hold their locks.
    with contextlib.suppress(OSError):
        os.write(2, f"\nkformer: {words}.\n".encode())
