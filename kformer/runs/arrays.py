"""Reads the arrays of `.npz` files."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np


@contextlib.contextmanager
def open_arrays(path: str | pathlib.Path) -> Iterator[Mapping[str, np.ndarray]]:
    """Opens an `.npz` file for the block. An array is read when the block asks for it.

    Raises:
        FileNotFoundError: There is no such file.
        Exception: One of `kformer.files.writing.DAMAGE`, here or in the block: the file is damaged.
    """
    # Opened here, because np.load would not close a file that it cannot read.
    with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        yield arrays
