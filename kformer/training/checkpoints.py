"""The whole state of a training run in one file: weights, optimizer, random seeds, metrics, and `TrainingState`.

A checkpoint is one `.npz` file. It holds every variable of the model (its seed generators too, which Keras's
`.weights.h5` leaves out), of the optimizer (gradient accumulators and loss scale included) and of the metrics, in
order, and the `TrainingState` as JSON. It is written beside its target, synced to disk and renamed, so a file with the
checkpoint's name is always whole. The previous checkpoint is kept beside it, in case a disk damages the last one. The
format's checksums show damage when a checkpoint is read.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from kformer.config import TrainingConfig, TransformerConfig
from kformer.files.writing import DAMAGE, replacing
from kformer.runs.arrays import open_arrays

_STATE = "state.json"
_NOT_IN_JSON = ("metrics", "end_reason", "interrupted")  # fields of `TrainingState`


@dataclasses.dataclass
class TrainingState:
    """The progress of a run. The callbacks of a run share one object, and keep it up to date."""

    step: int = 0  # optimizer updates done
    batch: int = 0  # batches consumed: where the data stream goes on
    epoch: int = 0  # validations done: `initial_epoch` of the next `fit`
    epoch_batch: int = 0  # batches consumed since the last validation
    epoch_seconds: float = 0.0  # seconds of training since the last validation
    # Seconds of the whole run, with validations, but without the time between two processes that train it.
    seconds: float = dataclasses.field(default=0.0, compare=False)
    best: float | None = None  # the best value so far of the monitored metric
    best_loss: float | None = None  # the validation loss at the best value
    improved: float | None = None  # that value at the last validation that was an improvement for the patience
    waited: int = 0  # validations since then
    # The values of the metrics' variables in the middle of an epoch, for a resume; empty where an epoch begins.
    metrics: list[np.ndarray] = dataclasses.field(default_factory=list, compare=False)
    # The run's TransformerConfig and TrainingConfig as plain values, so that a resume can tell that a file was edited.
    transformer: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    training: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    corpus: str = dataclasses.field(default="", compare=False)  # fingerprint of the corpus, as in corpus.json
    validating: bool = False  # the batches before the next validation are consumed; the validation is not finished
    # Why the run ends, in words, written when a callback ends it; "" while it goes on. A checkpoint does not hold it.
    end_reason: str = dataclasses.field(default="", compare=False)
    # A signal asks the run to save its state and to leave `fit`, without a validation. A checkpoint does not hold it.
    interrupted: bool = dataclasses.field(default=False, compare=False)

    def note_run(self, transformer: TransformerConfig, training: TrainingConfig, corpus: str) -> None:
        """Notes the configurations of the run and the fingerprint of its corpus."""
        self.transformer, self.training, self.corpus = transformer.to_dict(), training.to_dict(), corpus

    def go_on_from(self, stored: "TrainingState") -> None:
        """Becomes equal to the state of a checkpoint."""
        vars(self).update(vars(stored))


class DamagedCheckpointError(ValueError):
    """The file is not a checkpoint, or it was damaged after it was written."""


def previous_checkpoint(path: str | pathlib.Path) -> pathlib.Path:
    """The path to which `save_checkpoint` moves the checkpoint that it replaces."""
    path = pathlib.Path(path)
    return path.with_name("previous-" + path.name)


def save_checkpoint(path: str | pathlib.Path, model: keras.Model, state: TrainingState) -> None:
    """Writes a compiled model and `state` to `path`, atomically; the file there moves to `previous_checkpoint(path)`.

    Raises:
        ValueError: The model is not compiled, or its optimizer is not built.
        FloatingPointError: A weight is not finite. The files at `path` stay as they were.
    """
    path = pathlib.Path(path)
    arrays: dict[str, Any] = {}
    for name, variable in _named_variables(model):
        array = keras.ops.convert_to_numpy(variable)
        # NumPy's format has no bfloat16; float32 represents all its values exactly.
        arrays[name] = array.astype("float32") if variable.dtype == "bfloat16" else array
        if name.startswith("model_") and not np.all(np.isfinite(arrays[name])):
            raise FloatingPointError(
                f"{variable.path} holds numbers that are not finite after update {state.step}: the training has "
                f"diverged. Nothing was written to {path}. Lower learning_rate_scale or "
                "learning_rate, or raise warmup_steps."
            )
    arrays |= {f"metrics_{number}": array for number, array in enumerate(state.metrics)}
    values = {name: value for name, value in vars(state).items() if name not in _NOT_IN_JSON}
    arrays[_STATE] = np.frombuffer(json.dumps(values).encode("utf-8"), dtype="uint8")
    with replacing(path) as partial:
        with open(partial, "wb") as file:
            np.savez(file, **arrays)
        if path.is_file():
            path.replace(previous_checkpoint(path))


def load_checkpoint(path: str | pathlib.Path, model: keras.Model) -> TrainingState:
    """Reads `path` into a compiled model of the same architecture and optimizer; returns the state.

    It checks the shapes of all variables before it assigns any.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedCheckpointError: The file is not a checkpoint, or it was damaged after it was written.
        ValueError: The checkpoint belongs to another model or optimizer.
    """
    path = pathlib.Path(path)
    try:
        with open_arrays(path) as stored:
            arrays = dict(stored)
        state = TrainingState(**json.loads(arrays.pop(_STATE).tobytes()))
        _check_names(arrays)
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise DamagedCheckpointError(
            f"{path} is not a kformer checkpoint: {error}. Name a file that save_checkpoint wrote."
        ) from error
    numbers = range(sum(name.startswith("metrics_") for name in arrays))
    state.metrics = [arrays.pop(f"metrics_{number}") for number in numbers]
    variables = dict(_named_variables(model))
    _check_fit(path, variables, arrays)
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return state


def saved_state(path: str | pathlib.Path) -> TrainingState | None:
    """The state in the last checkpoint, or in the previous one if the last cannot be read; None if neither can be.

    Metrics and weights are not read.
    """
    for file in (path, previous_checkpoint(path)):
        try:
            with open_arrays(file) as arrays:
                return TrainingState(**json.loads(arrays[_STATE].tobytes()))
        except DAMAGE:
            continue
    return None


def load_last_checkpoint(path: str | pathlib.Path, model: keras.Model) -> tuple[TrainingState, str | None]:
    """Reads the last checkpoint as `load_checkpoint` does, or the previous one if the last is damaged or missing.

    Returns:
        The state, and what was wrong with the last checkpoint, if the previous one was read.

    Raises:
        FileNotFoundError: There is no checkpoint.
        DamagedCheckpointError: Both are damaged.
        ValueError: The checkpoint belongs to another model or optimizer.
    """
    previous = previous_checkpoint(path)
    try:
        return load_checkpoint(path, model), None
    except (DamagedCheckpointError, FileNotFoundError) as error:
        if not previous.is_file():
            raise
        return load_checkpoint(previous, model), str(error)


def _named_variables(model: keras.Model) -> list[tuple[str, Any]]:
    """All variables of the model and of the optimizer, numbered, because Keras may give two variables the same name."""
    if getattr(model, "optimizer", None) is None:
        raise ValueError("A checkpoint holds the optimizer too. Call model.compile(optimizer, ...) first.")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return [(f"{group}_{index}", member) for group in groups for index, member in enumerate(groups[group])]


def _check_names(names: Iterable[str]) -> None:
    """Raises a ValueError unless the arrays are in order. The checksums of the file do not cover their names."""
    groups = {"model": 0, "optimizer": 0, "metrics": 0}
    for name in names:
        group, _, number = name.rpartition("_")
        if group not in groups or number != str(groups[group]):
            raise ValueError(f"it holds {name!r} in the wrong place")
        groups[group] += 1


def _check_fit(path: pathlib.Path, variables: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for group in ("model", "optimizer"):
        found, expected = (sum(name.startswith(group) for name in names) for names in (arrays, variables))
        if found != expected:
            raise ValueError(
                f"{path} holds {found} {group} variables, but this {group} has {expected}. "
                "Resume with the configuration that the checkpoint was written with."
            )
    for name, variable in variables.items():
        if tuple(arrays[name].shape) != tuple(variable.shape):
            raise ValueError(
                f"{path} holds shape {tuple(arrays[name].shape)} for {variable.path}, but its shape is "
                f"{tuple(variable.shape)}. Resume with the configuration that the checkpoint was written with."
            )
