"""Decompresses files whose names end in `.gz` or `.xz`, and detects damaged data."""

import contextlib
import gzip
import io
import lzma
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

_BLOCK_BYTES = 1 << 16
_DAMAGE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)


def is_compressed(path: pathlib.Path) -> bool:
    """True if the name of the file ends in `.gz` or `.xz`."""
    return path.suffix in _DECOMPRESSORS


@contextlib.contextmanager
def decompressed(path: pathlib.Path, file: io.BufferedIOBase) -> Iterator[io.BufferedIOBase]:
    """Gives the content of an open file, which is the file itself if it is not compressed. The file stays open.

    A checksum follows its data in the file, so damaged data may give wrong bytes before the error is raised.

    Args:
        path: the name of the file.
        file: the same file, open for reading at its start.

    Raises:
        ValueError: The block reads compressed data that are damaged or incomplete.
    """
    if not is_compressed(path):
        yield file
        return
    try:
        with _DECOMPRESSORS[path.suffix](file) as content:
            yield content
    except _DAMAGE as error:
        raise ValueError(
            f"{path}: the {path.suffix} data are damaged or incomplete ({error}). Copy or download the file again."
        ) from error


class _XzContent(io.RawIOBase):
    """The content of all streams of an .xz file. The checksums of all streams are verified.

    `lzma.open` ignores everything after the first stream if a later stream is damaged, or if zeros stand before it.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a part of the buffer, and returns its length in bytes; 0 at the end."""
        content = b""
        while not content:
            block = b""
            if self._stream.eof:
                block = self._start_of_next_stream()
                if not block:
                    return 0
                self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._stream.needs_input:
                block = self._file.read(_BLOCK_BYTES)
                if not block:
                    raise EOFError("the file ends within a stream")
            content = self._stream.decompress(block, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _start_of_next_stream(self) -> bytes:
        """The first bytes of the next stream; b"" at the end of the file. Zeros may stand between streams."""
        block = self._stream.unused_data.lstrip(b"\0")
        while not block and (read := self._file.read(_BLOCK_BYTES)):
            block = read.lstrip(b"\0")
        return block


_DECOMPRESSORS: dict[str, Callable[[io.BufferedIOBase], io.BufferedIOBase]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    ".xz": lambda file: io.BufferedReader(_XzContent(file)),
}
