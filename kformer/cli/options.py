"""Options that several commands have, and what they choose: a model, a search, a corpus.

Nothing here needs TensorFlow, except for the corpora of TensorFlow Datasets, which start it.
"""

import contextlib
import csv
import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kformer.cli.startup import start_tensorflow
from kformer.config import BLEU_TOKENIZERS, TASKS, DecodingConfig, task_kind
from kformer.config.decoding import LARGEST_LENGTH_PENALTY
from kformer.data import (
    Corpus,
    Pairs,
    ParallelFiles,
    TextFile,
    TsvFile,
    load_corpus,
    open_pairs,
    read_parallel,
    read_texts,
)
from kformer.data.sources.registry import CORPORA, FileSource, source_of
from kformer.data.sources.tmx import INLINE_TAGS
from kformer.inference.find import search_of
from kformer.presets import find_preset, preset_names
from kformer.recipes import load_recipe, recipe_names
from kformer.runs.folder import RunFolder
from kformer.wording import did_you_mean

Path = pathlib.Path

PARTS = ("train", "valid", "test")

ModelArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL", help="A run folder, or a SavedModel. In a folder of numbered versions the last one is taken."
    ),
]

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load a SavedModel whatever operations it has, also those that reach files, processes or the network.",
        rich_help_panel="Model",
    ),
]


def _preset_option(command: str | None = None) -> Any:
    """`--preset`, with the models that this command can use; by default all models."""
    names = preset_names(*(name for name, kind in TASKS.items() if command in (None, kind.command)))
    return typer.Option(
        metavar="NAME",
        help=f"A trained model that comes with kformer, instead of MODEL: {', '.join(names) or 'none yet'}.",
        autocompletion=lambda: names,
        rich_help_panel="Model",
    )


def _recipe_option(panel: str) -> Any:
    """`--recipe`, in the panel of what the command takes from the recipe."""
    return typer.Option(
        metavar="NAME",
        help="A whole experiment, such as wmt14-en-de-base, or a YAML file of the same form.",
        autocompletion=recipe_names,
        rich_help_panel=panel,
    )


PresetName = Annotated[str | None, _preset_option()]
ClassifierPreset = Annotated[str | None, _preset_option("classify")]
LanguageModelPreset = Annotated[str | None, _preset_option("generate")]
TaggerPreset = Annotated[str | None, _preset_option("tag")]
TranslatorPreset = Annotated[str | None, _preset_option("translate")]
RecipeName = Annotated[str | None, _recipe_option("Model")]
Samples = Annotated[
    Path | None,
    typer.Option(help="Lines of text to pass on with the model. An export of the model is tried on them."),
]
SearchRecipe = Annotated[str | None, _recipe_option("Search")]
BeamSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Width of the beam; 1 is greedy search. By default the model's own, mostly 4.",
        rich_help_panel="Search",
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=LARGEST_LENGTH_PENALTY,
        help="Exponent of the length penalty; larger gives longer translations. By default the model's own.",
        rich_help_panel="Search",
    ),
]
MaxSourceLength = Annotated[
    int | None,
    typer.Option(
        min=2,
        metavar="TOKENS",
        help="A translator divides a longer line into its sentences; other models read no more at once. By default as "
        "the texts were long that the model learned from.",
        rich_help_panel="Search",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="PART", help="Part of the corpus: train, valid, or test, the default.", rich_help_panel="Data"
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Number of sentences to score, from the first one.", rich_help_panel="Data"),
]
BleuTokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"How BLEU splits texts into words, by sacreBLEU: {', '.join(BLEU_TOKENIZERS)}. The default is 13a, "
        "but zh for Chinese references and char for other scripts without blanks.",
        autocompletion=lambda: list(BLEU_TOKENIZERS),
        rich_help_panel="Scores",
    ),
]
Tag = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="What is wanted of a translator that learned several corpora, such as '<2es>': the word before each text. "
        "By default the first of those that it learned, or none if it learned texts without one, too.",
        rich_help_panel="Search",
    ),
]
CorpusName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"A corpus by its name: {', '.join(CORPORA)}, or tfds:NAME for a translation data set of "
        "TensorFlow Datasets; tfds:NAME@en-de chooses the direction.",
        autocompletion=lambda: list(CORPORA),
        rich_help_panel="Data",
    ),
]


def columns_option(more: str = "") -> Any:
    """The option `--columns`; `more` ends its help."""
    return typer.Option(
        metavar="NAMES",
        help="Names of the columns of a tab-separated file, split by commas, such as source,target,attribution. "
        "The columns source and target are read, and a column second, if a classifier reads two texts. The default is "
        f"source,target.{more}",
        rich_help_panel="Data",
    )


_FIELDS_HELP = (
    "Names of the fields to read, split by commas, such as en,es; a name with a comma in it stands in quotation marks. "
    "They are columns of a table with a header (.csv, or tabs), "
    "keys of .jsonl (translation.en), columns of .parquet and .arrow, or languages of .tmx. A classifier of two texts "
    "has three. The default is source,target, and the two languages of a .tmx."
)
_TAGS_HELP = (
    "What becomes of tags within the texts of a .tmx: drop them, keep what stands in them as text, or skip their units."
)


def fields_option(panel: str, more: str = "") -> Any:
    """The option `--fields`, in a panel of the help, which `more` ends."""
    return typer.Option(metavar="NAMES", help=_FIELDS_HELP + more, rich_help_panel=panel)


def inline_tags_option(panel: str) -> Any:
    """The option `--inline-tags`, in a panel of the help."""
    names = list(INLINE_TAGS)
    return typer.Option(metavar="WHAT", help=_TAGS_HELP, autocompletion=lambda: names, rich_help_panel=panel)


InlineTags = Annotated[str, inline_tags_option("Data")]
SkipBadLines = Annotated[
    bool,
    typer.Option(
        "--skip-bad-lines",
        help="Leave out lines that cannot be read, with a warning that names the first ten. By default they are an "
        "error.",
        rich_help_panel="Data",
    ),
]


@dataclasses.dataclass(frozen=True)
class FileReading:
    """The options that say how a file of pairs is read."""

    columns: Annotated[str | None, columns_option()] = None
    fields: Annotated[str | None, fields_option("Data")] = None
    inline_tags: InlineTags = "drop"
    skip_bad_lines: SkipBadLines = False


def choose_model(model: Path | None, preset: str | None) -> Path:
    """The model, named by its folder or as a preset."""
    if model is not None and preset is None:
        if str(model) in preset_names() and not model.exists():
            raise ValueError(f"{model} does not exist. It is a model that comes with kformer: write --preset {model}.")
        return model
    if preset is not None and model is None:
        return find_preset(preset).path
    given = "none" if model is None else f"{model} and --preset {preset}. A file of texts is named by --input"
    raise ValueError(
        f"Name one model: a folder, or a model that comes with kformer by --preset NAME. Received: {given}."
    )


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options by which a run folder searches; None for one that is not given, or that a command does not have."""

    recipe: SearchRecipe = None
    beam_size: BeamSize = None
    length_penalty: LengthPenalty = None
    max_source_length: MaxSourceLength = None

    def given(self) -> dict[str, Any]:
        """The values that are given, by their fields."""
        return {name: value for name, value in vars(self).items() if value is not None}


def choose_decoding(model: RunFolder | Path, search: SearchOptions) -> DecodingConfig | None:
    """The search of the recipe or the options; None if neither is given, so that the model uses its own search.

    The options change the search of the recipe, or without a recipe that of the model.
    """
    if not search.given():
        return None
    changes = {name: value for name, value in search.given().items() if name != "recipe"}
    if search.recipe is not None:
        start = load_recipe(search.recipe).decoding
    else:  # a SavedModel refuses any search but its own: see `check_search`
        start = model.decoding_config() if isinstance(model, RunFolder) else DecodingConfig()
    if {"beam_size", "length_penalty"} & {*changes} and isinstance(model, RunFolder):
        _check_searches(model)
    decoding = start.replace(**changes)
    if decoding.beam_size == 1 and search.length_penalty is not None:
        raise ValueError(
            "A greedy search (a beam of 1) has no length penalty. Leave out --length-penalty, or choose a wider beam "
            "by --beam-size."
        )
    return decoding


def _check_searches(model: RunFolder) -> None:
    task = model.transformer_config().task
    if not task_kind(task).searches:
        raise ValueError(
            f"{model.path} has learned the task {task}, which needs no search. Leave out --beam-size and "
            "--length-penalty."
        )


def check_tag(model: RunFolder | Path, tag: str) -> None:
    """Refuses a tag that a model does not know.

    Raises:
        ValueError: The model has no tags, or others.
    """
    known = (search_of(model, None).get("tags") or "").split()
    if tag not in known:
        raise ValueError(
            f"The model does not know the tag {tag!r}. It has {', '.join(known) or 'none'}. Leave out --tag"
            f"{', or choose one of these' if known else ''}.{did_you_mean([tag], known)}"
        )


def read_corpus(name: str) -> Corpus:
    """A corpus by its name; TensorFlow Datasets start TensorFlow."""
    if name.startswith("tfds:"):
        start_tensorflow()
    return load_corpus(name)


def choose_part(split: str | None) -> str:
    """The part of a corpus that `--split` names; without `--split`, the test part."""
    if split is not None and split not in PARTS:
        raise ValueError(f"--split must be one of {', '.join(PARTS)}. Received: {split}.{did_you_mean([split], PARTS)}")
    return split or "test"


def names_of(value: str) -> tuple[str, ...]:
    """The names in the value of an option, split by commas; a name with a comma in it is quoted as in CSV.

    Examples:
        >>> names_of('en, "es, old"')
        ('en', 'es, old')
    """
    return tuple(name.strip() for name in next(csv.reader([value], skipinitialspace=True), []))


def open_file(file: Path, reading: FileReading, plain_text: bool = False) -> Pairs:
    """The pairs of a file. Those of a pipe are read at once; their warnings go to standard error.

    Args:
        file: Tab-separated, of plain text, or with a suffix or content that says more.
        reading: How it is read.
        plain_text: Whether a file of lines is plain text, for a task that learns from it.
    """
    lines: FileSource = TextFile if plain_text else TsvFile
    if reading.columns is not None:
        if reading.fields is not None:
            raise ValueError(
                "--columns names the columns of a file without a header, and --fields those that a header names. "
                "Received: both. Give one."
            )
        lines = functools.partial(TsvFile, columns=names_of(reading.columns))
        if source_of(file, lines) is not lines:
            raise ValueError(
                f"--columns names the columns of tab-separated files, and {file} is none. Leave it out, or name its "
                "fields by --fields."
            )
    with warnings_told():
        fields = None if reading.fields is None else names_of(reading.fields)
        return open_pairs(file, lines, fields, reading.inline_tags, reading.skip_bad_lines)


def open_files(files: list[Path], reading: FileReading, plain_text: bool) -> Pairs:
    """The pairs of a file, or of two parallel files; those of pipes are held."""
    if len(files) == 1:
        return open_file(files[0], reading, plain_text)
    if not all(file.is_file() for file in files):
        if reading.skip_bad_lines:
            raise ValueError(
                "--skip-bad-lines takes parallel files from a disk: a pipe is read before its partner is. Received: "
                f"{' '.join(map(str, files))}. Write them to files."
            )
        return read_parallel(*files)
    pairs = ParallelFiles(*files)
    pairs.skip_bad_lines = reading.skip_bad_lines
    return pairs


def look_through(pairs: Pairs) -> Pairs:
    """The same pairs, read once: warnings go to standard error, and damage is an error now."""
    with warnings_told():
        len(pairs)
    return pairs


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """Writes the warnings of the block to standard error when it ends."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for warning in found:
        typer.echo(f"kformer: warning: {warning.message}", err=True)


def read_samples(file: Path | None) -> list[str]:
    """The lines of a file that are not blank; none without a file."""
    return [text for text, _ in read_texts(file) if text.strip()] if file is not None else []
