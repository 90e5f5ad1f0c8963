"""Pairs from two parallel files: line n of one file is the source, line n of the other one the target."""

import concurrent.futures
import itertools
import pathlib
import threading
from collections.abc import Iterator

from kformer.data.pairs import Pair
from kformer.data.sources.lines import FilePairs, TextLines
from kformer.wording import count

_NO_LINE = (0, "")


class ParallelFiles(FilePairs):
    r"""The pairs of two files with the same number of lines, read from the files each time.

    Args:
        source_path, target_path: text files, which may be compressed.

    Raises:
        FileNotFoundError: One of the files does not exist.
        ValueError: The files have different numbers of lines, or one is empty, damaged or not UTF-8, or changes while
            it is read or later.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("numbers.en").write_text("one\ntwo"), Path("numbers.es").write_text("uno\ndos")
        >>> len(ParallelFiles("numbers.en", "numbers.es"))
        2
    """

    def __init__(self, source_path: str | pathlib.Path, target_path: str | pathlib.Path) -> None:
        self.source_path = source_path
        self.target_path = target_path
        self._sources, self._targets = TextLines(source_path), TextLines(target_path)

    @property
    def files(self) -> tuple[pathlib.Path, ...]:
        return pathlib.Path(self.source_path), pathlib.Path(self.target_path)

    def estimate(self) -> int | None:
        return self._sources.estimate()

    def __iter__(self) -> Iterator[Pair]:
        last_source = last_target = 0  # the numbers of the last lines
        found = False
        with self.bad_lines() as bad, self._sources.open(bad) as sources, self._targets.open(bad) as targets:
            lines = itertools.zip_longest(sources, targets, fillvalue=_NO_LINE)
            for (source_number, source), (target_number, target) in lines:
                last_source, last_target = source_number or last_source, target_number or last_target
                if source_number and target_number and source is not None and target is not None:
                    found = True
                    yield source, target
            self._check_lengths(last_source, last_target)
            if not found and self.skip_bad_lines:
                raise ValueError(
                    f"No line of {self.source_path} and {self.target_path} can be read in both. Convert the files to "
                    "UTF-8."
                )

    def held(self) -> list[Pair]:
        """All pairs, after one reading.

        The files are read side by side and not in step: they may be pipes that another program writes one after the
        other, in either order.
        """
        targets: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
        if self.skip_bad_lines:
            return super().held()
        # The program can end, for example by Ctrl-C, while a daemon waits for the other end of a pipe.
        threading.Thread(target=_read_into, args=(targets, self._targets), daemon=True).start()
        sources = _texts(self._sources)
        self._check_lengths(len(sources), len(targets.result()))
        return list(zip(sources, targets.result(), strict=True))

    def _check_lengths(self, sources: int, targets: int) -> None:
        if sources != targets:
            longer = self.source_path if sources > targets else self.target_path
            raise ValueError(
                f"Parallel files must have the same number of lines. Received: {self.source_path} with "
                f"{count(sources, 'line')} and {self.target_path} with {count(targets, 'line')}. "
                f"Line {min(sources, targets) + 1} of {longer} is the first without a partner: align the files again."
            )
        if not sources:
            raise ValueError(f"{self.source_path} and {self.target_path} are empty. Pass files with at least one line.")


def _texts(lines: TextLines) -> list[str]:
    with lines.open() as numbered:
        return [line for _, line in numbered if line is not None]


def _read_into(result: concurrent.futures.Future[list[str]], lines: TextLines) -> None:
    """Reads a file in a thread; its error is that of the result."""
    try:
        result.set_result(_texts(lines))
    except BaseException as error:
        result.set_exception(error)


def read_parallel(source_path: str | pathlib.Path, target_path: str | pathlib.Path) -> list[Pair]:
    r"""Reads the pairs of two parallel files into a list; arguments and errors as of `ParallelFiles`.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("numbers.en").write_text("one\ntwo"), Path("numbers.es").write_text("uno\ndos")
        >>> read_parallel("numbers.en", "numbers.es")
        [('one', 'uno'), ('two', 'dos')]
    """
    return ParallelFiles(source_path, target_path).held()
