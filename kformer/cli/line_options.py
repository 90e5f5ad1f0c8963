"""The options of the commands that read lines and write as many lines."""

import dataclasses
import functools
import os
from collections.abc import Generator
from typing import Annotated, NamedTuple

import typer

from kformer.cli.on_server import ServerUrl, TokenFile
from kformer.cli.options import (
    ModelArgument,
    Path,
    PresetName,
    Trust,
    fields_option,
    inline_tags_option,
    names_of,
)
from kformer.data import Pairs, open_pairs
from kformer.data.sources.registry import has_fields
from kformer.files.blocks import file_blocks
from kformer.files.lines import lines_of
from kformer.inference.line_counts import Faults
from kformer.inference.line_forms import JsonLines, JsonScores, LineForm, NBest, Scores, TextColumns
from kformer.inference.line_limits import INSTEAD, LineLimits
from kformer.inference.lines import InputLine
from kformer.jobs.settings import BATCH_SECONDS, LINES_PER_PART

_PANEL = "Input and output"
_LIMITS = LineLimits()
FORMATS = ("text", "tsv", "jsonl")

InputFiles = Annotated[
    list[Path] | None,
    typer.Option(
        help="Lines of text; by default those of standard input. Of a .csv, .jsonl, .tmx, .parquet or .arrow, the "
        "texts of the first of --fields; kformer classify takes two for a pair of texts. .gz, .xz, .bz2 and .zst are "
        "read. Give it for each file of a job.",
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
        "command: see the options of a job below.",
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
            if self.inline_tags != "drop":
                raise ValueError(f"--inline-tags is for a .tmx. Received: {file}. Leave it out.")
            with file.open("rb") as opened:
                lines = lines_of(file_blocks(opened), str(file))
                for line in lines if faults is None else faults.counted(lines):
                    if line is not None:
                        yield InputLine(line)
            return
        names = None if self.fields is None else (*names_of(self.fields), *([self.keep] if self.keep else []))
        for source, target in _pairs(file, names, self.inline_tags):
            yield self._line(source, target)

    def _line(self, source: str, target: str) -> InputLine:
        return InputLine(source.encode(), target if self.keep else "")


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

    def _line(self, source: str, target: str) -> InputLine:
        # Of three fields, the first two are joined by a tab, and the third one is the target.
        return InputLine(source.encode(), target) if self.keep else InputLine(f"{source}\t{target}".encode())


@dataclasses.dataclass(frozen=True)
class ClassifierFields(InputFields):
    """The same options, by which the texts of a classifier are read: two fields are the two texts of a pair."""

    @property
    def names_pairs(self) -> bool:
        """Whether two texts are named for each line."""
        return self.fields is not None and len(names_of(self.fields)) > 1

    def check(self) -> None:
        """Refuses values that do not go together."""
        if self.keep is not None and (self.fields is None or len(names_of(self.fields)) > 2):
            raise ValueError(
                "--keep names a field of a table, beside that of the text, or those of the two texts of a pair. "
                f"Received: --fields {self.fields}. Name them, such as --fields text --keep {self.keep}."
            )

    def _line(self, source: str, target: str) -> InputLine:
        # Of three fields, the first two are joined by a tab, and the third one is the target.
        is_second = self.fields is not None and len(names_of(self.fields)) == 2 and not self.keep
        return super()._line(f"{source}\t{target}" if is_second else source, target)


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
    ] = LINES_PER_PART
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
    ] = BATCH_SECONDS


@dataclasses.dataclass(frozen=True)
class LineOptions:
    """The options that all commands have which answer lines. Each command names the presets that it can use."""

    model: ModelArgument = None
    preset: PresetName = None
    server: ServerUrl = None
    token_file: TokenFile = None
    input: InputFiles = None
    output: OutputFile = None
    trust: Trust = False
    reading: InputFields = InputFields()
    writing: OutputOptions = OutputOptions()
    job: JobOptions = JobOptions()

    @property
    def inputs(self) -> list[Path]:
        """The files to read; none: standard input."""
        return self.input or []

    @property
    def is_job(self) -> bool:
        """Whether the answers go into a folder."""
        return self.output is not None and (self.output.is_folder or len(self.inputs) > 1)
