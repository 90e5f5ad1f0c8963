"""Pairs from tables with a header, as spreadsheets and pandas write them: CSV, also with tabs or semicolons."""

import csv
import pathlib
import re
import warnings
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.data.sources.fields import DEFAULT_FIELDS, Fields, FieldsFile, missing_fields, pair_of
from kformer.data.sources.lines import BadLines, TextLines
from kformer.wording import count

_DELIMITERS = "\t,;|"
_NAMED_DELIMITER = re.compile(r'\s*"?sep=(.)"?\s*')
csv.field_size_limit(1 << 24)  # characters; by default there are 131,072, and documents may have more


class TableFile(FieldsFile):
    """The pairs of a table whose first row names its columns, read from the file each time.

    The columns are separated by tabs, commas, semicolons or vertical bars: by what separates the names. A first line
    such as `sep=;`, which Excel writes, says it. A field may be quoted as in CSV, with ends of lines, separators and
    doubled quotation marks in it. White space of any kind becomes one blank. Lines without anything are left out.

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

    _lines: TextLines

    def __init__(self, path: str | pathlib.Path, fields: Fields = DEFAULT_FIELDS) -> None:
        super().__init__(path, fields)
        self._lines = TextLines(path)

    def __iter__(self) -> Iterator[Pair]:
        with self.bad_lines() as bad, self._lines.open_all(bad) as lines:
            place, first, _ = next((line for line in lines if line[1].strip()), (0, "", None))
            named = _NAMED_DELIMITER.fullmatch(first)
            if named:
                place, first, _ = next((line for line in lines if line[1].strip()), (0, "", None))
            if not first:
                raise ValueError(f"{self.path} is empty. Pass a file with at least one pair.")
            delimiter = named[1] if named else _delimiter(first, self.fields)
            header = _header(first, delimiter)
            if missing := [name for name in self.fields if name not in header]:
                raise ValueError(missing_fields(self.path, missing, header))
            if twice := [name for name in self.fields if header.count(name) > 1]:
                raise ValueError(
                    f"{self.path} has several columns {', '.join(map(repr, twice))}, and nothing says which one to "
                    "read. Rename all but one of them in its first row."
                )
            places = [header.index(name) for name in self.fields]
            rows = _Rows(f"{self.path}, line", lines, place, header, delimiter, bad)
            found = False
            for row in rows:
                found = True
                yield pair_of([row[place] for place in places])
            _warn_of_open_mark(self.path, rows.long)
            if not found:
                raise ValueError(f"{self.path} has no rows below its header. Pass a file with at least one pair.")


class _Rows:
    """The rows below a header, each with as many fields. Lines without anything are no rows.

    Args:
        where: The beginning of messages.
        lines: With their numbers, and what is wrong with them: a row with such a line is left out.
        last: The line of the header.
        header: The names of the columns.
        delimiter: What separates the fields.
        bad: Notes rows with another number of fields.

    Attributes:
        long: The line of the first row that has a field of several lines, each of which could be a row; None: none.
    """

    def __init__(
        self,
        where: str,
        lines: Iterator[tuple[int, str, str | None]],
        last: int,
        header: list[str],
        delimiter: str,
        bad: BadLines,
    ) -> None:
        self._where, self._lines, self._last = where, lines, last
        self._header, self._delimiter, self._bad = header, delimiter, bad
        self.long: int | None = None
        self._first: int | None = None  # line of the row that is read
        self._is_bad = False  # whether a line of this row cannot be read

    def _given(self) -> Iterator[str]:
        for number, line, fault in self._lines:
            self._last = number
            self._is_bad = self._is_bad or fault is not None
            self._first = self._first or number
            yield f"{line}\n"

    def __iter__(self) -> Iterator[list[str]]:
        rows = csv.reader(self._given(), delimiter=self._delimiter, strict=True)
        while True:
            self._first, self._is_bad = None, False
            try:
                row = next(rows, None)
            except csv.Error as error:
                raise ValueError(
                    f"{self._where} {self._first or self._last}: {_shown(str(error))}. Is a quotation mark not closed, "
                    "or not doubled? If the marks are text, write the file as tab-separated lines without a header, "
                    "which are read as they are."
                ) from error
            if row is None:
                return
            if self._is_bad:  # it was noted when it was read
                continue
            begin = self._first or self._last
            if any(row) and len(row) != len(self._header):
                self._bad.note(
                    begin,
                    f"{self._where} {begin}: {count(len(row), 'field')} where the header names {len(self._header)} "
                    f"({', '.join(self._header)}). Correct the row: a field with {self._delimiter!r} in it must be "
                    "quoted.",
                )
                continue
            if self.long is None and any(self._holds_rows(field) for field in row):
                self.long = begin
            if row:
                yield row if len(row) == len(self._header) else [""] * len(self._header)

    def _holds_rows(self, field: str) -> bool:
        """Whether all lines of a field but the last one could be rows, of which there are three lines at least."""
        *lines, _ = field.split("\n")
        return len(lines) > 1 and all(line.count(self._delimiter) == len(self._header) - 1 > 0 for line in lines)


def _warn_of_open_mark(path: object, line: int | None) -> None:
    if line is not None:
        warnings.warn(
            f"{path}, line {line}: a quoted field goes on over further lines, which look like rows of their own. Is a "
            "quotation mark not closed there? Then rows are lost: correct it.",
            stacklevel=2,
        )


def _header(line: str, delimiter: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]


def _delimiter(header: str, fields: Fields) -> str:
    """What separates the names of a header: a sign with which it has the fields, or else the most frequent one.

    Signs within quotation marks do not count.
    """
    for sign in _DELIMITERS:
        if sign in header and {*fields} <= {*_header(header, sign)}:
            return sign
    outside = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


def _shown(message: str) -> str:
    """A message of the module csv, with the name of a tab in place of a tab."""
    return message.replace("\t", "\\t")
