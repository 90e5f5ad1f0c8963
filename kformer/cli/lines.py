"""Commands that read lines and write as many lines: their files, and how a model answers them."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO

import typer

from kformer.cli.options import Path
from kformer.cli.progress import progress_bar
from kformer.files import check_file_path, replacing
from kformer.inference.lines import FILE_LINES_AT_ONCE, LINES_AT_ONCE, count_lines, translate_lines
from kformer.translation.batches import BATCH_SIZE, Hypothesis, TranslateBatch

InputFile = Annotated[Path | None, typer.Option(help="UTF-8 lines; by default those of standard input.")]
OutputFile = Annotated[Path | None, typer.Option(help="The file to write; by default standard output.")]


def check_files(input: Path | None, output: Path | None) -> None:
    """Refuses files that cannot be read or written."""
    if input is not None and not input.is_file():
        raise FileNotFoundError(
            f"{input} is not a regular file. Name a text file, or leave out --input to read a pipe."
        )
    if output is not None:
        check_file_path(output)


def number_of_lines(input: Path | None) -> int:
    """The number of lines of a file; of a pipe, the number that is read before the first translation begins."""
    if input is None:
        return 1 if sys.stdin.isatty() else LINES_AT_ONCE
    with input.open("rb") as lines:
        return count_lines(lines)


def answer_lines(
    function: TranslateBatch,
    input: Path | None,
    output: Path | None,
    n_best: int,
    number: int,
    batch_size: int | None = None,
    at_once: int | None = None,
    doing: str = "translating",
) -> None:
    """Writes an answer for each line of `input` to `output`.

    Args:
        function: Answers batches of lines.
        input, output: Files; None: the standard streams.
        n_best, at_once: See `translate_lines`.
        batch_size: The same; None: `BATCH_SIZE`.
        number: From `number_of_lines`.
        doing: What the progress bar says.
    """
    batch_size = batch_size or BATCH_SIZE
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(_opened(output))
        if input is None:
            translate_lines(function, sys.stdin.buffer, target, n_best, number, batch_size=batch_size, at_once=at_once)
            return
        source = stack.enter_context(input.open("rb"))
        advance = stack.enter_context(progress_bar(doing, number))
        translate_lines(function, source, target, n_best, FILE_LINES_AT_ONCE, advance, batch_size, at_once)


def with_scores(function: TranslateBatch) -> TranslateBatch:
    """The same function; each answer is followed by a tab and its score."""

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        return [[Hypothesis(f"{one.text}\t{one.score:.4f}", one.score) for one in found] for found in function(texts)]

    return answer


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as partial, partial.open("wb") as target:
        yield target
