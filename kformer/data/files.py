"""Reads pairs of texts from files: from one file with tab-separated columns, or from two parallel files.

Files whose names end in `.gz` or `.xz` are decompressed. Only a line feed ends a line, and a carriage return before it
is dropped. Other Unicode line separators belong to the text. A byte order mark at the start of a file is dropped.
"""

import gzip
import lzma
import pathlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from kformer.data.corpus import Pair

_BLANK_PAIR: Pair = ("", "")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_tsv(path: str | pathlib.Path, columns: Sequence[str] = ("source", "target")) -> list[Pair]:
    """Reads the pairs of a file with tab-separated columns, one pair in each line.

    A line that is empty or all white space gives the pair ("", ""), which `encode_pairs` skips and counts as blank.

    Args:
        path: a UTF-8 file, which may be compressed.
        columns: the names of the file's columns in their order. "source" and "target" are read, the others are ignored:
            a file that names the authors in a third column is read by ("source", "target", "attribution").

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not UTF-8, all its lines are blank, or a line that is not blank has another
            number of columns.
    """
    if "source" not in columns or "target" not in columns or len(set(columns)) != len(columns):
        raise ValueError(
            f'columns must name "source" and "target", and each column once. Received: columns={tuple(columns)!r}. '
            'For a file with an id in its first column, pass columns=("id", "source", "target") in Python or '
            "--columns id,source,target on the command line."
        )
    source, target = list(columns).index("source"), list(columns).index("target")
    pairs = []
    for number, line in _read_lines(pathlib.Path(path)):
        if not line.strip():
            pairs.append(_BLANK_PAIR)
            continue
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise ValueError(
                f"{path}, line {number}: {_count(len(cells), 'column')} where {len(columns)} were expected "
                f"({', '.join(columns)}, split by tabs). Mend the line. If all lines are like it, name the columns, "
                'such as columns=("source", "target", "attribution") in Python or '
                "--columns source,target,attribution on the command line."
            )
        pairs.append((cells[source], cells[target]))
    if all(pair == _BLANK_PAIR for pair in pairs):
        raise ValueError(f"{path} is empty, or all its lines are blank. Pass a file with at least one pair.")
    return pairs


def read_parallel(source_path: str | pathlib.Path, target_path: str | pathlib.Path) -> list[Pair]:
    """Reads the pairs of two files: line n of one file is the source, line n of the other one the target.

    Raises:
        FileNotFoundError: One of the files does not exist.
        ValueError: The files have different numbers of lines, or one is empty, damaged or not UTF-8.
    """
    sources = [line for _, line in _read_lines(pathlib.Path(source_path))]
    targets = [line for _, line in _read_lines(pathlib.Path(target_path))]
    if len(sources) != len(targets):
        short = min(len(sources), len(targets))
        longer = source_path if len(sources) > short else target_path
        raise ValueError(
            f"Parallel files must have the same number of lines. Received: {source_path} with "
            f"{_count(len(sources), 'line')} and {target_path} with {_count(len(targets), 'line')}. "
            f"Line {short + 1} of {longer} is the first without a partner: align the files again."
        )
    if not sources:
        raise ValueError(f"{source_path} and {target_path} are empty. Pass files with at least one line.")
    return list(zip(sources, targets, strict=True))


def _read_lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1, without the characters that end them."""
    if path.is_dir() or not path.exists():  # a named pipe is accepted
        found = "is a directory" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {found}. Pass the name of a file.")
    number = 0
    with _open(path) as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, _decode(path, number, line)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise ValueError(
                f"{path}, after line {number}: the {path.suffix} data are damaged or incomplete ({error}). "
                "Copy or download the file again."
            ) from error


def _open(path: pathlib.Path) -> IO[bytes]:
    return _OPENERS.get(path.suffix, open)(path, "rb")


def _decode(path: pathlib.Path, number: int, line: bytes) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte {line[error.start]:#04x} at position {error.start + 1} is not UTF-8. "
            "Convert the file, for example: iconv -f LATIN1 -t UTF-8."
        ) from error


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
