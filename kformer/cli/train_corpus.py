"""The corpus of `kformer train`: given by its name, as files of pairs, as parallel files, or as both kinds of files."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Self

import typer

from kformer.cli.options import (
    CorpusName,
    FileReading,
    InlineTags,
    Path,
    SkipBadLines,
    columns_option,
    fields_option,
    names_of,
    open_file,
    open_files,
    read_corpus,
    warnings_told,
)
from kformer.cli.progress import shown
from kformer.cli.train_config import CONFIG_PARTS
from kformer.config import TrainingConfig, check_aligned, read_parts, task_kind
from kformer.data import (
    AlignedFile,
    Corpus,
    Pairs,
    PreparedCorpus,
    corpus_from_pairs,
    prepare_corpus,
)
from kformer.data.cleaning import DUPLICATES, Cleaning, CleaningReport, clean
from kformer.data.joined import JoinedFiles
from kformer.data.label_checks import check_corpus
from kformer.data.overlap import Unseen
from kformer.data.sources.lines import FilePairs
from kformer.recipes import load_recipe
from kformer.wording import count, did_you_mean

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
    without: Annotated[
        list[Path] | None,
        _cleaning(
            metavar="FILE",
            help="Leave out pairs whose source is also in this file, such as a test set: .tsv, .csv, ... of pairs, or "
            ".txt of sources. May be repeated.",
        ),
    ] = None
    without_fields: Annotated[
        list[str] | None,
        _cleaning(
            metavar="NAMES",
            help="As --fields, for the files of --without in their order, or for all if it is given once; '' for none.",
        ),
    ] = None

    @property
    def rules(self) -> Cleaning:
        """The rules. The files of --without are read for them."""
        files, fields = self.without or [], self.without_fields or []
        if (len(fields) > 1 and len(fields) != len(files)) or (fields and not files):
            raise ValueError(
                "There must be as many --without-fields as --without, in their order, or one for all. Received: "
                f"{len(fields)}, and {len(files)} of those."
            )
        unseen = tuple(map(_unseen, files, _for_each(fields, len(files))))
        given = {name: value for name, value in vars(self).items() if name != "without_fields"}
        return Cleaning(**{**given, "without": unseen})


def _unseen(file: Path, fields: str | None) -> Unseen:
    """What is in a file of --without: pairs, or sources alone if it is plain text by its name."""
    return Unseen.of(str(file), open_file(file, FileReading(fields=fields), plain_text=".txt" in file.suffixes))


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """The options that choose the corpus, or several that are joined."""

    corpus: CorpusName = None
    train: Annotated[
        list[Path] | None,
        _data(
            help="Pairs to train on: source, tab and target on each line, or plain text for a language model; or a "
            ".csv, .jsonl, .tmx, .parquet or .arrow, see --fields. .gz, .xz, .bz2 and .zst are read. May be repeated: "
            "the corpora are joined, see --tag and --corpus-weights."
        ),
    ] = None
    valid: Annotated[
        list[Path] | None,
        _data(
            help="Pairs to validate on. May be repeated: the files belong to those of --train in their order, of which "
            "the last ones may have none. By default one source in 50 of --train is held out, and 20 or one in 10 of a "
            "small file. Where some files have a --tag and others none, those without it alone are held out from."
        ),
    ] = None
    columns: Annotated[list[str] | None, columns_option(" May be repeated, one for each --train, '' for none.")] = None
    fields: Annotated[
        list[str] | None, fields_option("Data", " May be repeated, one for each --train, '' for none.")
    ] = None
    inline_tags: InlineTags = "drop"
    skip_bad_lines: SkipBadLines = False
    train_source: Annotated[
        list[Path] | None,
        _data(
            help="Source lines to train on, parallel to those of --train-target. May be repeated, also beside --train, "
            "behind which these corpora come."
        ),
    ] = None
    train_target: Annotated[list[Path] | None, _data(help="Target lines to train on.")] = None
    valid_source: Annotated[
        list[Path] | None, _data(help="Source lines to validate on, parallel to those of --valid-target.")
    ] = None
    valid_target: Annotated[list[Path] | None, _data(help="Target lines to validate on.")] = None
    tag: Annotated[
        list[str] | None,
        _data(
            metavar="WORD",
            help="A word before each source, such as '<2es>', one for each corpus; '' for none. The translator is then "
            "told by it what is wanted: translate --tag.",
        ),
    ] = None
    alignments: Annotated[
        list[str] | None,
        _data(
            metavar="FILE",
            help="Word alignments of the training pairs, as fast_align and eflomal write them: on each line links such "
            "as 0-0 1-2, source word - target word. One for each corpus, in their order; '' for none. See "
            "--guided-alignment.",
        ),
    ] = None
    cache: Annotated[
        Path | None,
        _data(
            metavar="FOLDER",
            help="Where the tokens of the files are kept, so that they are read only once. Machines may share it. By "
            "default in $KFORMER_CACHE or ~/.cache/kformer.",
        ),
    ] = None

    def with_file(self, config: Path | None) -> Self:
        """The options, with those that are not given as the part `data` of a configuration file says."""
        given = {} if config is None else read_parts(config, CONFIG_PARTS)["data"]
        options = {field.name: field for field in dataclasses.fields(self)}
        if unknown := sorted(map(str, set(given) - set(options))):
            raise ValueError(
                f"{config}: data has the unknown field {', '.join(unknown)}. It has those of the options: "
                f"{', '.join(options)}.{did_you_mean(unknown, options)}"
            )
        changes = {
            name: _as_given(f"{config}: data: {name}", value, name)
            for name, value in given.items()
            if getattr(self, name) == options[name].default
        }
        return dataclasses.replace(self, **changes)

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
            for columns in self.columns or ():
                _check_columns(task, columns)
        options = self
        if recipe is not None and not (self.corpus or self.train or self.train_source):
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
        train, valid = self._files("train"), self._files("valid")
        pairs = self._open(train, plain_text, self.alignments or ())
        others = self._open(valid, plain_text) if valid else None
        name, others_name = (_names(files) for files in (train, valid))
        if not isinstance(pairs, FilePairs) or not (others is None or isinstance(others, FilePairs)):
            kept, left_out = clean(pairs, cleaning)
            _tell_left_out(left_out)
            pairs = list(itertools.compress(pairs, kept))  # a pipe can be read only once
            return corpus_from_pairs(name, pairs, others, others_name)
        tell = functools.partial(typer.echo, err=True)
        with warnings_told():
            corpus = prepare_corpus(
                name,
                pairs,
                others,
                valid_name=others_name or None,
                cleaning=cleaning,
                cache=self.cache,
                progress=shown,
                tell=tell,
            )
        _tell_left_out(corpus.left_out)
        return corpus

    def _files(self, part: str) -> list[list[Path]]:
        """The files of the part "train" or "valid", for each corpus: one of pairs, then two parallel ones."""
        of_pairs, sources, targets = (getattr(self, f"{part}{side}") or [] for side in ("", "_source", "_target"))
        return [[file] for file in of_pairs] + [list(both) for both in zip(sources, targets, strict=True)]

    def _open(self, corpora: list[list[Path]], plain_text: bool, alignments: Sequence[str] = ()) -> Pairs:
        """The pairs of one corpus, or of several that are joined; those of a pipe are held."""
        number = len(self._files("train"))  # those of "valid" may be fewer
        of_pairs = len(self.train or ())
        columns, fields = (
            _for_each(value, of_pairs) + [None] * (number - of_pairs) for value in (self.columns, self.fields)
        )
        readings = [
            FileReading(*both, self.inline_tags, self.skip_bad_lines) for both in zip(columns, fields, strict=True)
        ]
        opened = [open_files(files, reading, plain_text) for files, reading in zip(corpora, readings, strict=False)]
        files = (*alignments, *[""] * (len(opened) - len(alignments)))
        opened = [_aligned(pairs, file) if file else pairs for pairs, file in zip(opened, files, strict=True)]
        if number == 1 and not self.tag:
            return opened[0]
        held = [str(files[0]) for files, pairs in zip(corpora, opened, strict=True) if not isinstance(pairs, FilePairs)]
        if held:
            raise ValueError(
                f"Corpora that are joined or have a tag must be files that can be read again. Received: {held[0]}. "
                "Write what comes through the pipe to a file."
            )
        tags = None if self.tag is None else self.tag[: len(opened)]
        return JoinedFiles([pairs for pairs in opened if isinstance(pairs, FilePairs)], tags)

    def _check(self, began_with: str | None) -> None:
        """Refuses anything but one corpus with a name or files, and files that do not go together."""
        files = self.train or self.train_source or self.train_target
        if (self.corpus is None) == (not files):
            again = "" if began_with is None else f" Give the corpus that this run began with: {began_with}."
            raise ValueError(
                "train needs either --corpus NAME or files: --train PAIRS.tsv, --train-source with --train-target, or "
                f"both (a recipe has a corpus of its own). Received: {'both' if files else 'neither'}.{again}"
            )
        if not files and (self.valid or self.valid_source or self.valid_target):
            raise ValueError(
                "Files to validate on need files to train on, since a corpus with a name has its own validation pairs. "
                "Leave out --valid, or give files: --train."
            )
        for part in ("train", "valid"):
            sides = [getattr(self, f"{part}_{side}") or () for side in ("source", "target")]
            if len(sides[0]) != len(sides[1]):
                raise ValueError(
                    f"--{part}-source and --{part}-target go together. Received: {len(sides[0])} and {len(sides[1])} "
                    "files. Give both."
                )
        if self.train is None and (self.columns, self.fields, self.inline_tags) != (None, None, "drop"):
            raise ValueError(
                "--columns, --fields and --inline-tags say what is read of a file. Give them together with --train."
            )
        if self.alignments and self.skip_bad_lines:
            raise ValueError(
                "With --alignments no line of a file may be left out, because line n belongs to pair n. Leave out "
                "--skip-bad-lines."
            )
        self._check_numbers()

    def check_aligned(self, training: TrainingConfig) -> None:
        """Refuses alignments that would not be learned, and to learn some that are not given, before a file is read."""
        check_aligned(training, any(self.alignments or ()))

    def _check_numbers(self) -> None:
        """Refuses options that do not have a value for each corpus."""
        corpora, of_pairs = len(self._files("train")), len(self.train or ())
        if self.tag and self.corpus is not None:
            raise ValueError("A corpus with a name has no tag. Leave out --tag, or give files: --train.")
        if self.alignments and self.corpus is not None:
            raise ValueError("A corpus with a name has no alignments. Leave out --alignments, or give files: --train.")
        if self.train is None and self.corpus is not None:
            return
        if (number := len(self._files("valid"))) > corpora:
            raise ValueError(
                "There must be at most as many --valid as corpora: each belongs to the corpus in the same place. "
                f"Received: {number}, and {corpora} of those."
            )
        if self.valid_source and self.train_source and len(self.valid or ()) != of_pairs:
            raise ValueError(
                "Beside --valid-source there must be as many --valid as --train, because validation files belong to "
                f"the corpora in their order. Received: {len(self.valid or ())} --valid and {of_pairs} --train."
            )
        for option, values, number, may_be_one in (
            ("tag", self.tag, corpora, False),
            ("alignments", self.alignments, corpora, False),
            ("columns", self.columns, of_pairs, True),
            ("fields", self.fields, of_pairs, True),
        ):
            if values and len(values) != number and not (may_be_one and len(values) == 1):
                raise ValueError(
                    f"There must be as many --{option} as {'--train' if may_be_one else 'corpora'}, in their order. "
                    f"Received: {len(values)}, and {number} of those."
                )


_ONE_VALUE = ("corpus", "inline_tags", "cache")  # the options that may not be repeated
_WORDS = ("corpus", "inline_tags", "columns", "fields", "tag", "alignments")  # those that are not files, or may be ''


def _as_given(where: str, value: Any, name: str) -> Any:
    """A value of a configuration file, as the option of this name has it."""
    if name == "skip_bad_lines":
        if not isinstance(value, bool):
            raise ValueError(f"{where} must be true or false. Received: {value!r}.")
        return value
    one = name in _ONE_VALUE
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(item, str) for item in values) or (one and len(values) > 1):
        expected = "a text" if one else "a text, or a list of texts"
        raise ValueError(f"{where} must be {expected}. Received: {value!r}.")
    found = values if name in _WORDS else [Path(item) for item in values]
    return found[0] if one else found


def _for_each(values: list[str] | None, number: int) -> list[str | None]:
    """A value for each of so many corpora: one for all, one each, or none; "" is none."""
    given = [value or None for value in values or ()]
    return given * number if len(given) == 1 else given or [None] * number


def _aligned(pairs: Pairs, file: str) -> AlignedFile:
    """The pairs of a file with their alignments."""
    if not isinstance(pairs, FilePairs):
        raise ValueError(
            "Pairs with alignments must be in files that can be read again. Received: what comes through a pipe. Write "
            "it to a file."
        )
    return AlignedFile(pairs, file)


def _names(corpora: list[list[Path]]) -> str:
    """What messages call corpora: by their first files."""
    return ", ".join(dict.fromkeys(str(files[0]) for files in corpora))


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
    if columns is not None and task_kind(task).targets != "label" and "second" in names_of(columns):
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
