"""What a run leaves on disk: the best weights, and the last state to resume from."""

import pathlib

import keras

from kformer.training.checkpoints import TrainingState, save_checkpoint, save_weights


class KeepBest(keras.callbacks.Callback):
    """Writes the weights when the monitored loss is the best so far; stops after `patience` validations without.

    The weights are written by `kformer.training.checkpoints.save_weights`. The best loss and the counter live in
    `state`, so a resumed run goes on where it stood. Keras's `EarlyStopping` forgets both when `fit` begins.

    Args:
        path: Ends in ".weights.h5".
        state: Shared with the other callbacks.
        patience: Validations without a better loss before the run stops.
        monitor: Key in the logs; lower is better.

    Raises:
        ValueError: `path` does not end in ".weights.h5", or the logs do not have `monitor`.
    """

    def __init__(
        self, path: str | pathlib.Path, state: TrainingState, patience: int = 10, monitor: str = "val_token_loss"
    ) -> None:
        super().__init__()
        if not str(path).endswith(".weights.h5"):
            raise ValueError(f"The path of the best weights must end in .weights.h5. Received: {path}.")
        self.path = pathlib.Path(path)
        self.state = state
        self.patience = patience
        self.monitor = monitor

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        if self.monitor not in logs:
            raise ValueError(
                f"KeepBest found no {self.monitor!r} in the logs, which have: {', '.join(sorted(logs))}. "
                "Give fit validation data and compile the metric, or choose another monitor."
            )
        loss = float(logs[self.monitor])
        if self.state.best_loss is None or loss < self.state.best_loss:  # False for NaN, once there is a best
            self.state.best_loss = loss
            self.state.waited = 0
            save_weights(self.path, self.model)
            return
        self.state.waited += 1
        if self.state.waited >= self.patience:
            self.model.stop_training = True


class Checkpoint(keras.callbacks.Callback):
    """Writes `directory/checkpoint.npz` at the end of every epoch, that is after every validation.

    `fit` ends its last epoch early, but in good order, when something stops it, so the last checkpoint is written
    then too. It must come after the callbacks that change `state`.

    Args:
        directory: Made if missing.
        state: Shared with the other callbacks.

    Attributes:
        path: The file, for `kformer.training.checkpoints.load_checkpoint`.
    """

    def __init__(self, directory: str | pathlib.Path, state: TrainingState) -> None:
        super().__init__()
        self.path = pathlib.Path(directory) / "checkpoint.npz"
        self.state = state

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        save_checkpoint(self.path, self.model, self.state)
