"""Ctrl-C ends a run in good order."""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.checkpoints import TrainingState

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulInterrupt(EndsRun):
    """The first SIGINT (Ctrl-C) or SIGTERM lets `fit` end in good order; the second one ends the process at once.

    Signals are handled while a `with` block runs, which encloses `fit`:

        with GracefulInterrupt(state) as interrupt:
            model.fit(..., callbacks=[..., interrupt])

    The first signal is acknowledged on standard error. `fit` finishes the batch or the validation in hand; after a
    batch it validates once more. So the other callbacks write their checkpoint and best weights. A second signal raises
    `KeyboardInterrupt`.

    When the block ends the former handlers are back. A SIGTERM that came is then sent once more, and ends the process
    unless a former handler says otherwise: who sent it wanted the process to end, not the training alone. Outside the
    main thread, where Python allows no handlers, the block changes nothing.

    Args:
        state: Shared with the other callbacks.
    """

    reason = "interrupted"

    def __init__(self, state: TrainingState) -> None:
        super().__init__(state)
        self._received: list[int] = []
        self._former: dict[int, Any] = {}
        self._in_fit = False
        self._in_hand = "step"

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}
        if signal.SIGTERM in self._received:
            _say(f"the training ended at update {self.state.step}, and SIGTERM is handed on")
            sys.stdout.flush()
            signal.raise_signal(signal.SIGTERM)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._in_fit = True
        if self._received:  # before `fit` began, which takes back all requests to stop
            self.request_stop()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._in_hand = "step, and a last validation"

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._in_hand = "validation"

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs wherever the signal finds the main thread, in the middle of a line that is being printed, too."""
        self._received.append(number)
        if len(self._received) > 1:
            raise KeyboardInterrupt
        if self._in_fit:
            self.request_stop()
        _say(f"stopping after this {self._in_hand}. A second signal stops at once, and loses what no checkpoint holds")


def _say(words: str) -> None:
    # Neither print nor logging: the interrupted code may hold a lock of theirs.
    with contextlib.suppress(OSError):
        os.write(2, f"\nkformer: {words}.\n".encode())
