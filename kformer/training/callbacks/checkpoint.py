"""What a run leaves on disk: the best weights, and the last state to resume from."""

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable

import keras
import numpy as np

from kformer.monitors import MONITORS, Monitor
from kformer.runs.weights import save_weights
from kformer.training.callbacks.ends_run import EndsRun
from kformer.training.checkpoints import TrainingState, save_checkpoint
from kformer.training.optimizers import update_count


class KeepBest(EndsRun):
    """Writes the weights when the monitored figure is the best so far; stops after `patience` validations without one.

    The weights are written by `kformer.runs.weights.save_weights`. The best figure and the counter live in
    `state`, so a resumed run goes on where it stood. Keras's `EarlyStopping` forgets both when `fit` begins.

    Args:
        path: Ends in ".weights.h5". None: nothing is written, as another process does it.
        state: Shared with the other callbacks.
        patience: Validations without a better figure before the run stops.
        monitor: The figure, by default the validation loss.

    Raises:
        ValueError: `path` does not end in ".weights.h5", or the logs do not have the figure.
    """

    def __init__(
        self,
        path: str | pathlib.Path | None,
        state: TrainingState,
        patience: int = 10,
        monitor: Monitor = MONITORS["loss"],
    ) -> None:
        super().__init__(state)
        if path is not None and not str(path).endswith(".weights.h5"):
            raise ValueError(f"The path of the best weights must end in .weights.h5. Received: {path}.")
        self.path = path
        self.patience = patience
        self.monitor = monitor
        validations = "1 validation" if patience == 1 else f"{patience} validations"
        self.reason = f"{validations} brought no better {monitor.label}"

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        logs = logs or {}
        if self.monitor.log_key not in logs:
            raise ValueError(
                f"KeepBest found no {self.monitor.log_key!r} in the logs, which have: {', '.join(sorted(logs))}. "
                "Give fit validation data and compile the metric, or choose another monitor."
            )
        value = float(logs[self.monitor.log_key])
        if self._is_better(value):
            if self.path is not None:
                save_weights(self.path, self.model)
            self.state.best = value
            self.state.waited = 0
            return
        self.state.waited += 1
        if self.state.waited >= self.patience:
            self.request_stop()

    def _is_better(self, value: float) -> bool:
        best = self.state.best
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        return value > best if self.monitor.mode == "max" else value < best


class KeepLast(keras.callbacks.Callback):
    """Writes the weights after every validation, and removes all but the last ones.

    Args:
        directory: Gets files `step-<number of updates>.weights.h5`.
        state: Shared with the other callbacks; `TrackState` must come before.
        number: How many are kept; 0: none.
    """

    def __init__(self, directory: str | pathlib.Path, state: TrainingState, number: int = 5) -> None:
        super().__init__()
        self.directory = pathlib.Path(directory)
        self.state = state
        self.number = number

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.number > 0:
            save_weights(self.directory / f"step-{self.state.step:09}.weights.h5", self.model)
        kept = sorted(self.directory.glob("step-*.weights.h5"))
        for file in kept[: max(0, len(kept) - self.number)]:
            file.unlink()


class Checkpoint(keras.callbacks.Callback):
    """Writes `directory/checkpoint.npz` at the end of every epoch, that is after every validation, and in between.

    In between it writes before a batch begins, if `minutes` have passed. A run that goes on from such a checkpoint also
    goes on with the metrics of the epoch: this callback restores them when the epoch begins. Keras makes the metrics at
    a model's first batch, so evaluate one batch before such a `fit`.

    It must come last, so that everything that the others write at the end of an epoch is on disk before the checkpoint
    says that the epoch is over.

    Args:
        directory: Made if missing. None: nothing is written, as another process does it.
        state: Shared with the other callbacks.
        minutes: Approximate time between two checkpoints.
        clock: Returns the time in seconds; tests replace it.

    Attributes:
        path: The file, for `kformer.training.checkpoints.load_last_checkpoint`, or None.
    """

    async_safe = True

    def __init__(
        self,
        directory: str | pathlib.Path | None,
        state: TrainingState,
        minutes: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.path = None if directory is None else pathlib.Path(directory) / "checkpoint.npz"
        self.state = state
        self.minutes = minutes
        self.clock = clock

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._written_at = self.clock()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._batch_before, self._epoch_batch_before = self.state.batch, self.state.epoch_batch
        # Keras has just reset the metrics.
        if self.state.metrics:
            for variable, value in zip(self.model.metrics_variables, self.state.metrics, strict=True):
                _assign_sum(variable, value)
            self.state.metrics = []

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if self.path is None or batch == 0 or self.clock() - self._written_at < self.minutes * 60:
            return
        # On JAX, Keras's figures come late and the shared state lags behind, but the weights do not.
        model = self.model
        state = dataclasses.replace(
            self.state,
            step=update_count(model.optimizer),
            batch=self._batch_before + batch,
            epoch_batch=self._epoch_batch_before + batch,
            metrics=[keras.ops.convert_to_numpy(variable) for variable in model.metrics_variables],
        )
        save_checkpoint(self.path, model, state)
        self._written_at = self.clock()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.path is not None:
            save_checkpoint(self.path, self.model, self.state)
            self._written_at = self.clock()


def _assign_sum(variable: keras.Variable, value: np.ndarray) -> None:
    """Assigns to a metric's variable, which under `tf.distribute` is the sum of the replicas' variables.

    TensorFlow would give each replica an equal share, and round a share of a number of tokens down.
    """
    shares = getattr(variable.value, "values", None)
    if not isinstance(shares, tuple):
        variable.assign(value)
        return
    for number, share in enumerate(shares):
        share.assign(np.zeros_like(value) if number else value)
