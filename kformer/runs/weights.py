"""Weights of a model on disk: the one place where they are saved and loaded.

A run keeps them as Keras's `.weights.h5`; a preset keeps them in a quarter of the size (`packed_weights`).
"""

import errno
import math
import pathlib
import shutil

import h5py
import keras

from kformer.files.checksums import check_file, replacing_noted
from kformer.runs.folder import RunFolder
from kformer.runs.packed_weights import load_packed_weights

_BYTES = 4  # of a float32


def save_weights(path: str | pathlib.Path, model: keras.Model) -> None:
    """Writes the weights of a functional model to `path`, a `.weights.h5`, whole or not at all, without the optimizer.

    Its checksum is noted in `SHA256SUMS` beside it. An uncompiled model reads the weights by
    `model.load_weights(path)`, any model by `load_weights_file(path, model)`.
    """
    with replacing_noted(pathlib.Path(path)) as partial:
        _check_room(partial.parent, sum(math.prod(weight.shape) * _BYTES for weight in model.weights))
        _uncompiled(model).save_weights(partial)


def load_weights_file(path: str | pathlib.Path, model: keras.Model) -> None:
    """Reads a file of `save_weights` into a functional model, compiled or not; its optimizer stays as it is.

    Raises:
        DamagedFileError: The file was damaged or edited.
        ValueError: The file holds the weights of another model.
    """
    check_file(pathlib.Path(path), "Load other weights, or restore it from a copy.")
    bare = _uncompiled(model)
    _check_number(path, bare)
    bare.load_weights(path)


def load_weights(run: RunFolder, model: keras.Model) -> None:
    """Reads a run's best weights, packed or not, into a model of its configuration, on any backend.

    Args:
        run: A run folder with weights, for example from `kformer.presets.find_preset`.
        model: From `build_transformer(run.transformer_config())`, compiled or not; its optimizer stays as it is.

    Raises:
        ValueError: The file is damaged, or the model is of another configuration.
    """
    file = run.weights_file()
    check_file(file, run.kept_weights_remedy())
    if file == run.packed_weights_file:
        load_packed_weights(file, model)
    else:
        load_weights_file(file, model)


def _check_room(folder: pathlib.Path, size: int) -> None:
    """Refuses to write to a disk with too little room, on which HDF5 may end the process.

    Raises:
        OSError: There is too little room (ENOSPC).
    """
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"No space left on device for {size:,} bytes of weights", str(folder))


def _check_number(path: str | pathlib.Path, model: keras.Model) -> None:
    """Refuses a file with more weights than the model has: Keras would leave out those of further layers."""
    names: list[str] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    stored = sum("seed_generator" not in name for name in names)  # dropout's, which a model without dropout lacks
    if stored > len(model.weights):
        raise ValueError(
            f"{path} holds the weights of another model: {stored} arrays, and this model has {len(model.weights)}. "
            "Build the model of the configuration beside the file."
        )


def _uncompiled(model: keras.Model) -> keras.Model:
    """The same layers in an uncompiled model: of a compiled one, Keras writes the optimizer to `.weights.h5`, too."""
    return keras.Model(model.inputs, model.outputs)
