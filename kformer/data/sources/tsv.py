"""Pairs from a file with tab-separated columns."""

import pathlib
from collections.abc import Iterator, Sequence

from kformer.data.pairs import Pair
from kformer.data.sources.foreign_tables import ForeignTable, hint
from kformer.data.sources.lines import OneFile, TextLines
from kformer.wording import count

_BLANK_PAIR: Pair = ("", "")


class TsvFile(OneFile):
    """The pairs of a file with tab-separated columns, one pair in each line, read from the file each time.

    A line that is empty or all white space gives the pair ("", ""), which `encode_pairs` skips and counts as blank.
    Quotation marks are text. The first reading warns of fields that are quoted as in CSV, and of a line with names of
    columns.

    Args:
        path: a text file, which may be compressed.
        columns: the names of the file's columns in their order. "source" and "target" are read, the others are ignored:
            a file that names the authors in a third column is read by ("source", "target", "attribution"). A column
            "second" is the second of two texts that a classifier reads: source and second are joined by a tab.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read or later, all its lines are blank, or
            a line that is not blank has another number of columns.

    Examples:
        >>> pairs = TsvFile("pairs.tsv")
        >>> len(pairs), next(iter(pairs))
        (2, ('one two', 'uno dos'))
    """

    _lines: TextLines

    def __init__(self, path: str | pathlib.Path, columns: Sequence[str] = ("source", "target")) -> None:
        if "source" not in columns or "target" not in columns or len(set(columns)) != len(columns):
            raise ValueError(
                f'columns must name "source" and "target", and each column once. Received: columns={tuple(columns)!r}. '
                'For a file with an id in its first column, pass columns=("id", "source", "target") in Python or '
                "--columns id,source,target on the command line."
            )
        super().__init__(path)
        self.columns = tuple(columns)
        self._lines = TextLines(path)

    @property
    def reading(self) -> tuple[str, ...]:
        return (*super().reading, *self.columns)

    def __iter__(self) -> Iterator[Pair]:
        table = None if self._lines.were_read else ForeignTable(self.path, self.columns)
        is_blank = True
        with self.bad_lines() as bad, self._lines.open(bad) as lines:
            for number, line in lines:
                if line is None:
                    continue
                cells = line.split("\t")
                if line.strip() and len(cells) != len(self.columns):
                    bad.note(number, self._wrong_number(number, line, cells))
                    continue
                pair = self._pair(number, cells, table) if line.strip() else _BLANK_PAIR
                is_blank = is_blank and pair == _BLANK_PAIR
                yield pair
        if table is not None:
            table.warn()
        if is_blank:
            raise ValueError(f"{self.path} is empty, or all its lines are blank. Pass a file with at least one pair.")

    def _wrong_number(self, number: int, line: str, cells: list[str]) -> str:
        return (
            f"{self.path}, line {number}: {count(len(cells), 'column')} where {len(self.columns)} were expected "
            f"({', '.join(self.columns)}, split by tabs). Correct the line. If all lines are like it, name the "
            'columns, such as columns=("source", "target", "attribution") in Python or '
            f"--columns source,target,attribution on the command line.{hint(line)}"
        )

    def _pair(self, number: int, cells: list[str], table: ForeignTable | None) -> Pair:
        """The texts in the columns "source" and "target" of a line."""
        columns = self.columns
        if table is not None:
            table.look_at(number, cells)
        source = cells[columns.index("source")]
        if "second" in columns:
            source = f"{source}\t{cells[columns.index('second')]}"
        return source, cells[columns.index("target")]


def read_tsv(path: str | pathlib.Path, columns: Sequence[str] = ("source", "target")) -> list[Pair]:
    """Reads the pairs of a file with tab-separated columns into a list; arguments and errors as of `TsvFile`.

    Examples:
        >>> read_tsv("pairs.tsv")
        [('one two', 'uno dos'), ('three', 'tres')]
    """
    return TsvFile(path, columns).held()
