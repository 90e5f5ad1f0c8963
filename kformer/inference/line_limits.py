"""Lines that are no text that a model could answer, and what stands in the place of their answers.

A file of millions of lines has some that a program has damaged: an image in base64, a thousand dots, a whole book in
one line. A model would work on each for minutes, and its answer would mean nothing.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

from kformer.wording import count
from kformer.writing_systems import WHITESPACE, is_unspaced

_WORD = re.compile(rf"[^{WHITESPACE}]+")


class Fault(NamedTuple):
    """What is wrong with a line.

    Attributes:
        reason: For a message.
        beginning: So much of the line as a model may read.
    """

    reason: str
    beginning: bytes = b""


@dataclasses.dataclass(frozen=True)
class LineLimits:
    """Which lines a model is asked for.

    Args:
        line: Bytes of the longest line. A sentence has some hundred bytes; a longer line is divided into sentences, and
            takes as long as these.
        word: Characters of the longest word, which is what stands between white space. Chinese, Japanese, Thai and the
            like have no white space between words: their characters do not count.
        columns: How many columns a line must have, split by tabs, unless it is blank; None: any number.

    Examples:
        >>> limits = LineLimits(word=10)
        >>> limits.fault_of(b"a word"), limits.fault_of("一二三四五六七八九十百千万".encode())
        (None, None)
        >>> limits.fault_of(b"so " + 12 * b".")
        Fault(reason='a word of 12 characters, where the longest may have 10', beginning=b'so ..........')
        >>> LineLimits(columns=2).fault_of(b"no tab").reason
        '1 column, split by tabs, where 2 were expected'
    """

    line: int = 50_000
    word: int = 1_000
    columns: int | None = None

    def fault_of(self, line: bytes) -> Fault | None:
        """What is wrong with a line of UTF-8; None if a model may read it."""
        if self.columns is not None and line.strip() and line.count(b"\t") + 1 != self.columns:
            found = count(line.count(b"\t") + 1, "column")
            return Fault(f"{found}, split by tabs, where {self.columns} were expected")
        if len(line) <= min(self.word, self.line):
            return None
        text = line.decode("utf-8", "replace")
        for word in _WORD.finditer(text):
            if (length := _spaced(word[0])) > self.word:
                reason = f"a word of {length:,} characters, where the longest may have {self.word:,}"
                return Fault(reason, self._cut(text[: word.start() + _place(word[0], self.word)].encode()))
        if len(line) > self.line:
            return Fault(f"{len(line):,} bytes, where the longest line may have {self.line:,}", self._cut(line))
        return None

    def _cut(self, line: bytes) -> bytes:
        """As much of it as a model may read, without a part of a character at its end."""
        return line[: self.line].decode("utf-8", "ignore").encode() if len(line) > self.line else line


def _spaced(word: str) -> int:
    """The number of characters of scripts with white space between words."""
    return len(word) if word.isascii() else sum(not is_unspaced(character) for character in word)


def _place(word: str, most: int) -> int:
    """Where the first character stands that is one too many."""
    counts = itertools.accumulate(not is_unspaced(character) for character in word)
    return next(place for place, number in enumerate(counts) if number > most)


# From a line and its fault: the text that the model is asked for in its place, if any, and what is written otherwise.
Instead = Callable[[bytes, Fault], tuple[bytes, str]]


def _nothing(line: bytes, fault: Fault) -> tuple[bytes, str]:
    return b"", ""


def _the_line(line: bytes, fault: Fault) -> tuple[bytes, str]:
    return b"", line.decode("utf-8", "replace")


def _its_beginning(line: bytes, fault: Fault) -> tuple[bytes, str]:
    return fault.beginning, ""


# What stands in the place of the answer to a line that has none.
INSTEAD: dict[str, Instead] = {"empty": _nothing, "source": _the_line, "keep": _its_beginning}
