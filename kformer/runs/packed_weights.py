"""Weights in a quarter of their size, for models that are passed on: matrices in signed bytes, vectors as they are.

A packed file is an `.npz` with the array of every weight under the weight's path. A matrix is int8, in steps of
`PATH/scale`: one float32 for each row, or one for each column, whichever has the smaller error. The largest number of
each row (or column) is a whole number of steps, at most 127, so it is kept. The error of every other number is at most
half a step.

Shape letters: M rows, K columns.
"""

import pathlib
from typing import Any

import keras
import numpy as np

from kformer.files.writing import DAMAGE, replacing
from kformer.runs.arrays import open_arrays

MOST_STEPS = 127  # the largest n for which n and -n are signed bytes
_SCALE = "/scale"


def save_packed_weights(path: str | pathlib.Path, model: keras.Model, steps: int = MOST_STEPS) -> float:
    """Writes the weights of a model to `path`, an `.npz`, atomically. The same weights give the same bytes.

    Args:
        path: The file.
        model: Any model whose weights have paths of their own.
        steps: Number of steps from zero to the largest number of a row or column. Half as many steps make the
            compressed file about a tenth smaller and double the error.

    Returns:
        The relative error of the packed weights: the root mean square of their differences from the model's weights,
        divided by the root mean square of the model's weights.

    Raises:
        ValueError: A weight is not finite, or `steps` is not from 1 to 127.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be from 1 to {MOST_STEPS}. Received: steps={steps}.")
    arrays: dict[str, Any] = {}
    lost = total = 0.0
    for weight in model.weights:
        array = keras.ops.convert_to_numpy(weight).astype("float32")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{weight.path} holds numbers that are not finite. Pack weights of a run that went well.")
        packed = _pack(weight.path, array, steps)
        lost += np.sum((_unpack(packed)[weight.path] - array) ** 2, dtype="float64")
        total += np.sum(array**2, dtype="float64")
        arrays |= packed
    with replacing(path) as partial:
        np.savez_compressed(partial, **arrays)
    return float(np.sqrt(lost / total))


def load_packed_weights(path: str | pathlib.Path, model: keras.Model) -> None:
    """Reads a file of `save_packed_weights` into a model of the same architecture, as float32, on any backend.

    It checks the shapes of all weights before it assigns any.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, or holds the weights of another model.
    """
    arrays = _unpack(_read(pathlib.Path(path)))
    found = {name: array.shape for name, array in arrays.items()}
    expected = {weight.path: tuple(weight.shape) for weight in model.weights}
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"{path} holds the weights of another model: {name} has the shape {found.get(name)} there, "
                f"{expected.get(name)} in this model. Build the model of the configuration beside the file."
            )
    for weight in model.weights:
        weight.assign(arrays[weight.path])


def _pack(name: str, array: np.ndarray, steps: int) -> dict[str, np.ndarray]:
    """The arrays that the file holds for a weight."""
    if array.ndim != 2:
        return {name: array}
    by_row, by_column = (_round(name, array, axis, steps) for axis in (1, 0))
    return min(by_row, by_column, key=lambda packed: np.sum((_unpack(packed)[name] - array) ** 2))


def _round(name: str, matrix: np.ndarray, axis: int, steps: int) -> dict[str, np.ndarray]:
    """(M, K) float32 to (M, K) int8, and (M, 1) or (1, K) float32 scales, one for the numbers along `axis`."""
    largest = np.abs(matrix).max(axis=axis, keepdims=True)
    scale = np.where(largest > 0, largest / np.float32(steps), np.float32(1))
    return {name: np.round(matrix / scale).astype("int8"), name + _SCALE: scale}


def _unpack(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every weight as float32."""
    one = np.float32(1)
    # A weight may itself be called "scale", as in RMS normalization.
    names = [name for name in arrays if not (name.endswith(_SCALE) and name.removesuffix(_SCALE) in arrays)]
    return {name: arrays[name] * arrays.get(name + _SCALE, one) for name in names}


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        with open_arrays(path) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(f"{path} is damaged: {error}. Pack the run again, or install kformer again.") from error
