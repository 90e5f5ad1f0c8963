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
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.files.blocks import file_blocks
from kformer.files.compression import compression_of, decompressed
from kformer.files.encodings import fault_of
from kformer.files.lines import lines_of


class FilePairs(abc.ABC):
    """Pairs that stand in files. They are read anew each time, and counted once."""

    _number: int | None = None

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
        return (type(self).__name__,)

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

    @contextlib.contextmanager
    def open(self) -> Iterator[Iterator[tuple[int, str]]]:
        """Gives the lines with their numbers from 1, without the characters that end them; as of `bytes`.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is damaged or not UTF-8, or has changed.
        """
        with self.bytes() as file:
            yield _lines(self.path, file)


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


def _lines(path: pathlib.Path, file: io.BufferedReader) -> Iterator[tuple[int, str]]:
    lines = (line for line in lines_of(file_blocks(file), str(path)) if line is not None)
    for number, line in enumerate(lines, 1):
        fault = fault_of(line)
        if fault is not None:
            raise ValueError(f"{path}, line {number}: {fault}.")
        yield number, line.decode("utf-8")
