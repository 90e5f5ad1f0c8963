"""The whole state of a training run in one file: weights, optimizer, random seeds, and `TrainingState`.

A checkpoint is one `.npz` file. It holds every variable of the model (its seed generators too, which Keras's
`.weights.h5` leaves out) and of the optimizer (gradient accumulators and loss scale included), in order, and the
`TrainingState` as JSON. It is written beside its target, synced to disk and renamed: what bears the
checkpoint's name is whole.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

_STATE = "state.json"


@dataclasses.dataclass
class TrainingState:
    """Where a run stands. One object is shared by the callbacks of a run, which keep it up to date."""

    step: int = 0  # optimizer updates done
    batch: int = 0  # batches consumed: where the data stream goes on
    epoch: int = 0  # validations done: `initial_epoch` of the next `fit`
    best_loss: float | None = None  # the best monitored loss so far
    waited: int = 0  # validations since then


def save_checkpoint(path: str | pathlib.Path, model: keras.Model, state: TrainingState) -> None:
    """Writes a compiled model and `state` to `path`, atomically.

    Raises:
        ValueError: The model is not compiled, or its optimizer is not built.
    """
    arrays = {}
    for name, variable in _named_variables(model):
        array = keras.ops.convert_to_numpy(variable.value)
        # NumPy's format knows no bfloat16; float32 holds its every value.
        arrays[name] = array.astype("float32") if variable.dtype == "bfloat16" else array
    text = json.dumps(dataclasses.asdict(state))
    with replaced_when_whole(path) as partial, open(partial, "wb") as file:
        np.savez(file, **arrays, **{_STATE: np.frombuffer(text.encode("utf-8"), dtype="uint8")})


def load_checkpoint(path: str | pathlib.Path, model: keras.Model) -> TrainingState:
    """Reads `path` into a compiled model of the same architecture and optimizer; returns the state.

    Nothing is assigned before every variable was found to fit.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no checkpoint, or it is one of another model or optimizer.
    """
    path = pathlib.Path(path)
    try:
        # Opened here: np.load would leave a file open that it cannot read.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        state = TrainingState(**json.loads(arrays.pop(_STATE).tobytes()))
    except (zipfile.BadZipFile, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a kformer checkpoint: {error}. Name a file that save_checkpoint wrote."
        ) from error
    variables = dict(_named_variables(model))
    _check_fit(path, variables, arrays)
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return state


def save_weights(path: str | pathlib.Path, model: keras.Model) -> None:
    """Writes the weights of a functional model to `path`, a `.weights.h5`, atomically and without the optimizer.

    An uncompiled model reads them by `model.load_weights(path)`, any model by `load_weights(path, model)`.
    """
    with replaced_when_whole(path) as partial:
        _uncompiled(model).save_weights(partial)


def load_weights(path: str | pathlib.Path, model: keras.Model) -> None:
    """Reads a file of `save_weights` into a functional model, compiled or not; its optimizer stays as it is."""
    _uncompiled(model).load_weights(path)


def _uncompiled(model: keras.Model) -> keras.Model:
    """The same layers in a model never compiled: Keras keeps a compiled model's optimizer in `.weights.h5`."""
    return keras.Model(model.inputs, model.outputs)


@contextlib.contextmanager
def replaced_when_whole(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a path beside `path` to write to; synced to disk and renamed to `path` if the block ends well.

    The path given ends in the same suffixes, as some writers insist on theirs. If the block raises, `path` stays
    what it was.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial-" + path.name)
    try:
        yield partial
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)  # the renaming itself
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named_variables(model: keras.Model) -> list[tuple[str, Any]]:
    """Numbered, as the automatic names of two variables may be the same or change from model to model."""
    if getattr(model, "optimizer", None) is None:
        raise ValueError("A checkpoint holds the optimizer too. Call model.compile(optimizer, ...) first.")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return [(f"{group}_{index}", member) for group in groups for index, member in enumerate(groups[group])]


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
