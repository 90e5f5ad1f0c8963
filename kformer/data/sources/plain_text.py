"""Plain texts: each line of a file is the source of a pair without a target."""

import pathlib
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.data.sources.lines import OneFile, TextLines


class TextFile(OneFile):
    r"""A file of plain text, read from the file each time: each line is the source of a pair without a target.

    Args:
        path: a text file, which may be compressed.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read or later, or all its lines are blank.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("verses.txt").write_text("one two\nthree\n")
        >>> len(TextFile("verses.txt"))
        2
    """

    _lines: TextLines

    def __init__(self, path: str | pathlib.Path) -> None:
        super().__init__(path)
        self._lines = TextLines(path)

    def __iter__(self) -> Iterator[Pair]:
        is_blank = True
        with self.bad_lines() as bad, self._lines.open(bad) as lines:
            for _, line in lines:
                if line is None:
                    continue
                is_blank = is_blank and not line.strip()
                yield line, ""
        if is_blank:
            raise ValueError(f"{self.path} is empty, or all its lines are blank. Pass a file with at least one text.")


def read_texts(path: str | pathlib.Path) -> list[Pair]:
    r"""Reads a file of plain text into a list; arguments and errors as of `TextFile`.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("verses.txt").write_text("one two\nthree\n")
        >>> read_texts("verses.txt")
        [('one two', ''), ('three', '')]
    """
    return TextFile(path).held()
