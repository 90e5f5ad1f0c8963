"""Broadcasts: what process 0 sends to all other processes over the network."""

import os
import zipfile
from typing import IO

import numpy as np

from kformer.files.checksums import SUMS_FILE
from kformer.runs.folder import RunFolder
from kformer.training.checkpoints import previous_checkpoint

_BYTES_AT_ONCE = 2**26


def pack(run: RunFolder, archive: IO[bytes]) -> None:
    """Writes a zip archive of the files that a resumed run reads: no logs, no kept weights."""
    read = [*run.path.glob("*.json"), run.path / SUMS_FILE]
    read += [run.embeddings_file, run.checkpoint_file, previous_checkpoint(run.checkpoint_file)]
    for folder in (run.tokenizer_folder, *(copy.path for copy in run.copied_runs())):
        read += folder.rglob("*")
    with zipfile.ZipFile(archive, "w") as packed:
        for path in read:
            if path.is_file():
                packed.write(path, path.relative_to(run.path))


def send(file: IO[bytes]) -> None:
    """Sends all bytes of a file to the other processes. Process 0 calls it while they call `receive`."""
    left = broadcast_number(file.seek(0, os.SEEK_END))
    file.seek(0)
    while left:
        left -= len(_broadcast(np.frombuffer(file.read(min(left, _BYTES_AT_ONCE)), "uint8")))


def receive(file: IO[bytes]) -> int:
    """Writes the bytes from `send` to a file and rewinds it; returns the number of bytes."""
    size = left = broadcast_number(0)
    while left:
        data = _broadcast(np.zeros(min(left, _BYTES_AT_ONCE), "uint8"))
        left -= file.write(data.tobytes())
    file.seek(0)
    return size


def broadcast_number(number: int) -> int:
    """Returns the `number` of process 0 in all processes."""
    # It is sent as bytes, because JAX has no 64-bit integers by default.
    return int.from_bytes(_broadcast(np.frombuffer(number.to_bytes(8, "big"), "uint8")).tobytes(), "big")


def _broadcast(array: np.ndarray) -> np.ndarray:
    """Returns the `array` of process 0 in all processes; the others pass one of the same shape."""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(array))
