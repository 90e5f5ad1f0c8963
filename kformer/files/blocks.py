"""The bytes of files and pipes, block by block."""

import itertools
import os
import select
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

# Some bytes; or None: no more have come for now, and the next ones may take long.
Block = bytes | None

_BLOCK_BYTES = 1 << 16
_PAUSE = 0.02  # seconds without a byte, after which nobody waits for more


def file_blocks(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file from its present place to its end."""
    while block := file.read(_BLOCK_BYTES):
        yield block


def pipe_blocks(stream: BinaryIO) -> Iterator[Block]:
    """The bytes of a stream that another program or a person writes to, as soon as they come.

    Args:
        stream: such as `sys.stdin.buffer`. Nothing may have been read from it, because its buffer is not looked at.
    """
    try:
        descriptor = stream.fileno()
    except OSError:  # a stream in memory
        yield from file_blocks(stream)
        return
    while True:
        if not select.select([descriptor], [], [], _PAUSE)[0]:
            yield None
        block = os.read(descriptor, _BLOCK_BYTES)
        if not block:
            return
        yield block


def split_beginning(blocks: Iterator[Block], is_enough: Callable[[bytes], bool]) -> tuple[bytes, Iterator[Block]]:
    """The first bytes, as many as `is_enough` asks for or all there are; and all blocks, these bytes included."""
    beginning = b""
    for block in blocks:
        beginning += block or b""
        if is_enough(beginning):
            break
    return beginning, itertools.chain([beginning], blocks)


def is_recognized(beginning: bytes, marks: Iterable[bytes]) -> bool:
    """False as long as further bytes could still make one of the marks."""
    return not any(mark.startswith(beginning) for mark in marks)
