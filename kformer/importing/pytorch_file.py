"""Reads the tensors of PyTorch's files without PyTorch, and without running code that such a file may hold.

A file of `torch.save` is a pickle, which names functions that whoever opens it calls. Here only those are known that
put tensors together, and none of them is called: they are replaced by descriptions of where the numbers lie.
"""

import collections
import io
import math
import pathlib
import pickle
import zipfile
from collections.abc import Callable, Collection
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from kformer.importing.checkpoint import Checkpoint, CheckpointError, check_no_pointer

# The first pickle of the files that PyTorch wrote before version 1.6. Others are ZIP archives.
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_FLOATS = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "DoubleStorage": np.dtype("<f8"),
}
_INTEGERS = {
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
_TYPES = _FLOATS | _INTEGERS


class _Storage(NamedTuple):
    """Numbers that lie in a row in the file."""

    key: str
    dtype: np.dtype
    size: int


class _Tensor(NamedTuple):
    """A tensor as a view of a storage; strides are in numbers, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PyTorchFile(Checkpoint):
    """A `pytorch_model.bin` of any version of PyTorch.

    Args:
        path: The file.

    Raises:
        CheckpointError: It is no such file, it is damaged, or it names code that is no part of a tensor.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        check_no_pointer(path)
        self._bytes_of: Callable[[_Storage], bytes]
        try:
            content = self._open_archive() if zipfile.is_zipfile(path) else self._open_old()
        except CheckpointError:
            raise
        except Exception as error:  # a damaged pickle may raise anything
            raise self._damaged(repr(error)) from error
        if not isinstance(content, dict):
            raise CheckpointError(f"{path} holds no tensors by their names. Name a file of a model's `state_dict`.")
        self._tensors = {str(name): value for name, value in content.items() if isinstance(value, _Tensor)}
        if not self._tensors:
            raise CheckpointError(
                f"{path} holds no tensors by their names, but {', '.join(map(str, [*content][:5])) or 'nothing'}. Save "
                "the model's `state_dict` alone: torch.save(model.state_dict(), path)."
            )

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def read(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        storage = tensor.storage
        if storage.dtype not in _FLOATS.values():
            raise CheckpointError(f"{name} in {self._path} holds {storage.dtype}. Expected: floats.")
        try:
            raw = self._bytes_of(storage)
        except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
            raise self._damaged(f"{name} cannot be read, {error!r}") from error
        last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
        if len(raw) != storage.size * storage.dtype.itemsize:
            raise self._damaged(f"{name} has {len(raw)} bytes")
        if math.prod(tensor.shape) and last >= storage.size:
            raise self._damaged(f"{name} reaches beyond its numbers")
        numbers = np.frombuffer(raw, storage.dtype)[tensor.offset :]
        strides = [step * storage.dtype.itemsize for step in tensor.strides]
        return np.array(np.lib.stride_tricks.as_strided(numbers, tensor.shape, strides, writeable=False), "float32")

    def _damaged(self, reason: object) -> CheckpointError:
        return CheckpointError(f"{self._path} is no file of PyTorch, or it is damaged: {reason}. Copy it again.")

    def _open_archive(self) -> Any:
        """The content of a ZIP archive: a pickle, and a file for each storage."""
        with zipfile.ZipFile(self._path) as archive:
            root = next(name for name in [*archive.namelist(), "data.pkl"] if name.endswith("data.pkl"))[
                : -len("data.pkl")
            ]
            content = _Reader(io.BytesIO(archive.read(root + "data.pkl")), self._path).load()

        def bytes_of(storage: _Storage) -> bytes:
            with zipfile.ZipFile(self._path) as archive:
                entry = archive.getinfo(f"{root}data/{storage.key}")
                if entry.compress_type != zipfile.ZIP_STORED:  # PyTorch never compresses; a bomb would
                    raise self._damaged(f"{entry.filename} is compressed")
                return archive.read(entry)

        self._bytes_of = bytes_of
        return content

    def _open_old(self) -> Any:
        """The content of an older file: pickles, and all storages behind them, each with its size before it."""
        places: dict[str, int] = {}
        with self._path.open("rb") as file:
            if _Reader(file, self._path).load() != _OLD_MAGIC:
                raise self._damaged("its first bytes are others")
            for _ in ("protocol", "properties of the machine"):
                _Reader(file, self._path).load()
            reader = _Reader(file, self._path)
            content = reader.load()
            for key in _Reader(file, self._path).load():
                storage = reader.storages[key]
                size = int.from_bytes(file.read(8), "little")
                if size != storage.size:
                    raise self._damaged(f"a storage has {size} numbers, not {storage.size}")
                places[key] = file.tell()
                file.seek(size * storage.dtype.itemsize, io.SEEK_CUR)

        def bytes_of(storage: _Storage) -> bytes:
            with self._path.open("rb") as file:
                file.seek(places[storage.key])
                return file.read(storage.size * storage.dtype.itemsize)

        self._bytes_of = bytes_of
        return content


class _Reader(pickle.Unpickler):
    """Reads one pickle, in which only the parts of tensors may stand."""

    def __init__(self, file: IO[bytes], path: pathlib.Path) -> None:
        super().__init__(file)
        self._path = path
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return _tensor if name == "_rebuild_tensor_v2" else _parameter
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise CheckpointError(
            f"{self._path} names the code {module}.{name}, which is no part of a tensor. It is not run, and the file "
            "is not read. Save the model's weights as model.safetensors, or with `torch.save(model.state_dict(), ...)`."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _, size, *_ = pid
        if not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"{dtype!r:.50} is no type of numbers")
        return self.storages.setdefault(key, _Storage(key, dtype, size))


def _tensor(storage: _Storage, offset: int, shape: tuple, strides: tuple, *_: Any) -> _Tensor:
    counts = (storage.size, offset, *shape, *strides)
    if len(shape) != len(strides) or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise pickle.UnpicklingError(f"a tensor has the shape {shape!r:.50} and the strides {strides!r:.50}")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(data: _Tensor, *_: Any) -> _Tensor:
    return data
