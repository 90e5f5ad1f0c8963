"""Commands that read lines and write as many lines: their files, and how a model answers them."""

import contextlib
import dataclasses
import functools
import os
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, BinaryIO, NamedTuple, TextIO

import typer

from kformer.cli.options import Path, fields_option, inline_tags_option, names_of, warnings_told
from kformer.cli.progress import progress_bar
from kformer.data import Pairs, open_pairs
from kformer.data.sources.registry import has_fields
from kformer.files.blocks import file_blocks, pipe_blocks
from kformer.files.lines import Faults, lines_of
from kformer.files.writing import check_file_path, replacing
from kformer.inference.lines import (
    FILE_LINES_AT_ONCE,
    LINES_AT_ONCE,
    LineForm,
    NotedLines,
    ShortTranslations,
    answer_lines,
    plain_answer,
)
from kformer.process.console import without_controls
from kformer.text.batches import AnswerBatch, Hypothesis, RefusedTextError

InputFile = Annotated[
    Path | None,
    typer.Option(
        help="Lines of text; by default those of standard input. Of a .csv, .jsonl, .tmx, .parquet or .arrow, the "
        "texts of the first of --fields. .gz, .xz, .bz2 and .zst are read.",
        rich_help_panel="Input and output",
    ),
]
OutputFile = Annotated[
    Path | None, typer.Option(help="The file to write; by default standard output.", rich_help_panel="Input and output")
]


@dataclasses.dataclass(frozen=True)
class InputFields:
    """The options that say what is read of an input with named fields."""

    fields: Annotated[str | None, fields_option("Input and output")] = None
    inline_tags: Annotated[str, inline_tags_option("Input and output")] = "drop"

    def lines(self, file: Path) -> Generator[bytes | None, None, None]:
        """The lines of a file, or the texts of its first field."""
        if self.fields is None and not has_fields(file):
            with file.open("rb") as opened:
                yield from lines_of(file_blocks(opened), str(file))
            return
        for source, _ in _pairs(file, self.fields, self.inline_tags):
            yield source.encode("utf-8")


@functools.lru_cache(maxsize=1)
def _pairs(file: Path, fields: str | None, inline_tags: str) -> Pairs:
    """The pairs of a file: the same object each time, which warns once and knows the file that it has read."""
    return open_pairs(file, fields=None if fields is None else names_of(fields), inline_tags=inline_tags)


@dataclasses.dataclass(frozen=True)
class LineOptions:
    """The options that all commands have which answer lines. They name the model and the files."""

    model: Path | None
    preset: str | None
    server: str | None
    token_file: Path | None
    input: Path | None
    output: Path | None
    trust: bool
    reading: InputFields


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
    watchers: Sequence[NotedLines | ShortTranslations] = ()


_LINES = InputFields()


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


def number_of_lines(input: Path | None, reading: InputFields = _LINES) -> int:
    """The number of lines of a file; of a pipe, the number that is read before the first translation begins.

    Lines of a file that are not text are reported on standard error.
    """
    if input is None:
        return 1 if sys.stdin.isatty() else LINES_AT_ONCE
    faults = Faults(str(input))
    with warnings_told():
        number = sum(1 for _ in faults.counted(reading.lines(input)))
    _tell(faults.message())
    return number


def write_answers(
    model: LineModel,
    input: Path | None,
    output: Path | None,
    number: int,
    doing: str,
    reading: InputFields = _LINES,
    form: LineForm = plain_answer,
) -> None:
    """Writes an answer for each line of `input` to `output`.

    Args:
        model: Answers them.
        input, output: Files; None: the standard streams.
        number: From `number_of_lines`.
        doing: What the progress bar says.
        reading: What is read of the input.
        form: What is written for each line.
    """
    answer, batch_size, at_once, watchers = model

    def on_line(line: bytes, hypotheses: list[Hypothesis]) -> None:
        for watcher in watchers:
            watcher(line, hypotheses)

    def tell_watched() -> None:
        for watcher in watchers:
            _tell(watcher.message())

    with contextlib.ExitStack() as stack:
        stack.callback(tell_watched)
        target = stack.enter_context(_opened(output))
        if input is None:
            faults = Faults("standard input")
            stack.callback(lambda: _tell(faults.message()))
            lines = faults.counted(lines_of(pipe_blocks(sys.stdin.buffer), "standard input"))
            answer_lines(answer, lines, target, form, batch_size=batch_size, at_once=at_once, on_line=on_line)
            return
        lines = stack.enter_context(contextlib.closing(reading.lines(input)))
        advance = stack.enter_context(progress_bar(doing, number))
        answer_lines(answer, lines, target, form, FILE_LINES_AT_ONCE, advance, batch_size, at_once, on_line)


def _tell(message: str | None) -> None:
    """Writes a warning, if there is one."""
    if message is not None:
        print(f"kformer: warning: {without_controls(message)}", file=sys.stderr)


def with_tag(function: AnswerBatch, tag: str) -> AnswerBatch:
    """The same function for texts that have a tag before them."""

    def answer(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        given = [tag.encode() + b" " + text if text.strip() else text for text in texts]
        try:
            return function(given)
        except RefusedTextError as error:
            raise RefusedTextError(str(error), texts[given.index(error.text)]) from error

    return answer


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        return
    with replacing(output) as partial, partial.open("wb") as target:
        yield target
