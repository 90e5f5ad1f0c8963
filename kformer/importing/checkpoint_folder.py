"""The weights in a folder of Hugging Face, in one file or several, of either format."""

import json
import pathlib
from collections.abc import Collection
from typing import Any

import numpy as np

from kformer.importing.checkpoint import Checkpoint, CheckpointError
from kformer.importing.pytorch_file import PyTorchFile
from kformer.importing.safetensors_file import SAFETENSORS_FILE, SafetensorsFile

_PYTORCH = "pytorch_model.bin"
_INDEX = ".index.json"  # behind the name of a file that is divided


def open_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """The weights in a folder of Hugging Face: `model.safetensors` or else `pytorch_model.bin`, each perhaps divided.

    Raises:
        FileNotFoundError: There are none.
        CheckpointError: A file is damaged, or names code.
    """
    kinds: dict[str, type[Any]] = {SAFETENSORS_FILE: SafetensorsFile, _PYTORCH: PyTorchFile}
    for name, kind in kinds.items():
        if (folder / name).is_file():
            return kind(folder / name)
        if (folder / (name + _INDEX)).is_file():
            return DividedCheckpoint(folder / (name + _INDEX), kind)
    raise FileNotFoundError(f"{folder} has no weights. Expected: {SAFETENSORS_FILE} or {_PYTORCH}.")


class DividedCheckpoint(Checkpoint):
    """Several files, and an index that says in which of them each tensor is.

    Args:
        index: The file of the index.
        kind: The class that reads the other files.

    Raises:
        CheckpointError: The index or a file is damaged, or a file is missing.
    """

    def __init__(self, index: pathlib.Path, kind: type[Any]) -> None:
        try:
            self._files: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
            # A name alone, so that an index cannot lead out of its folder.
            paths = {name: index.parent / pathlib.PurePath(name).name for name in {*self._files.values()}}
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{index} is damaged: {error!r}. Copy it again.") from error
        missing = sorted(str(path) for path in paths.values() if not path.is_file())
        if missing:
            raise CheckpointError(f"{', '.join(missing)} is missing, which {index} names. Copy the whole folder.")
        self._parts: dict[str, Checkpoint] = {name: kind(path) for name, path in paths.items()}
        for name, file in self._files.items():
            if name not in self._parts[file]:
                raise CheckpointError(f"{paths[file]} lacks the tensor {name}, which {index} names. Copy it again.")

    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._parts[self._files[name]].shape(name)

    def read(self, name: str) -> np.ndarray:
        return self._parts[self._files[name]].read(name)
