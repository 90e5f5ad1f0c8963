"""Recognizes tables of Excel, pandas and other programs that are not what `read_tsv` reads: quoted fields, a line with
the names of the columns, commas in place of tabs."""

import re
import warnings
from collections.abc import Iterable

from kformer.wording import count

TAB = "\t"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
# Names that people give to columns of texts, and to languages.
_NAME = re.compile(
    "id|source|target|src|tgt|trg|input|output|texts?|sentence[12]?|translation|labels?|tags?|english|spanish|french|"
    "german|italian|portuguese|russian|chinese|japanese|en|es|fr|de|it|pt|ru|zh|ja"
)


class ForeignTable:
    """What the lines of a table have shown so far.

    Args:
        path: the table, in messages.
        columns: the names that its columns have for `read_tsv`.
    """

    def __init__(self, path: object, columns: Iterable[str]) -> None:
        self._path = path
        self._columns = {*columns}
        self._lines = 0  # those that are not blank
        self._quoted = 0  # lines with a quoted field
        self._first = ""  # the first of them, in words
        self._all_quoted = True  # whether each field of each line is quoted
        self._has_doubled = False  # whether a quoted field has a quotation mark, which is written twice
        self._contradicted = False  # whether a field has quotation marks, but is not written as CSV writes it
        self._header: tuple[int, list[str]] | None = None

    def look_at(self, number: int, cells: list[str]) -> None:
        """Looks at the fields of a line that is not blank."""
        self._lines += 1
        if self._lines == 1:
            names = [cell.strip('" ').lower() for cell in cells]
            are_names = all(name in self._columns or _NAME.fullmatch(name) for name in names)
            if are_names and len({*names}) == len(names):
                self._header = (number, cells)
        quoted = [cell for cell in cells if _QUOTED.fullmatch(cell)]
        if quoted:
            self._quoted += 1
            self._first = self._first or f"line {number:,}: {quoted[0][:60]}"
            self._has_doubled |= any('""' in cell[1:-1] for cell in quoted)
        self._all_quoted &= len(quoted) == len(cells)
        self._contradicted |= any('"' in cell for cell in cells if cell not in quoted)

    def warn(self) -> None:
        """Warns of what was found, in the name of the caller of `read_tsv`."""
        if self._header is not None:
            number, cells = self._header
            warnings.warn(
                f"{self._path}, line {number}: {', '.join(map(repr, cells))} look like names of the columns, and are "
                "read as texts. If they are names, name those to read, as by --fields en,es, or remove the line: "
                f"sed {number}d FILE > NEW.",
                stacklevel=5,
            )
        if self._quoted and not self._contradicted and (self._has_doubled or self._all_quoted):
            warnings.warn(
                f"{self._path}: {self._quoted:,} of {count(self._lines, 'line')} have fields in quotation marks, as "
                f"Excel and pandas write them. The first is {self._first}. The marks are read as text. "
                f"{how_to_convert(TAB)}",
                stacklevel=5,
            )


def hint(line: str) -> str:
    """What may be the matter with a line that has the wrong number of columns, with a blank in front; "" if unknown."""
    separator = None if TAB in line else _separator(line)
    if separator is not None:
        return (
            f" The line has no tab, but {separator!r}: is it a table with {separator!r}? If its first line names the "
            f"columns, name those to read: --fields en,es. {how_to_convert(separator)}"
        )
    if '"' in line:
        return f" Fields in quotation marks may hold tabs and ends of lines. {how_to_convert(TAB)}"
    return ""


def _separator(line: str) -> str | None:
    """The sign that may separate the columns of a line without tabs: where there are quotation marks, beside one."""
    if '"' in line:
        return next((sign for sign in ",;" if f'"{sign}' in line or f'{sign}"' in line), None)
    return next((sign for sign in ",;" if sign in line), None)


def how_to_convert(separator: str) -> str:
    """A command that writes a table of this separator, which may have quoted fields, with tabs and without quotes."""
    written = separator.replace(TAB, "\\t")
    rows = f'csv.reader(sys.stdin, delimiter="{written}")'
    program = f'[print("\\t".join(" ".join(field.split()) for field in row)) for row in {rows}]'
    return f"A table of such a program is converted by: python -c 'import csv, sys; {program}' < FILE > NEW"
