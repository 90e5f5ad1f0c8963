"""Ctrl-C ends a run cleanly."""

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
    """The first SIGINT (Ctrl-C) or SIGTERM lets `fit` end cleanly; the second one ends the process at once.

    Signals are handled inside a `with` block that encloses `fit`:

        with GracefulInterrupt(state) as interrupt:
            model.fit(..., callbacks=[..., interrupt])

    The first signal is acknowledged on standard error. `fit` finishes the current batch or validation; after a batch it
    validates once more. So the other callbacks write their checkpoint and best weights. A second signal raises
    `KeyboardInterrupt`.

    At its end the block restores the former handlers. If a SIGTERM was received, the block then raises it again for
    them, because its sender wanted the process to end, not only the training. Outside the main thread, where Python
    allows no handlers, the block changes nothing.

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
            _say(f"the training ended at update {self.state.step}, and SIGTERM is raised again")
            sys.stdout.flush()
            signal.raise_signal(signal.SIGTERM)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._in_fit = True
        if self._received:  # before `fit` began: `fit` resets requests to stop when it begins
            self.request_stop()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._in_hand = "step, and a last validation"

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._in_hand = "validation"

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Runs at any point of the main thread, even while a line is being printed."""
        self._received.append(number)
        if len(self._received) > 1:
            raise KeyboardInterrupt
        if self._in_fit:
            self.request_stop()
        _say(f"stopping after this {self._in_hand}. A second signal stops at once, and loses what is in no checkpoint")


def _say(words: str) -> None:
    # It does not use print or logging, because the interrupted code may hold their locks.
    with contextlib.suppress(OSError):
        os.write(2, f"\nkformer: {words}.\n".encode())
