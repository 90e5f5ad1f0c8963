"""The corpus of `kformer train`: given by its name, as files of pairs, or as parallel files."""

import dataclasses
import functools
import itertools
from typing import Annotated, Any

import typer

from kformer.cli.options import (
    Columns,
    CorpusName,
    Fields,
    FileReading,
    InlineTags,
    Path,
    open_file,
    read_corpus,
    warnings_told,
)
from kformer.cli.progress import shown
from kformer.config import task_kind
from kformer.data import Corpus, Pairs, ParallelFiles, PreparedCorpus, corpus_from_pairs, prepare_corpus, read_parallel
from kformer.data.cleaning import DUPLICATES, Cleaning, CleaningReport, clean
from kformer.data.labels import check_corpus
from kformer.data.sources.lines import FilePairs
from kformer.recipes import load_recipe
from kformer.wording import count

FEW_PAIRS = 100  # with fewer, no translation is learned
FEW_VALIDATION_PAIRS = 20  # with fewer, chance decides which weights are the best

_data = functools.partial(typer.Option, rich_help_panel="Data")


_NO_RULES = Cleaning()
_cleaning = functools.partial(typer.Option, rich_help_panel="Cleaning")


@dataclasses.dataclass(frozen=True)
class CleaningOptions:
    """The options that say which training pairs are left out; none by default."""

    max_ratio: Annotated[
        float | None,
        _cleaning(min=1, help="Leave out pairs of which a side has more than so many times the other's characters."),
    ] = None
    max_characters: Annotated[
        int | None, _cleaning(min=1, help="Leave out pairs of which a side has more characters.")
    ] = None
    min_letters: Annotated[
        float | None,
        _cleaning(min=0, max=1, help="Leave out pairs of which a side has a smaller share of letters, such as 0.5."),
    ] = None
    source_script: Annotated[
        str | None,
        _cleaning(metavar="NAME", help="Leave out pairs whose source is not mostly in this script: Latin, Han, ..."),
    ] = None
    target_script: Annotated[
        str | None, _cleaning(metavar="NAME", help="Leave out pairs whose target is not mostly in this script.")
    ] = None
    drop_copies: Annotated[
        bool, _cleaning("--drop-copies", help="Leave out pairs whose source and target are the same.")
    ] = False
    duplicates: Annotated[
        str,
        _cleaning(
            metavar="WHAT",
            help="Of the same pairs, or of the pairs with the same sources, keep only the first: keep, pairs, sources.",
            autocompletion=lambda: list(DUPLICATES),
        ),
    ] = "keep"

    @property
    def rules(self) -> Cleaning:
        """The rules."""
        return Cleaning(**dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """The options that choose the corpus."""

    corpus: CorpusName = None
    train: Annotated[
        Path | None,
        _data(
            help="Pairs to train on: source, tab and target on each line, or plain text for a language model; or a "
            ".csv, .jsonl, .tmx, .parquet or .arrow, see --fields. .gz, .xz, .bz2 and .zst are read."
        ),
    ] = None
    valid: Annotated[
        Path | None,
        _data(
            help="Pairs to validate on. By default one source in 50 of --train is held out, and 20 or one in 10 of a "
            "small file."
        ),
    ] = None
    columns: Columns = None
    fields: Fields = None
    inline_tags: InlineTags = "drop"
    train_source: Annotated[
        Path | None, _data(help="Source lines to train on, parallel to those of --train-target.")
    ] = None
    train_target: Annotated[Path | None, _data(help="Target lines to train on.")] = None
    valid_source: Annotated[
        Path | None, _data(help="Source lines to validate on, parallel to those of --valid-target.")
    ] = None
    valid_target: Annotated[Path | None, _data(help="Target lines to validate on.")] = None
    cache: Annotated[
        Path | None,
        _data(
            metavar="FOLDER",
            help="Where the tokens of the files are kept, so that they are read only once. Machines may share it. By "
            "default in $KFORMER_CACHE or ~/.cache/kformer.",
        ),
    ] = None

    @property
    def reading(self) -> FileReading:
        """How a file is read."""
        return FileReading(self.columns, self.fields, self.inline_tags)

    def of_task(
        self, task: str | None, recipe: str | None, cleaning: Cleaning = _NO_RULES, began_with: str | None = None
    ) -> Corpus:
        """The corpus of the options, or else of the recipe, whose targets suit the task.

        Args:
            task: One of `kformer.config.TASKS`; None: nobody knows it yet.
            recipe: The name of a recipe, which has a corpus.
            cleaning: Which pairs of a file are left out.
            began_with: As of `read`.
        """
        if task is not None:
            _check_columns(task, self.columns)
        options = self
        if recipe is not None and (self.corpus, self.train, self.train_source) == (None,) * 3:
            options = dataclasses.replace(self, corpus=load_recipe(recipe).corpus)
        corpus = options.read(task is not None and task_kind(task).learns_from_plain_text, cleaning, began_with)
        if task is not None:
            check_corpus(task, corpus)
        return corpus

    def read(self, plain_text: bool = False, cleaning: Cleaning = _NO_RULES, began_with: str | None = None) -> Corpus:
        """The corpus.

        Args:
            plain_text: Whether `train` and `valid` are plain text, for a task that learns from it.
            cleaning: Which pairs of `train` are left out.
            began_with: The name of the corpus of a run that goes on, for the message if there is none here.

        Raises:
            ValueError: There is not exactly one corpus, or the options do not go together.
        """
        self._check(began_with)
        if self.corpus is not None:
            if cleaning != _NO_RULES:
                raise ValueError("A corpus with a name is not cleaned. Leave out the rules, or give files: --train.")
            return read_corpus(self.corpus)
        train = _named(self.train) or _named(self.train_source, self.train_target)
        valid = _named(self.valid) or _named(self.valid_source, self.valid_target)
        pairs = self._open(train, plain_text)
        others, others_name = (self._open(valid, plain_text), str(valid[0])) if valid else (None, None)
        if not isinstance(pairs, FilePairs) or not (others is None or isinstance(others, FilePairs)):
            kept, left_out = clean(pairs, cleaning)
            _tell_left_out(left_out)
            pairs = list(itertools.compress(pairs, kept))  # a pipe can be read only once
            return corpus_from_pairs(str(train[0]), pairs, others, others_name)
        tell = functools.partial(typer.echo, err=True)
        with warnings_told():
            corpus = prepare_corpus(
                str(train[0]),
                pairs,
                others,
                valid_name=others_name,
                cleaning=cleaning,
                cache=self.cache,
                progress=shown,
                tell=tell,
            )
        _tell_left_out(corpus.left_out)
        return corpus

    def _open(self, files: list[Path], plain_text: bool) -> Pairs:
        """The pairs of a file, or of two parallel files; those of pipes are held."""
        if len(files) == 1:
            return open_file(files[0], self.reading, plain_text)
        if not all(file.is_file() for file in files):
            return read_parallel(*files)
        return ParallelFiles(*files)

    def _check(self, began_with: str | None) -> None:
        """Refuses anything but one corpus, and files that do not go together."""
        ways = _named(self.corpus, self.train, self.train_source or self.train_target)
        if len(ways) != 1:
            again = "" if began_with is None else f" Give the corpus that this run began with: {began_with}."
            raise ValueError(
                "train needs exactly one of --corpus NAME, --train PAIRS.tsv, or --train-source and --train-target "
                f"(a recipe has a corpus of its own). Received: {len(ways)} of them.{again}"
            )
        for form, train, valid in (
            ("", self.train, self.valid),
            ("-source", self.train_source, self.valid_source or self.valid_target),
        ):
            if train is None and valid is not None:
                raise ValueError(
                    f"Validation files must have the form of the training files. Received: --valid{form} without "
                    f"--train{form}. Give both parts as pairs or both as parallel files; a named corpus has its own "
                    "validation pairs."
                )
        for part in ("train", "valid"):
            if (getattr(self, f"{part}_source") is None) != (getattr(self, f"{part}_target") is None):
                raise ValueError(f"--{part}-source and --{part}-target go together. Give both.")
        if self.train is None and self.reading != FileReading():
            raise ValueError(
                "--columns, --fields and --inline-tags say what is read of a file. Give them together with --train."
            )


def _named(*given: Any) -> list[Any]:
    return [one for one in given if one is not None]


def _tell_left_out(report: CleaningReport) -> None:
    if report.left_out:
        typer.echo("\n".join(report.lines()), err=True)


def _check_columns(task: str, columns: str | None) -> None:
    """Refuses names of columns that say nothing to the task."""
    if columns is not None and task_kind(task).learns_from_plain_text:
        raise ValueError(
            f"--columns names the columns of a tab-separated file. The task {task} reads plain text, a text on each "
            "line. Leave out --columns."
        )
    if columns is not None and task_kind(task).targets != "label" and "second" in columns.split(","):
        raise ValueError(
            f"A column second is the second text of a classifier. Received: --columns {columns} for the task {task}. "
            "Give it another name, and it is left out."
        )


def warn_of_corpus(corpus: Corpus, task: str | None) -> None:
    """Warns of a corpus that is too small to learn the task from, or whose parts overlap.

    Args:
        corpus: It.
        task: One of `kformer.config.TASKS`; None: it is not known, as that of a translator.
    """
    translates = task is None or task_kind(task).targets == "text"
    if translates and len(corpus.train) < FEW_PAIRS:
        typer.echo(
            f"kformer: warning: {len(corpus.train)} pairs are too few to learn a translation from. Use at least ten "
            "thousand or so; with fewer, begin with the weights of another model by --initialize-from.",
            err=True,
        )
    if isinstance(corpus, PreparedCorpus) and (overlap := corpus.facts().overlap):
        typer.echo(
            f"kformer: warning: {count(overlap, 'training pair')} of {corpus.name} have a source that is also one of "
            f"{corpus.name_of('valid')}: the validation scores are better than those of new texts will be. Validate "
            "on other texts.",
            err=True,
        )
    if len(corpus.valid) < FEW_VALIDATION_PAIRS:
        typer.echo(
            f"kformer: warning: with {count(len(corpus.valid), 'validation pair')}, chance decides which weights are "
            f"the best. Use at least {FEW_VALIDATION_PAIRS}, better some hundreds, from a file of their own (--valid).",
            err=True,
        )
