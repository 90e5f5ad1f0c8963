"""Files of the package safetensors: their tensors are read one at a time, and written."""

import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from kformer.importing.checkpoint import Checkpoint, CheckpointError, aligned_bytes, check_no_pointer

SAFETENSORS_FILE = "model.safetensors"
_FLOAT32 = np.dtype("<f4")
# The types of the format that are read, and those of NumPy; bfloat16 is the upper half of float32.
_FLOATS: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F32": _FLOAT32,
    "F64": np.dtype("<f8"),
}


class SafetensorsFile(Checkpoint):
    """A file in the format of the package safetensors, which checks it.

    The numbers are read here: the package maps the file, whose pages then count as memory of this process, and so the
    weights of a model would lie in memory twice.

    Args:
        path: The file.

    Raises:
        CheckpointError: It is no such file, or it is damaged.
    """

    def __init__(self, path: pathlib.Path) -> None:
        import safetensors

        self._path = path
        check_no_pointer(path)
        try:
            with safetensors.safe_open(path, framework="numpy"):
                pass
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is no safetensors file, or it is damaged: {error}. Copy it again."
            ) from error
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self._tensors: dict[str, Any] = json.loads(file.read(length))
        self._tensors.pop("__metadata__", None)
        self._start = 8 + length

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name]["shape"])

    def read(self, name: str) -> np.ndarray:
        kind = self._tensors[name]["dtype"]
        if kind not in _FLOATS:
            raise CheckpointError(f"{name} in {self._path} is of the type {kind}. Expected: {', '.join(_FLOATS)}.")
        begin, end = self._tensors[name]["data_offsets"]
        content = aligned_bytes(end - begin)
        with self._path.open("rb") as file:
            file.seek(self._start + begin)
            if file.readinto(content.data) != end - begin:
                raise CheckpointError(f"{self._path} has become shorter while it was read. Import it again.")
        numbers = content.view(_FLOATS[kind]).reshape(self.shape(name))
        if kind == "F32":
            return numbers
        wide = aligned_bytes(numbers.size * _FLOAT32.itemsize).view("<u4" if kind == "BF16" else "<f4")
        wide = wide.reshape(numbers.shape)
        np.copyto(wide, numbers, casting="same_kind")
        if kind == "BF16":  # the first half of a float32
            np.left_shift(wide, 16, out=wide)
        return wide.view(_FLOAT32)


def write_checkpoint(folder: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes `model.safetensors` as transformers does: float32, and a note that the tensors are those of PyTorch.

    The package safetensors makes a file that only its owner may read, and wants all arrays in rows at once.

    Args:
        folder: Of the model.
        tensors: The tensors by their names.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in sorted(tensors):
        start, end = end, end + tensors[name].size * _FLOAT32.itemsize
        header[name] = {"dtype": "F32", "shape": tensors[name].shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers begin at a multiple of 8
    with (folder / SAFETENSORS_FILE).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(np.ascontiguousarray(tensors[name], _FLOAT32).data)
