"""The lines of text files, which are read anew each time, so that no file need fit into memory.

`kformer.files.lines` says what is read: compressed files, encodings, ends of lines.

Two checks are made of regular files, but not of named pipes. First, before its lines are read for the first time, a
compressed file is decompressed once to verify its checksums, which follow the data. Second, a file must not change
while it is read, nor between two readings.
"""

import abc
import contextlib
import io
import os
import pathlib
import stat
import warnings
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.files.blocks import file_blocks
from kformer.files.compression import compression_of, decompressed
from kformer.files.encodings import fault_of
from kformer.files.lines import lines_of
from kformer.wording import count

_NAMED_LINES = 10
_SAMPLE_BYTES = 1 << 20  # by which lines are estimated


class BadLines:
    """The lines of a file that cannot be read.

    Args:
        skip: Whether they are left out. If not, the first ones are named in an error when the file has been read, or at
            once if half of its lines are such.
    """

    def __init__(self, skip: bool) -> None:
        self._skip = skip
        self._count = 0
        self._first: list[str] = []

    def note(self, number: int, message: str) -> None:
        """Notes a line by its number from 1, and what is wrong with it.

        Raises:
            ValueError: It is one too many.
        """
        self._count += 1
        if self._count <= _NAMED_LINES:
            self._first.append(message)
        if self._count == _NAMED_LINES and number <= 2 * _NAMED_LINES and not self._skip:
            raise ValueError(f"{self._first[0]}\nOf the first {number} lines, {self._count} cannot be read.")

    def tell(self, again: bool) -> None:
        """Warns of what was left out.

        Args:
            again: Whether the lines have been read before, so that a warning was given then.

        Raises:
            ValueError: Nothing is to be left out.
        """
        first, number = "\n".join(self._first), count(self._count, "line")
        if self._skip and (again or not self._count):
            return
        if self._skip:
            verb = "is" if self._count == 1 else "are"
            warnings.warn(f"{number} cannot be read and {verb} left out:\n{first}", stacklevel=2)
        elif self._count == 1:
            raise ValueError(first)
        elif self._count:
            raise ValueError(
                f"{first}\n{number} cannot be read, of which the first are told. Correct them, or leave them out: "
                "skip_bad_lines=True in Python, --skip-bad-lines on the command line."
            )


class FilePairs(abc.ABC):
    """Pairs that stand in files. They are read anew each time, and counted once.

    Attributes:
        skip_bad_lines: Whether lines that cannot be read are left out; the first reading warns and names ten. False:
            they are an error, which names the first ten, too.
    """

    skip_bad_lines: bool = False
    _number: int | None = None
    _were_read: bool = False  # whether all lines have been read before
    _lines: "TextLines | None" = None  # of a file with about one line for each pair

    def estimate(self) -> int | None:
        """About how many pairs there are, without reading all of them; None if the form of the file does not tell."""
        return None if self._lines is None else self._lines.estimate()

    def held(self) -> list[Pair]:
        """All pairs, after one reading: `list(pairs)` would ask for their number first."""
        return list(iter(self))

    @property
    @abc.abstractmethod
    def files(self) -> tuple[pathlib.Path, ...]:
        """The files."""

    @property
    def reading(self) -> tuple[str, ...]:
        """What beside the files decides which pairs are read: the name of the class, and settings."""
        return (type(self).__name__, *(["skip bad lines"] if self.skip_bad_lines else []))

    @contextlib.contextmanager
    def bad_lines(self) -> Iterator[BadLines]:
        """Gives what notes the lines that cannot be read, and tells of them in the end."""
        bad = BadLines(self.skip_bad_lines)
        yield bad
        bad.tell(again=self._were_read)
        self._were_read = True

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Pair]: ...

    def __len__(self) -> int:
        if self._number is None:
            self._number = sum(1 for _ in self)
        return self._number


class OneFile(FilePairs):
    """Pairs that stand in one file.

    Args:
        path: the file.
    """

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = path

    @property
    def files(self) -> tuple[pathlib.Path, ...]:
        return (pathlib.Path(self.path),)


class StableFile:
    """A file that is read anew each time, and must stay as it is.

    Args:
        path: the file.
    """

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)
        self._read: os.stat_result | None = None  # of the file when it was first read to its end

    @property
    def were_read(self) -> bool:
        """Whether the whole file has been read before: then it is undamaged."""
        return self._read is not None

    @contextlib.contextmanager
    def bytes(self) -> Iterator[io.BufferedReader]:
        """Gives the open file.

        The block must read it to its end, or end by an exception. If it raises a ValueError and the file has changed
        meanwhile, the error is about that change instead, because what is wrong may never have been in the file.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged, or has changed.
        """
        path = self.path
        if self._read is not None and not stat.S_ISREG(self._read.st_mode):
            raise ValueError(
                f"{path} is a pipe, which can be read only once. Hold its pairs, as read_tsv, read_texts and "
                "read_parallel do."
            )
        if path.is_dir() or not path.exists():  # a named pipe is accepted
            found = "is a directory" if path.is_dir() else "does not exist"
            raise FileNotFoundError(f"{path} {found}. Pass the name of a file.")
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            if self._read is not None and _size_and_time(self._read) != _size_and_time(before):
                raise ValueError(
                    f"{path} has changed since it was first read: it had {self._read.st_size:,} bytes then and has "
                    f"{before.st_size:,} now. It is read several times: begin again, with a file that stays as it is."
                )
            try:
                if stat.S_ISREG(before.st_mode) and self._read is None:
                    _check_compressed(path, file)
                yield file
            except ValueError as error:
                _check_unchanged(path, file, before, error)
                raise
            _check_unchanged(path, file, before)
            self._read = before


class TextLines(StableFile):
    """The lines of a text file that stays as it is."""

    def estimate(self) -> int | None:
        """About how many lines there are, by those of the first MiB and the size of the file; None for a pipe."""
        if not self.path.is_file():
            return None
        with self.path.open("rb") as file:
            beginning, size = file.read(_SAMPLE_BYTES), os.fstat(file.fileno()).st_size
        number = 0
        with contextlib.suppress(ValueError):  # compressed data are cut off; the reading will tell of damage
            for _ in lines_of(file_blocks(io.BytesIO(beginning)), str(self.path)):
                number += 1
        return round(number * size / max(1, len(beginning)))

    @contextlib.contextmanager
    def open(self, bad: BadLines | None = None) -> Iterator[Iterator[tuple[int, str | None]]]:
        """Gives the lines with their numbers from 1, without the characters that end them; as of `bytes`.

        Args:
            bad: Notes lines that are not UTF-8 or have NULs; they are None. Without it, such a line is an error.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged or not UTF-8, or has changed.
        """
        with self.bytes() as file:
            yield ((number, text if fault is None else None) for number, text, fault in _lines(self.path, file, bad))

    @contextlib.contextmanager
    def open_all(self, bad: BadLines) -> Iterator[Iterator[tuple[int, str, str | None]]]:
        """As `open`, but every line is a text, in which U+FFFD stands for what is none, and its fault comes with it."""
        with self.bytes() as file:
            yield _lines(self.path, file, bad)


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
    if stat.S_ISREG(before.st_mode) and _size_and_time(before) != _size_and_time(after):
        raise ValueError(
            f"{path} was written to while it was read: it had {before.st_size:,} bytes before and has "
            f"{after.st_size:,} now. Wait until it is completely written, or copy it first and read the copy."
        ) from cause


def _size_and_time(file: os.stat_result) -> tuple[int, int]:
    return file.st_size, file.st_mtime_ns


def _lines(path: pathlib.Path, file: io.BufferedReader, bad: BadLines | None) -> Iterator[tuple[int, str, str | None]]:
    """The lines with their numbers, and what is wrong with them."""
    lines = (line for line in lines_of(file_blocks(file), str(path)) if line is not None)
    for number, line in enumerate(lines, 1):
        fault = fault_of(line)
        if fault is None:
            yield number, line.decode("utf-8"), None
            continue
        if bad is None:
            raise ValueError(f"{path}, line {number}: {fault}.")
        bad.note(number, f"{path}, line {number}: {fault}.")
        yield number, line.decode("utf-8", "replace").replace("\0", "\ufffd"), fault
