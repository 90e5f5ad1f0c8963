"""The lines of files and pipes.

Data that are compressed by gzip, bzip2 or xz are decompressed, whatever the name of the file. Text in UTF-16 or UTF-32
with a byte order mark becomes UTF-8, and byte order marks are dropped.

Only a line feed ends a line, and a carriage return before it is dropped. Other Unicode line separators belong to the
text. If carriage returns but no line feed stand in the first MiB, as in files of old Macintosh programs, every carriage
return ends a line. So a carriage return within a line of other files stays text.
"""

import codecs
from collections.abc import Iterator

from kformer.files.blocks import Block, split_beginning
from kformer.files.compression import decompressed
from kformer.files.encodings import as_utf8, check_is_text

_LONGEST_BEGINNING = 1 << 20  # bytes


def lines_of(blocks: Iterator[Block], name: str) -> Iterator[bytes | None]:
    r"""The lines, without the characters that end them, in UTF-8 if the data are text.

    Args:
        blocks: from `kformer.files.blocks`. After a None, the lines that are complete come, and then a None.
        name: what the data are called in messages, such as the path of the file.

    Raises:
        ValueError: The data are damaged, compressed in a way that is not read, or UTF-16 that is not valid or has no
            byte order mark.

    Examples:
        >>> list(lines_of(iter([b"one\r\nt", b"wo\n", None, b"three"]), "numbers.txt"))
        [b'one', b'two', None, b'three']
    """
    blocks = as_utf8(decompressed(blocks, name), name)
    beginning, blocks = split_beginning(blocks, lambda text: b"\n" in text or len(text) >= _LONGEST_BEGINNING)
    check_is_text(beginning, name)
    end = b"\r" if b"\r" in beginning[:-1] and b"\n" not in beginning else b"\n"
    parts: list[bytes] = []  # of the line that is not complete yet
    for block in blocks:
        if block is None:
            yield None
            continue
        first, *more = block.split(end)
        parts.append(first)
        for part in more:
            yield _bare(b"".join(parts))
            parts = [part]
    if last := b"".join(parts):
        yield _bare(last)


def _bare(line: bytes) -> bytes:
    """The line without a carriage return behind it, and without the byte order mark of a file that was joined."""
    return line.removesuffix(b"\r").removeprefix(codecs.BOM_UTF8)
