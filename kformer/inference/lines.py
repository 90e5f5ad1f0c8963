"""Translation as a Unix filter: a line in, a line out, in order."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from kformer.translation.batches import BATCH_SIZE, Hypothesis, TranslateBatch, translate_all

LINES_AT_ONCE = 1024  # lines of a pipe that are sorted by length together
FILE_LINES_AT_ONCE = 65536  # the same for a file: nobody waits for its single lines


def translate_lines(
    translate: TranslateBatch,
    source: BinaryIO,
    target: BinaryIO,
    n_best: int = 1,
    lines_at_once: int = LINES_AT_ONCE,
    on_batch: Callable[[int], None] = lambda done: None,
    batch_size: int = BATCH_SIZE,
    at_once: int | None = None,
) -> None:
    """Translates `source` line by line into `target`.

    With `n_best` 1 every line gives one line. With more, every line gives up to `n_best` lines of the form
    `number ||| translation ||| score`, numbers counted from 0, as Moses and Marian write them.

    Args:
        translate: As `translate_all` takes it.
        source: UTF-8 lines that end in LF or CRLF.
        target: Where the translations go, UTF-8 lines ended by LF.
        n_best: Hypotheses per line.
        lines_at_once: Lines read before the first of them are written; 1 for a person who types.
        on_batch: Called after each batch with the number of lines in it.
        batch_size, at_once: See `translate_all`.
    """
    number = 0
    for lines in _chunks(source, lines_at_once):
        for hypotheses in translate_all(translate, lines, batch_size, on_batch, at_once):
            target.write(_format(number, hypotheses, n_best).encode("utf-8"))
            number += 1
        target.flush()


def count_lines(source: Iterable[bytes]) -> int:
    """The number of lines that `translate_lines` reads."""
    return sum(1 for _ in source)


def _chunks(source: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in source)
    while chunk := list(itertools.islice(lines, size)):
        yield chunk


def _format(number: int, hypotheses: list[Hypothesis], n_best: int) -> str:
    if n_best == 1:
        return _one_line(hypotheses[0].text) + "\n"
    return "".join(f"{number} ||| {_one_line(text)} ||| {score:.6f}\n" for text, score in hypotheses[:n_best])


def _one_line(text: str) -> str:
    """A model with byte pieces can produce a line feed; a line must stay one line."""
    return text.replace("\n", " ").replace("\r", " ")
