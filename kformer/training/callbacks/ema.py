"""Averaged weights in a `model.fit` of your own. In a run, `validation` puts them in, `checkpoint` takes them out."""

import keras

from kformer.training.moving_average import MovingAverage
from kformer.training.optimizers import inner_optimizer


class AverageWeights(keras.callbacks.Callback):
    """Lets a plain `model.fit` use averaged weights: in validations, and in the model when `fit` ends.

    The optimizer is from `build_optimizer`, with an `ema_decay` above 0:

        model.compile(build_optimizer(d_model, training), ...)
        model.fit(..., callbacks=[AverageWeights()])

    The averages are in the model from the beginning of a validation, or from the end of an epoch that has none, until
    the next epoch begins. The trained weights are kept in the optimizer meanwhile, and training goes on with them.
    So `ModelCheckpoint` and `EarlyStopping` save and restore the weights that were validated. A file that
    `ModelCheckpoint` or `BackupAndRestore` has saved at any time holds both kinds of weights, and the optimizer's
    variable `averages_in_model` tells which are in the model. So a `fit` with this callback goes on from such a file,
    or after Ctrl-C, as if it had not been stopped. (A `fit` without it trains on with the weights that it finds.)

    When `fit` ends, the averages stay in the model and the trained weights are dropped, so another `fit` starts from
    the averages. (`kformer.train` does not use this callback: a run folder keeps both kinds of weights.)

    Raises:
        ValueError: The optimizer keeps no averages.
    """

    def on_train_begin(self, logs: dict | None = None) -> None:
        optimizer = inner_optimizer(self.model.optimizer)
        if not isinstance(optimizer, MovingAverage) or not optimizer.ema_decay:
            raise ValueError(
                "AverageWeights needs an optimizer that averages the weights. "
                f"Received: {type(optimizer).__name__}, ema_decay={getattr(optimizer, 'ema_decay', 0.0)}. "
                "Compile the model with build_optimizer(d_model, training) and an ema_decay above 0 in training."
            )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        inner_optimizer(self.model.optimizer).put_averages(in_model=False)

    def on_test_begin(self, logs: dict | None = None) -> None:
        inner_optimizer(self.model.optimizer).put_averages(in_model=True)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        inner_optimizer(self.model.optimizer).put_averages(in_model=True)  # if there was no validation

    def on_train_end(self, logs: dict | None = None) -> None:
        inner_optimizer(self.model.optimizer).put_averages(in_model=False)
        inner_optimizer(self.model.optimizer).assign_averages()
