"""Commands that read lines and write as many lines: their options, their files, and how a model answers them."""

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
from kformer.inference.line_counts import LinesWithoutAnswer, LineWatcher
from kformer.inference.line_forms import AnsweredLine, JsonLines, JsonScores, LineForm, NBest, Scores, TextColumns
from kformer.inference.line_limits import INSTEAD, LineLimits
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

_PANEL = "Input and output"
_LIMITS = LineLimits()
FORMATS = ("text", "tsv", "jsonl")

InputFiles = Annotated[
    list[Path] | None,
    typer.Option(
        help="Lines of text; by default those of standard input. Of a .csv, .jsonl, .tmx, .parquet or .arrow, the "
        "texts of the first of --fields. .gz, .xz, .bz2 and .zst are read. Give it for each file of a job.",
        rich_help_panel=_PANEL,
    ),
]


class Output(NamedTuple):
    """Where answers go: a file, or the folder of a job."""

    path: Path
    is_folder: bool

    @classmethod
    def of(cls, given: str) -> "Output":
        """What the value of the option names."""
        return cls(Path(given), given.endswith(os.sep) or Path(given).is_dir())

    def __str__(self) -> str:
        return str(self.path)


OutputFile = Annotated[
    Output | None,
    typer.Option(
        parser=Output.of,
        metavar="PATH",
        help="The file to write; by default standard output. A folder, by a name that ends with /, makes a job of the "
        "command: see the last options.",
        rich_help_panel=_PANEL,
    ),
]


@dataclasses.dataclass(frozen=True)
class InputFields:
    """The options that say what is read of an input with named fields."""

    fields: Annotated[str | None, fields_option(_PANEL)] = None
    inline_tags: Annotated[str, inline_tags_option(_PANEL)] = "drop"
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="A second field, such as an id, which is written beside each answer. Give --fields, too.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def check(self) -> None:
        """Refuses values that do not go together."""
        if self.keep is not None and (self.fields is None or len(names_of(self.fields)) != 1):
            raise ValueError(
                "--keep names a second field of a table, beside the one to answer. Received: "
                f"--fields {self.fields}. Name the field to answer, such as --fields text --keep {self.keep}."
            )

    def lines(self, file: Path, faults: Faults | None = None) -> Generator[InputLine, None, None]:
        """The lines of a file, or the texts of its first field. Lines that are not text are counted as faults."""
        if self.fields is None and not has_fields(file):
            with file.open("rb") as opened:
                lines = lines_of(file_blocks(opened), str(file))
                for line in lines if faults is None else faults.counted(lines):
                    if line is not None:
                        yield InputLine(line)
            return
        fields = None if self.fields is None else (*names_of(self.fields), *([self.keep] if self.keep else []))
        for source, target in _pairs(file, fields, self.inline_tags):
            yield InputLine(source.encode("utf-8"), target if self.keep else "")


@dataclasses.dataclass(frozen=True)
class PairFields(InputFields):
    """The same options, by which pairs are read: lines with one tab, or two named fields of a table."""

    def check(self) -> None:
        """Refuses values that do not go together."""
        names = ("source", "target") if self.fields is None else names_of(self.fields)
        if len(names) != 2 or (self.keep is not None and self.fields is None):
            raise ValueError(
                f"--fields names the two fields of a pair, and --keep a third one. Received: --fields {self.fields}. "
                "Name them, such as --fields en,es --keep id."
            )

    def lines(self, file: Path, faults: Faults | None = None) -> Generator[InputLine, None, None]:
        """The lines of a file, or its pairs. Lines that are not text are counted as faults."""
        if self.fields is None and not has_fields(file):
            yield from super().lines(file, faults)
            return
        names = None if self.fields is None else (*names_of(self.fields), *([self.keep] if self.keep else []))
        for source, target in _pairs(file, names, self.inline_tags):
            # Of three fields, the first two are joined by a tab.
            yield InputLine(source.encode(), target) if self.keep else InputLine(f"{source}\t{target}".encode())


@functools.lru_cache(maxsize=1)
def _pairs(file: Path, fields: tuple[str, ...] | None, inline_tags: str) -> Pairs:
    """The pairs of a file: the same object each time, which warns once and knows the file that it has read."""
    return open_pairs(file, fields=fields, inline_tags=inline_tags)


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """The options that say what is written, and what becomes of lines that are no text."""

    format: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="text: the answer alone. tsv: the answer, its score, and what else is asked for, with tabs between. "
            "jsonl: an object of JSON with the line, too.",
            autocompletion=lambda: FORMATS,
            rich_help_panel=_PANEL,
        ),
    ] = "text"
    on_error: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="What stands in the place of the answer to a line that has none: empty, source (the line itself), or "
            "keep (the answer to its beginning, as far as it is within the limits). The default is empty; and a line "
            "that a server refuses ends the command, if it is no job.",
            autocompletion=lambda: list(INSTEAD),
            rich_help_panel=_PANEL,
        ),
    ] = None
    longest_line: Annotated[
        int,
        typer.Option(
            min=1, metavar="BYTES", help="A longer line is not text, and has no answer.", rich_help_panel=_PANEL
        ),
    ] = _LIMITS.line
    longest_word: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="CHARACTERS",
            help="The same of a line with a longer word; Chinese, Japanese, Thai and the like do not count.",
            rich_help_panel=_PANEL,
        ),
    ] = _LIMITS.word

    def check(self) -> None:
        """Refuses unknown names."""
        if self.format not in FORMATS:
            raise ValueError(f"--format must be one of {', '.join(FORMATS)}. Received: {self.format}.")
        if self.on_error is not None and self.on_error not in INSTEAD:
            raise ValueError(f"--on-error must be one of {', '.join(INSTEAD)}. Received: {self.on_error}.")

    @property
    def limits(self) -> LineLimits:
        """Which lines the model is asked for."""
        return LineLimits(self.longest_line, self.longest_word)

    def form(
        self, task: str, n_best: int = 1, alignments: bool = False, pairs: bool = False, keep: bool = False
    ) -> LineForm:
        """What is written for each line.

        Args:
            task: What the model has learned.
            n_best: Answers per line.
            alignments: Write the alignment.
            pairs: Write the line behind its answer.
            keep: Write the field that is kept.
        """
        if self.format == "jsonl":
            if pairs:
                raise ValueError("--pairs writes tab-separated pairs, and jsonl has the line by itself. Leave out one.")
            return JsonLines(task, n_best)
        if n_best > 1:
            if self.format == "tsv" or keep:
                raise ValueError("Several answers per line have no columns. Give --format jsonl, or leave it out.")
            return NBest(n_best)
        if (alignments or keep) and self.format == "text":
            raise ValueError("Text has the answers alone. Give --format tsv or --format jsonl for what is beside them.")
        return TextColumns(score=self.format == "tsv", alignment=alignments, line=pairs, kept=keep)

    def form_of_scores(self, has_sources: bool, keep: bool) -> LineForm:
        """What is written for each line with a given answer.

        Args:
            has_sources: Whether lines are pairs of a source and its translation.
            keep: Write the field that is kept.
        """
        if self.format == "jsonl":
            return JsonScores(has_sources)
        if keep and self.format == "text":
            raise ValueError("Text has the scores alone. Give --format tsv or --format jsonl for what is beside them.")
        return Scores(tokens=self.format == "tsv", kept=keep)


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of a job: many lines, which several processes answer, and which goes on after any kill."""

    lines_per_part: Annotated[
        int,
        typer.Option(
            min=1,
            help="Lines of each file that a job writes. A kill loses the parts that are not written.",
            rich_help_panel="Job (--output FOLDER/)",
        ),
    ] = 10_000
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that answer, each with a model of its own. By default as many as there are cores.",
            rich_help_panel="Job (--output FOLDER/)",
        ),
    ] = None
    batch_seconds: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="The longest time for a batch. Then its lines are tried one by one, and one that takes longer alone "
            "has no answer.",
            rich_help_panel="Job (--output FOLDER/)",
        ),
    ] = 120.0


@dataclasses.dataclass(frozen=True)
class LineOptions:
    """The options that all commands have which answer lines. They name the model and the files."""

    model: Path | None
    preset: str | None
    server: str | None
    token_file: Path | None
    inputs: Sequence[Path]
    output: Output | None
    trust: bool
    reading: InputFields
    writing: OutputOptions
    job: JobOptions

    @property
    def is_job(self) -> bool:
        """Whether the answers go into a folder."""
        return self.output is not None and (self.output.is_folder or len(self.inputs) > 1)


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


_FIELDS = InputFields()


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
