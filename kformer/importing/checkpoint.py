"""The tensors of another toolkit by their names, read one at a time."""

import abc
import pathlib
from collections.abc import Collection

import numpy as np

_POINTER = b"version https://git-lfs"
_ALIGNMENT = 64  # bytes; TensorFlow ends the process if it is given memory at another address


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


def aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy, with its rows one after the other at an address that TensorFlow takes."""
    if array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0:
        return array
    copy = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def aligned_bytes(number: int) -> np.ndarray:
    """So many bytes (uint8) at an address that TensorFlow takes."""
    longer = np.empty(number + _ALIGNMENT, "uint8")
    start = -longer.ctypes.data % _ALIGNMENT
    return longer[start : start + number]


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
