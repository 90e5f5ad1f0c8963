"""The callback that writes the state from which a run is resumed, and the one that checks the folder before."""

import dataclasses
import pathlib
import time
from collections.abc import Callable

import keras
import numpy as np

from kformer.runs.folder import RunFolder
from kformer.training.callbacks.graceful_interrupt import Interrupted
from kformer.training.checkpoints import TrainingState, save_checkpoint
from kformer.training.optimizers import inner_optimizer, update_count


class Checkpoint(keras.callbacks.Callback):
    """Writes `checkpoint.npz` of a run folder at the end of every epoch (after every validation), and within epochs.

    Within an epoch it writes before a batch begins, if `minutes` have passed or a signal has come
    (`TrainingState.interrupted`). After a signal it also ends `fit` by the exception `Interrupted`. Before a validation
    `Validation` makes it write, and puts averaged weights into the model; at the end of the epoch this callback puts
    the trained weights back. If a run goes on within an epoch, this callback restores the metrics of the epoch when the
    epoch begins. Keras must have built the metrics by then. It builds them at a model's first batch, so evaluate one
    batch before such a `fit`.

    It must come last: the files that the other callbacks write at the end of an epoch must be on disk before the
    checkpoint of that end.

    Args:
        directory: The run folder, made if missing. None: nothing is written, because another process writes.
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
        self.path = None if directory is None else RunFolder(directory).checkpoint_file
        self.state = state
        self.minutes = minutes
        self.clock = clock

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._written_at = self.clock()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._batch_before, self._epoch_batch_before = self.state.batch, self.state.epoch_batch
        self._begun = 0  # batches of this `fit` in this epoch that have begun
        # Keras has just reset the metrics.
        if self.state.metrics:
            for variable, value in zip(self.model.metrics_variables, self.state.metrics, strict=True):
                _assign_sum(variable, value)
            self.state.metrics = []

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        due = self.state.interrupted or self.clock() - self._written_at >= self.minutes * 60
        if batch and due:  # before the first batch of an epoch, the last checkpoint is up to date
            self.save()
        if self.state.interrupted:
            raise Interrupted
        self._begun = batch + self.model.steps_per_execution

    def save(self, validating: bool = False) -> None:
        """Writes the state within an epoch, after the last batch that has begun.

        Args:
            validating: Whether the validation comes next.
        """
        if self.path is None:
            return
        # On JAX, Keras reports metrics late, so the shared state may be some batches old. The weights are current.
        model = self.model
        state = dataclasses.replace(
            self.state,
            step=update_count(model.optimizer),
            batch=self._batch_before + self._begun,
            epoch_batch=self._epoch_batch_before + self._begun,
            metrics=[keras.ops.convert_to_numpy(variable) for variable in model.metrics_variables],
            validating=validating,
        )
        save_checkpoint(self.path, model, state)
        self._written_at = self.clock()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        inner_optimizer(self.model.optimizer).put_averages(in_model=False)
        if self.path is not None:
            save_checkpoint(self.path, self.model, self.state)
            self._written_at = self.clock()


class CheckFolder(keras.callbacks.Callback):
    """Checks, before anything is written, that the run folder is still the one that this process owns.

    It must come before the callbacks that write.

    Args:
        check_there: Raises an error if it is not.
    """

    async_safe = True

    def __init__(self, check_there: Callable[[], None]) -> None:
        super().__init__()
        self.check_there = check_there

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self.check_there()

    def on_test_begin(self, logs: dict | None = None) -> None:
        self.check_there()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.check_there()


def _assign_sum(variable: keras.Variable, value: np.ndarray) -> None:
    """Assigns a value to a metric's variable, which under `tf.distribute` is the sum of the replicas' variables.

    The first replica gets the whole value. TensorFlow would give each replica an equal share, and would round the
    shares of a number of tokens down.
    """
    shares = getattr(variable.value, "values", None)
    if not isinstance(shares, tuple):
        variable.assign(value)
        return
    for number, share in enumerate(shares):
        share.assign(np.zeros_like(value) if number else value)
