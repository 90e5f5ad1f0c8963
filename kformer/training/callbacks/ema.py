"""Validation by averaged weights."""

import keras

from kformer.training.optimizers import inner_adam


class UseEMA(keras.callbacks.Callback):
    """Puts the averaged weights in the model's place when a validation begins; `UseTrained` puts them back.

    Between the two in the list of callbacks are those that should see the averaged weights at the end of an epoch.
    The optimizer is from `build_adam`, with an `ema_decay`. (Keras's `SwapEMAWeights` swaps by sums and differences,
    which round: the run would not go on as it would without validations.)
    """

    def on_test_begin(self, logs: dict | None = None) -> None:
        inner_adam(self.model.optimizer).swap_averages()


class UseTrained(keras.callbacks.Callback):
    """Puts the trained weights back at the end of an epoch, after its validation."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        inner_adam(self.model.optimizer).swap_averages()
