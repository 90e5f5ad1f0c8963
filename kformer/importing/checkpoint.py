"""The tensors in a folder of another toolkit: read one at a time, and written."""

import abc
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

SAFETENSORS_FILE, _PYTORCH = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"  # behind the name of a file that is divided
_POINTER = b"version https://git-lfs"
_FLOAT32 = np.dtype("<f4")
_ALIGNMENT = 64  # bytes; TensorFlow ends the process if it is given memory at another address
# The types of the format that are read, and those of NumPy; bfloat16 is the upper half of float32.
_FLOATS: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F32": _FLOAT32,
    "F64": np.dtype("<f8"),
}


class CheckpointError(ValueError):
    """A file of weights is missing, damaged, or holds something else than numbers."""


class Checkpoint(abc.ABC):
    """Tensors by their names. They stay on disk until they are read."""

    @abc.abstractmethod
    def names(self) -> Collection[str]:
        """The names of all tensors."""

    @abc.abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            KeyError: There is no such tensor.
        """

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """A tensor as a float32 array.

        Raises:
            KeyError: There is no such tensor.
            CheckpointError: Its numbers cannot be read, or are no floats.
        """

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def are_equal(self, one: str, other: str) -> bool:
        """Whether two tensors have the same shape and numbers."""
        return self.shape(one) == self.shape(other) and np.array_equal(self.read(one), self.read(other))


def open_checkpoint(folder: pathlib.Path) -> Checkpoint:
    """The weights in a folder of Hugging Face: `model.safetensors` or else `pytorch_model.bin`, each perhaps divided.

    Raises:
        FileNotFoundError: There are none.
        CheckpointError: A file is damaged, or names code.
    """
    from kformer.importing.pytorch_file import PyTorchFile

    kinds: dict[str, type[Any]] = {SAFETENSORS_FILE: SafetensorsFile, _PYTORCH: PyTorchFile}
    for name, kind in kinds.items():
        if (folder / name).is_file():
            return kind(folder / name)
        if (folder / (name + _INDEX)).is_file():
            return DividedCheckpoint(folder / (name + _INDEX), kind)
    raise FileNotFoundError(f"{folder} has no weights. Expected: {SAFETENSORS_FILE} or {_PYTORCH}.")


def check_no_pointer(path: pathlib.Path) -> None:
    """Refuses what Git LFS leaves in the place of a large file.

    Raises:
        CheckpointError: It is that.
    """
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise CheckpointError(
                f"{path} is a pointer of Git LFS, and not the file. Run `git lfs pull` in its folder."
            )


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


def aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy, with its rows one after the other at an address that TensorFlow takes."""
    if array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0:
        return array
    copy = _aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def _aligned_bytes(number: int) -> np.ndarray:
    longer = np.empty(number + _ALIGNMENT, "uint8")
    start = -longer.ctypes.data % _ALIGNMENT
    return longer[start : start + number]


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
        content = _aligned_bytes(end - begin)
        with self._path.open("rb") as file:
            file.seek(self._start + begin)
            if file.readinto(content.data) != end - begin:
                raise CheckpointError(f"{self._path} has become shorter while it was read. Import it again.")
        numbers = content.view(_FLOATS[kind]).reshape(self.shape(name))
        if kind == "F32":
            return numbers
        wide = _aligned_bytes(numbers.size * _FLOAT32.itemsize).view("<u4" if kind == "BF16" else "<f4")
        wide = wide.reshape(numbers.shape)
        np.copyto(wide, numbers, casting="same_kind")
        if kind == "BF16":  # the first half of a float32
            np.left_shift(wide, 16, out=wide)
        return wide.view(_FLOAT32)


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


class PrefixedCheckpoint(Checkpoint):
    """The tensors of another checkpoint, whose names get the same beginning.

    Args:
        prefix: The beginning.
        checkpoint: Has the tensors.
    """

    def __init__(self, prefix: str, checkpoint: Checkpoint) -> None:
        self._prefix = prefix
        self._checkpoint = checkpoint

    def names(self) -> Collection[str]:
        return [self._prefix + name for name in self._checkpoint.names()]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._checkpoint.shape(name.removeprefix(self._prefix))

    def read(self, name: str) -> np.ndarray:
        return self._checkpoint.read(name.removeprefix(self._prefix))
