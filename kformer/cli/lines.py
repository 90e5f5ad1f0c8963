"""Commands that read lines and write as many lines: their files, and how a model answers them."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO, TextIO

import typer

from kformer.cli.options import Path
from kformer.cli.progress import progress_bar
from kformer.files.blocks import file_blocks, pipe_blocks
from kformer.files.lines import Faults, lines_of
from kformer.files.writing import check_file_path, replacing
from kformer.inference.lines import FILE_LINES_AT_ONCE, LINES_AT_ONCE, OnLine, UnknownLines, translate_lines
from kformer.text.batches import BATCH_SIZE, Hypothesis, TranslateBatch

InputFile = Annotated[
    Path | None,
    typer.Option(
        help="Lines of text; by default those of standard input. .gz, .xz and .bz2 are read.",
        rich_help_panel="Input and output",
    ),
]
OutputFile = Annotated[
    Path | None, typer.Option(help="The file to write; by default standard output.", rich_help_panel="Input and output")
]


def check_files(input: Path | None, output: Path | None) -> None:
    """Refuses files that cannot be read or written, and an output that would replace the input."""
    if input is not None and not input.is_file():
        raise FileNotFoundError(
            f"{input} is not a regular file. Name a text file, or leave out --input to read a pipe."
        )
    if output is not None:
        check_file_path(output)
    source, target = _regular_file(input, sys.stdin), _regular_file(output, sys.stdout)
    if source and target and os.path.samestat(source, target):
        raise ValueError(
            f"{output or 'Standard output'} is the same file as {input or 'standard input'}, which the answers would "
            "replace. Name another file to write."
        )


def _regular_file(path: Path | None, stream: TextIO) -> os.stat_result | None:
    """What `os.stat` says of a regular file, or without a path of the file behind a stream; None if there is none."""
    try:
        found = os.fstat(stream.fileno()) if path is None else path.stat()
    except OSError:  # there is no such file yet, or the stream is in memory
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def number_of_lines(input: Path | None) -> int:
    """The number of lines of a file; of a pipe, the number that is read before the first translation begins.

    Lines of a file that are not text are reported on standard error.
    """
    if input is None:
        return 1 if sys.stdin.isatty() else LINES_AT_ONCE
    faults = Faults(str(input))
    with input.open("rb") as file:
        number = sum(1 for _ in faults.counted(lines_of(file_blocks(file), str(input))))
    _tell(faults.message())
    return number


def answer_lines(
    function: TranslateBatch,
    input: Path | None,
    output: Path | None,
    n_best: int,
    number: int,
    batch_size: int | None = None,
    at_once: int | None = None,
    doing: str = "translating",
    on_line: OnLine = lambda line, hypotheses: None,
    unknown: UnknownLines | None = None,
) -> None:
    """Writes an answer for each line of `input` to `output`.

    Args:
        function: Answers batches of lines.
        input, output: Files; None: the standard streams.
        n_best, at_once, on_line: See `translate_lines`.
        batch_size: The same; None: `BATCH_SIZE`.
        number: From `number_of_lines`.
        doing: What the progress bar says.
        unknown: Counts the lines that `function` noted there; they are reported on standard error in the end.
    """
    batch_size = batch_size or BATCH_SIZE
    counted = unknown or UnknownLines(symbols=False)

    def on_each(line: bytes, hypotheses: list[Hypothesis]) -> None:
        on_line(line, hypotheses)
        counted(line, hypotheses)

    with contextlib.ExitStack() as stack:
        stack.callback(lambda: _tell(counted.message()))
        target = stack.enter_context(_opened(output))
        if input is None:
            faults = Faults("standard input")
            stack.callback(lambda: _tell(faults.message()))
            lines = faults.counted(lines_of(pipe_blocks(sys.stdin.buffer), "standard input"))
            translate_lines(function, lines, target, n_best, batch_size=batch_size, at_once=at_once, on_line=on_each)
            return
        lines = lines_of(file_blocks(stack.enter_context(input.open("rb"))), str(input))
        advance = stack.enter_context(progress_bar(doing, number))
        translate_lines(function, lines, target, n_best, FILE_LINES_AT_ONCE, advance, batch_size, at_once, on_each)


def _tell(message: str | None) -> None:
    """Writes a warning, if there is one."""
    if message is not None:
        print(f"kformer: warning: {message}", file=sys.stderr)


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
