"""Reads pairs of texts from files: from one file with tab-separated columns, or from two parallel files.

`kformer.files.lines` says what is read: compressed files, encodings, ends of lines.

Two checks are made of regular files, but not of named pipes. First, a compressed file is decompressed twice: once to
verify its checksums, which follow the data, and once to read its lines. Second, a file must not change while it is
read.
"""

import contextlib
import io
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence

from kformer.data.foreign_tables import ForeignTable, hint
from kformer.data.pairs import Pair
from kformer.files.blocks import file_blocks
from kformer.files.compression import compression_of, decompressed
from kformer.files.encodings import fault_of
from kformer.files.lines import lines_of
from kformer.wording import count

_BLANK_PAIR: Pair = ("", "")


def read_tsv(path: str | pathlib.Path, columns: Sequence[str] = ("source", "target")) -> list[Pair]:
    """Reads the pairs of a file with tab-separated columns, one pair in each line.

    A line that is empty or all white space gives the pair ("", ""), which `encode_pairs` skips and counts as blank.
    Quotation marks are text. A warning tells of fields that are quoted as in CSV, and of a line with names of columns.

    Args:
        path: a text file, which may be compressed.
        columns: the names of the file's columns in their order. "source" and "target" are read, the others are ignored:
            a file that names the authors in a third column is read by ("source", "target", "attribution"). A column
            "second" is the second of two texts that a classifier reads: source and second are joined by a tab.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read, all its lines are blank, or a line
            that is not blank has another number of columns.

    Examples:
        >>> read_tsv("pairs.tsv")
        [('one two', 'uno dos'), ('three', 'tres')]
    """
    if "source" not in columns or "target" not in columns or len(set(columns)) != len(columns):
        raise ValueError(
            f'columns must name "source" and "target", and each column once. Received: columns={tuple(columns)!r}. '
            'For a file with an id in its first column, pass columns=("id", "source", "target") in Python or '
            "--columns id,source,target on the command line."
        )
    table = ForeignTable(path, columns)
    with _open_lines(pathlib.Path(path)) as lines:
        pairs = [_pair(table, path, number, line, columns) for number, line in lines]
    table.warn()
    if all(pair == _BLANK_PAIR for pair in pairs):
        raise ValueError(f"{path} is empty, or all its lines are blank. Pass a file with at least one pair.")
    return pairs


def read_texts(path: str | pathlib.Path) -> list[Pair]:
    r"""Reads a file of plain text: each line is the source of a pair without a target.

    Args:
        path: a text file, which may be compressed.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, it changes while it is read, or all its lines are blank.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("verses.txt").write_text("one two\nthree\n")
        >>> read_texts("verses.txt")
        [('one two', ''), ('three', '')]
    """
    with _open_lines(pathlib.Path(path)) as lines:
        pairs = [(line, "") for _, line in lines]
    if not any(text.strip() for text, _ in pairs):
        raise ValueError(f"{path} is empty, or all its lines are blank. Pass a file with at least one text.")
    return pairs


def read_parallel(source_path: str | pathlib.Path, target_path: str | pathlib.Path) -> list[Pair]:
    r"""Reads the pairs of two files: line n of one file is the source, line n of the other one the target.

    Raises:
        FileNotFoundError: One of the files does not exist.
        ValueError: The files have different numbers of lines, or one is empty, damaged or not UTF-8, or changes while
            it is read.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("numbers.en").write_text("one\ntwo"), Path("numbers.es").write_text("uno\ndos")
        >>> read_parallel("numbers.en", "numbers.es")
        [('one', 'uno'), ('two', 'dos')]
    """
    with _open_lines(pathlib.Path(source_path)) as lines:
        sources = [line for _, line in lines]
    with _open_lines(pathlib.Path(target_path)) as lines:
        targets = [line for _, line in lines]
    if len(sources) != len(targets):
        short = min(len(sources), len(targets))
        longer = source_path if len(sources) > short else target_path
        raise ValueError(
            f"Parallel files must have the same number of lines. Received: {source_path} with "
            f"{count(len(sources), 'line')} and {target_path} with {count(len(targets), 'line')}. "
            f"Line {short + 1} of {longer} is the first without a partner: align the files again."
        )
    if not sources:
        raise ValueError(f"{source_path} and {target_path} are empty. Pass files with at least one line.")
    return list(zip(sources, targets, strict=True))


def _pair(table: ForeignTable, path: str | pathlib.Path, number: int, line: str, columns: Sequence[str]) -> Pair:
    """The texts in the columns "source" and "target" of a line."""
    if not line.strip():
        return _BLANK_PAIR
    cells = line.split("\t")
    if len(cells) != len(columns):
        raise ValueError(
            f"{path}, line {number}: {count(len(cells), 'column')} where {len(columns)} were expected "
            f"({', '.join(columns)}, split by tabs). Correct the line. If all lines are like it, name the columns, "
            'such as columns=("source", "target", "attribution") in Python or '
            f"--columns source,target,attribution on the command line.{hint(line)}"
        )
    table.look_at(number, cells)
    source = cells[columns.index("source")]
    if "second" in columns:
        source = f"{source}\t{cells[columns.index('second')]}"
    return source, cells[columns.index("target")]


@contextlib.contextmanager
def _open_lines(path: pathlib.Path) -> Iterator[Iterator[tuple[int, str]]]:
    """Gives the lines with their numbers from 1, without the characters that end them.

    The block must read all lines. If it raises a ValueError and the file has changed meanwhile, the error is about that
    change instead, because the line with the mistake may never have been in the file.
    """
    if path.is_dir() or not path.exists():  # a named pipe is accepted
        found = "is a directory" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {found}. Pass the name of a file.")
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        try:
            if stat.S_ISREG(before.st_mode):
                _check_compressed(path, file)
            yield _lines(path, file)
        except ValueError as error:
            _check_unchanged(path, file, before, error)
            raise
        _check_unchanged(path, file, before)


def _check_compressed(path: pathlib.Path, file: io.BufferedReader) -> None:
    """Decompresses a compressed file to its end, block by block, and goes back to its start."""
    if compression_of(file.peek()) is not None:
        for _ in decompressed(file_blocks(file), str(path)):
            pass
        file.seek(0)


def _check_unchanged(
    path: pathlib.Path, file: io.BufferedReader, before: os.stat_result, cause: Exception | None = None
) -> None:
    """Refuses a regular file whose size or time of modification is not that of `before`."""
    after = os.fstat(file.fileno())
    if stat.S_ISREG(before.st_mode) and (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ValueError(
            f"{path} was written to while it was read: it had {before.st_size:,} bytes before and has "
            f"{after.st_size:,} now. Wait until it is completely written, or copy it first and read the copy."
        ) from cause


def _lines(path: pathlib.Path, file: io.BufferedReader) -> Iterator[tuple[int, str]]:
    lines = (line for line in lines_of(file_blocks(file), str(path)) if line is not None)
    for number, line in enumerate(lines, 1):
        yield number, _decode(path, number, line)


def _decode(path: pathlib.Path, number: int, line: bytes) -> str:
    fault = fault_of(line)
    if fault is not None:
        raise ValueError(f"{path}, line {number}: {fault}.")
    return line.decode("utf-8")
