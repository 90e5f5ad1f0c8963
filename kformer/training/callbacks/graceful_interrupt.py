"""Ctrl-C ends a run in good order."""

import signal
import threading
from types import FrameType

import keras

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulInterrupt(keras.callbacks.Callback):
    """The first SIGINT or SIGTERM lets `fit` finish its batch or the one after, validate and end.

    The second raises `KeyboardInterrupt`. As `fit` ends the usual way after the first, the other callbacks write
    their checkpoint and best weights. The former handlers are back when `fit` ends, or after `close()`. Outside
    the main thread, where Python allows no handlers, it does nothing. Make a new one for a run that begins after it.

    Attributes:
        interrupted: Whether a signal came in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = False
        self._former: dict[int, object] = {}

    def on_train_begin(self, logs: dict | None = None) -> None:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in _SIGNALS}

    # Where a signal comes in Keras may be in the middle of a step, and on JAX the model must not be touched then. So
    # the handler leaves a note for these two.
    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if self.interrupted:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.interrupted:
            self.model.stop_training = True

    def on_train_end(self, logs: dict | None = None) -> None:
        self.close()

    def close(self) -> None:
        """Puts the former handlers back."""
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            self.close()
            raise KeyboardInterrupt
        self.interrupted = True
