"""Ends a run of several processes at the same batch everywhere."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

# Batches between two questions whether a process wants to stop; its answer is read when the next is asked.
_EVERY = 4


class StopTogether(keras.callbacks.Callback):
    """What one of several callbacks wants in one process, to stop or to raise an error, happens in all processes.

    Each decides by what its own process alone sees: a clock, a signal, a loss that it may read sooner or later. A
    process that stopped by itself would leave the others waiting for it in their next step. So this callback runs the
    others, but keeps to itself what they want. Every few batches the processes compare that, without waiting for it,
    and do at the next comparison what the last one said. At the end of an epoch they compare once more.

    Args:
        callbacks: They may set `model.stop_training`, and raise `FloatingPointError` at the end of a batch. If several
            want to stop, the last one is followed.
        all_reduce_max: `kformer.training.distributed.ProcessGroup.all_reduce_max`.

    Attributes:
        followed: The callback by whose wish, in whichever process, the run ends; None while it goes on.
    """

    async_safe = True

    def __init__(
        self, callbacks: Sequence[keras.callbacks.Callback], all_reduce_max: Callable[[int], Callable[[], int]]
    ) -> None:
        super().__init__()
        self.callbacks = list(callbacks)
        self.all_reduce_max = all_reduce_max
        self.followed: keras.callbacks.Callback | None = None
        self._error: FloatingPointError | None = None

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._stand_ins = [_StandIn(model) for _ in self.callbacks]
        for callback, stand_in in zip(self.callbacks, self._stand_ins, strict=True):
            callback.set_model(stand_in)

    def on_train_begin(self, logs: dict | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_begin(logs)

    def on_train_end(self, logs: dict | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_end(logs)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._asked: Callable[[], int] | None = None
        for callback in self.callbacks:
            callback.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_begin(batch, logs)
        if batch % _EVERY == 0:
            if self._asked is not None:
                self._follow(self._asked())
            self._asked = self.all_reduce_max(self._wish())

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        try:
            for callback in self.callbacks:
                callback.on_train_batch_end(batch, logs)
        except FloatingPointError as error:
            self._error = self._error or error

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)
        self._follow(self.all_reduce_max(self._wish())())

    def _wish(self) -> int:
        """0: to go on; from 1 up: to stop, with the number of the last callback that wants to; above: to raise."""
        if self._error is not None:
            return len(self.callbacks) + 1
        return max((number for number, one in enumerate(self._stand_ins, start=1) if one.stop_training), default=0)

    def _follow(self, wish: int) -> None:
        if wish > len(self.callbacks):
            raise self._error or FloatingPointError("The loss is not finite any more. Another process says since when.")
        if wish:
            self.followed = self.callbacks[wish - 1]
            self.model.stop_training = True


class _StandIn:
    """A model for a callback: all of it but the switch that stops training."""

    def __init__(self, model: keras.Model) -> None:
        self.stop_training = False
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
