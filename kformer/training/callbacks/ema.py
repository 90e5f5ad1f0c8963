"""Validation with averaged weights."""

import keras

from kformer.training.optimizers import Adam, inner_adam


class AverageWeights(keras.callbacks.Callback):
    """Lets a plain `model.fit` use averaged weights: in validations, and in the model when `fit` ends.

    The optimizer is from `build_adam`, with an `ema_decay` above 0:

        model.compile(build_adam(d_model, training), ...)
        model.fit(..., callbacks=[AverageWeights()])

    At the end of an epoch, the callbacks after this one in the list see the averaged weights, too. Training goes on
    with the trained weights. After the last epoch they are dropped, so another `fit` starts from the averaged weights.
    (`kformer.train` does not use this callback: it keeps both kinds of weights, so that a run can be resumed.)

    Raises:
        ValueError: The optimizer keeps no averages.
    """

    def on_train_begin(self, logs: dict | None = None) -> None:
        optimizer = inner_adam(self.model.optimizer)
        if not isinstance(optimizer, Adam) or not optimizer.ema_decay:
            raise ValueError(
                "AverageWeights needs an optimizer that averages the weights. "
                f"Received: {type(optimizer).__name__}, ema_decay={getattr(optimizer, 'ema_decay', 0.0)}. "
                "Compile the model with build_adam(d_model, training) and an ema_decay above 0 in training."
            )
        self._in_model = False  # whether the averages have changed places with the weights

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if self._in_model:
            self._swap()

    def on_test_begin(self, logs: dict | None = None) -> None:
        if not self._in_model:
            self._swap()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if not self._in_model:  # there was no validation
            self._swap()

    def on_train_end(self, logs: dict | None = None) -> None:
        if self._in_model:
            self._swap()
        inner_adam(self.model.optimizer).assign_averages()

    def _swap(self) -> None:
        inner_adam(self.model.optimizer).swap_averages()
        self._in_model = not self._in_model


class UseEMA(keras.callbacks.Callback):
    """Puts the averaged weights into the model when a validation begins; `UseTrained` puts the trained ones back.

    In the list of callbacks, those that should see the averaged weights at the end of an epoch stand between the two.
    The optimizer is from `build_adam`, with an `ema_decay`. (Keras's `SwapEMAWeights` swaps by sums and differences,
    which are rounded, so validations would change the weights.)
    """

    def on_test_begin(self, logs: dict | None = None) -> None:
        inner_adam(self.model.optimizer).swap_averages()


class UseTrained(keras.callbacks.Callback):
    """Puts the trained weights back at the end of an epoch, after its validation."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        inner_adam(self.model.optimizer).swap_averages()
