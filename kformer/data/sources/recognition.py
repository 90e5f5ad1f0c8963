"""Recognizes files by how they begin, where their suffix may say something else."""

import itertools
import pathlib

from kformer.files.blocks import file_blocks
from kformer.files.compression import compression_of, decompressed

_LOOKED_AT = 4096  # bytes
_BINARY = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow"}


def recognized(path: pathlib.Path) -> str | None:
    """The suffix that a regular file should have: `.tmx`, `.parquet` or `.arrow`; None if it is none of these."""
    if not path.is_file():
        return None
    beginning = _beginning(path)
    for mark, suffix in _BINARY.items():
        if beginning.startswith(mark):
            return suffix
    start = beginning.replace(b"\0", b"")  # also of UTF-16
    is_xml = start.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").startswith((b"<?xml", b"<!DOCTYPE", b"<tmx"))
    return ".tmx" if is_xml and b"<tmx" in start else None


def _beginning(path: pathlib.Path) -> bytes:
    """The first bytes of a file, decompressed; damage is told when the file is read."""
    with path.open("rb") as file:
        if compression_of(file.peek()) is None:
            return file.read(_LOOKED_AT)
        try:
            blocks = decompressed(file_blocks(file), str(path))
            return b"".join(block or b"" for block in itertools.islice(blocks, 2))[:_LOOKED_AT]
        except (ValueError, ImportError):
            return b""
