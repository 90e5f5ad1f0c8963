"""How callbacks end a run, and say why. When: see `budget` (limits, patience), `graceful_interrupt`, `stop_on_nan`."""

from typing import Any, ClassVar

import keras

from kformer.training.callbacks.stop_together import StopTogether, end_run
from kformer.training.checkpoints import TrainingState


class EndsRun(keras.callbacks.Callback):
    """Base class of the callbacks that may end a run, which they do by `request_stop()`.

    Args:
        state: Shared with the other callbacks; its `end_reason` tells why the run ends.
        together: What all processes decide together; None: this process decides alone.

    Attributes:
        reason: What `end_reason` becomes if this callback ends the run.
        wish: How `StopTogether` tells the other processes of it, from 1 up. If several callbacks want to end the run,
            the largest number decides.
    """

    reason: str
    wish: ClassVar[int]

    def __init__(self, state: TrainingState, together: StopTogether | None = None) -> None:
        super().__init__()
        self.state = state
        self.together = together
        if together is not None:
            together.add(self)

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # On JAX, reading `self.model` makes Keras copy the weights to the model. Reading this attribute does not.
        self._model_in_fit = model

    def request_stop(self) -> None:
        """Ends the run, as soon as all processes know of it."""
        if self.together is None:
            self.end()
        else:
            self.together.request(self)

    def end(self) -> None:
        """Ends the run of this process."""
        end_run(self._model_in_fit, self.state, self.reason)


class NoticeStop(EndsRun):
    """Ends the run, with a reason, when the callback before it sets `model.stop_training`.

    Where several processes train, the others must stop at the same batch. So this callback resets
    `model.stop_training` and requests that all processes stop.

    Args:
        state: Shared with the other callbacks.
        callback: The callback that stands before this one in the list.
        together: See `EndsRun`.
    """

    wish = 3

    def __init__(
        self, state: TrainingState, callback: keras.callbacks.Callback, together: StopTogether | None = None
    ) -> None:
        super().__init__(state, together)
        self.reason = f"the callback {type(callback).__name__} stopped the training"
        # On JAX, Keras runs ahead and might see `stop_training` before this callback resets it.
        self.async_safe = not any(_overrides(callback, hook) for hook in ("on_train_batch_end", "on_batch_end"))

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._notice()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._notice()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._notice()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._notice()

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._notice()

    def on_test_end(self, logs: dict | None = None) -> None:
        self._notice()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._notice()

    def _notice(self) -> None:
        if self._model_in_fit.stop_training and not self.state.end_reason:
            self._model_in_fit.stop_training = False
            self.request_stop()


def _overrides(callback: keras.callbacks.Callback, hook: str) -> bool:
    default: Any = getattr(keras.callbacks.Callback, hook)
    return getattr(callback, hook) != default.__get__(callback)
