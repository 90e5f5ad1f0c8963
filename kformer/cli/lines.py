"""Commands that read lines and write as many lines: their files, and how a model answers them."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, TextIO

from kformer.cli.line_options import InputFields
from kformer.cli.options import Path, warnings_told
from kformer.cli.progress import progress_bar
from kformer.files.blocks import pipe_blocks
from kformer.files.lines import lines_of
from kformer.files.writing import check_file_path, replacing
from kformer.inference.line_counts import Faults, LinesWithoutAnswer, LineWatcher
from kformer.inference.line_forms import AnsweredLine, LineForm, TextColumns
from kformer.inference.line_limits import LineLimits
from kformer.inference.lines import (
    DEFAULT_INSTEAD,
    FILE_LINES_AT_ONCE,
    LINES_AT_ONCE,
    InputLine,
    answer_lines,
    input_lines,
)
from kformer.process.console import without_controls
from kformer.text.batches import AnswerBatch

_FIELDS = InputFields()
_LIMITS = LineLimits()


class LineModel(NamedTuple):
    """A model, as `write_answers` calls it.

    Attributes:
        answer: Answers batches of lines.
        batch_size, at_once: See `answer_lines`.
        watchers: Each looks at every line and its answer. What it found is reported on standard error in the end.
    """

    answer: AnswerBatch
    batch_size: int
    at_once: int | None
    watchers: Sequence[LineWatcher] = ()


def check_files(input: Path | None, output: Path | None) -> None:
    """Refuses files that cannot be read or written, and an output that would replace the input."""
    if input is not None and not input.is_file():
        problem = "is not a regular file" if input.exists() else "does not exist"
        raise FileNotFoundError(f"{input} {problem}. Name a text file, or leave out --input to read a pipe.")
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


def number_of_lines(input: Path | None, reading: InputFields = _FIELDS) -> int:
    """The number of lines of a file; of a pipe, the number that is read before the first translation begins.

    Lines of a file that are not text are reported on standard error.
    """
    if input is None:
        return 1 if sys.stdin.isatty() else LINES_AT_ONCE
    faults = Faults(str(input))
    with warnings_told():
        number = sum(1 for _ in reading.lines(input, faults))
    warn(faults.message())
    return number


def write_answers(
    model: LineModel,
    input: Path | None,
    output: Path | None,
    number: int,
    doing: str,
    reading: InputFields = _FIELDS,
    form: LineForm = TextColumns(),  # noqa: B008 (it cannot change)
    on_error: str | None = None,
    limits: LineLimits = _LIMITS,
) -> None:
    """Writes an answer for each line of `input` to `output`.

    Args:
        model: Answers them.
        input, output: Files; None: the standard streams.
        number: From `number_of_lines`.
        doing: What the progress bar says.
        reading: What is read of the input.
        form: What is written for each line.
        on_error: What stands in the place of an answer; see `answer_lines`.
        limits: Which lines the model is asked for.
    """
    answer, batch_size, at_once, watchers = model
    all_watchers = [*watchers, LinesWithoutAnswer(on_error or DEFAULT_INSTEAD)]

    def on_line(answered: AnsweredLine) -> None:
        for watcher in all_watchers:
            watcher(answered.line, answered.found, answered.fault)

    def tell_watched() -> None:
        for watcher in all_watchers:
            warn(watcher.message())

    with contextlib.ExitStack() as stack:
        stack.callback(tell_watched)
        target = stack.enter_context(_opened(output))
        if input is None:
            faults = Faults("standard input")
            stack.callback(lambda: warn(faults.message()))
            piped = faults.counted(lines_of(pipe_blocks(sys.stdin.buffer), "standard input"))
            lines: Iterator[InputLine | None] = input_lines(piped)
            at_most, advance = LINES_AT_ONCE, None  # nobody sees the progress
        else:
            lines = stack.enter_context(contextlib.closing(reading.lines(input)))
            at_most, advance = FILE_LINES_AT_ONCE, stack.enter_context(progress_bar(doing, number))
        answer_lines(
            *(answer, lines, target, form, at_most, advance, batch_size, at_once, on_line),
            limits=limits,
            on_fault=on_error,
        )


def warn(message: str | None) -> None:
    """Writes a warning to standard error, if there is one."""
    if message is not None:
        print(f"kformer: warning: {without_controls(message)}", file=sys.stderr)


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as partial, partial.open("wb") as target:
        yield target
