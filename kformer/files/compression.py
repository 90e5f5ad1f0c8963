"""Compressed data: recognized by their first bytes, whatever the name of the file, and decompressed."""

import bz2
import lzma
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from kformer.files.blocks import Block, is_recognized, split_beginning

_BEGINNINGS = {
    b"\x1f\x8b": "gzip",
    **{b"BZh%d" % level: "bzip2" for level in range(1, 10)},
    b"\xfd7zXZ\0": "xz",
    b"PK\x03\x04": "zip",
    b"(\xb5/\xfd": "zstd",
    **{bytes([kind, *b"*M\x18"]): "zstd" for kind in range(0x50, 0x60)},  # a frame to skip, as pzstd writes
}
SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise ImportError("Data compressed by zstd need the package zstandard. Run: pip install zstandard") from error
    return _Zstd(zstandard)


class _Zstd:
    """A decompressor of zstd whose errors are those of the others."""

    def __init__(self, zstandard: Any) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=_WIDEST_WINDOW).decompressobj()
        self._error = zstandard.ZstdError

    eof = property(lambda self: self._stream.eof)
    unused_data = property(lambda self: self._stream.unused_data)

    def decompress(self, piece: bytes) -> bytes:
        try:
            return self._stream.decompress(piece)
        except self._error as error:
            raise EOFError(str(error)) from error


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    "zstd": _zstd,
}
_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)
_WIDEST_WINDOW = 1 << 31  # bytes; `zstd --long=31` uses so much memory, too
_PIECE_BYTES = 1 << 12  # decompressed at once: the content of a piece may be a thousand times as long


def compression_of(beginning: bytes) -> str | None:
    """The name of the compression of data with these first bytes, of which there are at least six; None: there is none.

    Examples:
        >>> compression_of(b"\\x1f\\x8b\\x08\\0\\0\\0"), compression_of(b"one two")
        ('gzip', None)
    """
    return next((kind for start, kind in _BEGINNINGS.items() if beginning.startswith(start)), None)


def decompressed(blocks: Iterator[Block], name: str) -> Iterator[Block]:
    """The content of data that may be compressed by gzip, bzip2, xz or zstd, with a None wherever `blocks` has one.

    A checksum follows its data, so damaged data may give wrong bytes before the error is raised.

    Args:
        blocks: from `kformer.files.blocks`.
        name: what they are called in messages. A file that is named as compressed must be compressed.

    Raises:
        ValueError: The data are damaged, incomplete, or compressed in another way.
    """
    beginning, blocks = split_beginning(blocks, lambda beginning: is_recognized(beginning, _BEGINNINGS))
    kind = compression_of(beginning)
    named = SUFFIXES.get(pathlib.PurePath(name).suffix.lower())
    if kind is None and named is not None:
        raise ValueError(_damaged(name, named, "they begin in another way") + " If it is plain text, rename it.")
    if kind is not None and kind not in _DECOMPRESSORS:
        raise ValueError(
            f"{name} is compressed by {kind}, which is not read. Decompress it first, or save it as text, if it is a "
            "table or a document of an office program."
        )
    yield from blocks if kind is None else _content(blocks, kind, name)


def _content(blocks: Iterator[Block], kind: str, name: str) -> Iterator[Block]:
    """The content of compressed data, which may consist of several streams (`cat a.gz b.gz`) with zeros after them."""
    stream = _DECOMPRESSORS[kind]()
    for block in blocks:
        if block is None:
            yield None
        rest = block or b""
        while rest:
            if stream.eof:
                rest = rest.lstrip(b"\0")
                stream = _DECOMPRESSORS[kind]() if rest else stream
                continue
            piece, rest = rest[:_PIECE_BYTES], rest[_PIECE_BYTES:]
            try:
                content = stream.decompress(piece)
            except _DAMAGE as error:
                raise ValueError(_damaged(name, kind, str(error))) from error
            rest = stream.unused_data + rest
            if content:
                yield content
    if not stream.eof:
        raise ValueError(_damaged(name, kind, "they end within a stream"))


def _damaged(name: str, kind: str, reason: str) -> str:
    return f"{name}: the {kind} data are damaged or incomplete ({reason}). Copy or download the file again."
