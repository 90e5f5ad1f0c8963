"""Pairs from tables with a header, as spreadsheets and pandas write them: CSV, also with tabs or semicolons."""

import csv
import pathlib
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.data.sources.fields import DEFAULT_FIELDS, Fields, FieldsFile, missing_fields, pair_of
from kformer.data.sources.lines import TextLines
from kformer.wording import count

_DELIMITERS = "\t,;|"


class TableFile(FieldsFile):
    """The pairs of a table whose first row names its columns, read from the file each time.

    The columns are separated by tabs, commas, semicolons or vertical bars: by what separates the names. A field may be
    quoted as in CSV, with ends of lines, separators and doubled quotation marks in it. White space of any kind becomes
    one blank. Rows whose fields are all empty are left out.

    Args:
        path: a text file, which may be compressed.
        fields: the names of the columns of the source and of the target. With one name, the sources have no targets;
            with three, the first two are the two texts of a classifier, which are joined by a tab.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read or later, a column is missing, a row
            has another number of fields than the header, a quotation mark is not closed, or there are no rows.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("table.csv").write_text('id,en,es\\n1,"one, two","uno, dos"\\n')
        >>> list(TableFile("table.csv", ("en", "es")))
        [('one, two', 'uno, dos')]
    """

    def __init__(self, path: str | pathlib.Path, fields: Fields = DEFAULT_FIELDS) -> None:
        super().__init__(path, fields)
        self._lines = TextLines(path)

    def __iter__(self) -> Iterator[Pair]:
        with self._lines.open() as lines:
            place, first = next(((number, line) for number, line in lines if line.strip()), (0, ""))
            delimiter = _delimiter(first)
            header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
            if missing := [name for name in self.fields if name not in header]:
                raise ValueError(missing_fields(self.path, missing, header))
            if twice := [name for name in self.fields if header.count(name) > 1]:
                raise ValueError(
                    f"{self.path} has several columns {', '.join(map(repr, twice))}, and nothing says which one to "
                    "read. Rename all but one of them in its first row."
                )
            places = [header.index(name) for name in self.fields]
            rows = _rows(f"{self.path}, line", lines, place, header, delimiter)
            found = False
            for row in rows:
                found = True
                yield pair_of([row[place] for place in places])
            if not found:
                raise ValueError(f"{self.path} has no rows below its header. Pass a file with at least one pair.")


def _rows(
    where: str, lines: Iterator[tuple[int, str]], last: int, header: list[str], delimiter: str
) -> Iterator[list[str]]:
    """The rows that are not empty, each with as many fields as the header, which is line `last`."""

    def given() -> Iterator[str]:
        nonlocal last
        for number, line in lines:
            last = number
            yield f"{line}\n"

    rows = csv.reader(given(), delimiter=delimiter, strict=True)
    while True:
        begin = last + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise ValueError(
                f"{where} {begin}: {error}. Is a quotation mark not closed, or not doubled? If the marks are "
                "text, write the file as tab-separated lines without a header, which are read as they are."
            ) from error
        if row is None:
            return
        if any(row) and len(row) != len(header):
            raise ValueError(
                f"{where} {begin}: {count(len(row), 'field')} where the header names {len(header)} "
                f"({', '.join(header)}). Correct the row: a field with {delimiter!r} in it must be quoted."
            )
        if any(row):
            yield row


def _delimiter(header: str) -> str:
    """What separates the names of a header: the sign that it has most often outside of quotation marks."""
    outside = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)
