"""Options that several commands have, and what they choose: a model, a search, a corpus, the start of a run.

Nothing here needs TensorFlow, except for the corpora of TensorFlow Datasets, which start it.
"""

import contextlib
import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kformer.cli.startup import start_tensorflow
from kformer.config import (
    MONITORS,
    SIZES,
    TASKS,
    DecodingConfig,
    TrainingConfig,
    TransformerConfig,
    check_scores,
    errors_name,
    read_parts,
    task_kind,
)
from kformer.data import (
    Corpus,
    Pairs,
    ParallelFiles,
    TextFile,
    TsvFile,
    corpus_from_pairs,
    load_corpus,
    open_pairs,
    read_parallel,
)
from kformer.data.sources.registry import CORPORA, FileSource, source_of
from kformer.presets import find_preset, preset_names
from kformer.recipes import load_recipe, recipe_names
from kformer.runs.folder import RunFolder
from kformer.wording import did_you_mean

Path = pathlib.Path
Files = tuple[Path | None, Path | None]

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
SizeName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Sizes and settings of a new run: {', '.join(SIZES)}. The default is small.",
        autocompletion=lambda: list(SIZES),
        rich_help_panel="Model",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Names of the columns of a tab-separated file, split by commas, such as source,target,attribution. "
        "The columns source and target are read, and a column second, if a classifier reads two texts. The default is "
        "source,target.",
        rich_help_panel="Data",
    ),
]


def choose_model(model: Path | None, preset: str | None) -> Path:
    """The model, named by its folder or as a preset."""
    if model is not None and preset is None:
        return model
    if preset is not None and model is None:
        return find_preset(preset).path
    raise ValueError("Name one model: a folder, or a model that comes with kformer by --preset NAME.")


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options by which a run folder searches; None for one that is not given, or that a command does not have."""

    recipe: str | None = None
    beam_size: int | None = None
    length_penalty: float | None = None
    max_source_length: int | None = None

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


def open_file(file: Path, columns: str | None, plain_text: bool = False) -> Pairs:
    """The pairs of a file, which is looked through at once: warnings go to standard error, and damage is an error now.

    Args:
        file: Tab-separated, of plain text, or with a suffix that says more.
        columns: The value of `--columns`, for a tab-separated file.
        plain_text: Whether a file of lines is plain text, for a task that learns from it.
    """
    lines: FileSource = TextFile if plain_text else TsvFile
    if columns is not None:
        lines = functools.partial(TsvFile, columns=tuple(columns.split(",")))
        if source_of(file, lines) is not lines:
            raise ValueError(f"--columns names the columns of tab-separated files, and {file} is none. Leave it out.")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pairs = open_pairs(file, lines)
        len(pairs)
    for warning in found:
        typer.echo(f"kformer: warning: {warning.message}", err=True)
    return pairs


def start_of_new_run(
    size: str | None, recipe: str | None, origin: RunFolder | None, task: str | None
) -> tuple[TransformerConfig, TrainingConfig]:
    """The configurations of a new run: those of the recipe or of the size, and the transformer of the first weights.

    Args:
        size, recipe, task: The values of `--size`, `--recipe` and `--task`.
        origin: The run with the first weights; None: they are random.
    """
    if recipe is not None and size is not None:
        raise ValueError("A recipe has its own sizes and settings. Leave out --size; --config changes single fields.")
    if recipe is not None:
        chosen = load_recipe(recipe)
        transformer, training = chosen.transformer, chosen.training
    else:
        transformer = TransformerConfig.of_size(size or "small")
        training = TrainingConfig.of_size(size or "small", task or transformer.task)
    if origin is not None:
        transformer = origin.transformer_config().replace(task=transformer.task)
    return transformer if task is None else transformer.replace(task=task), training


def start_of_resumed_run(path: Path, task: str | None) -> tuple[TransformerConfig, TrainingConfig] | None:
    """The configurations of a run to resume; None if there is no run, as in processes other than the main one.

    A `--task` that is given is taken: `kformer.train` refuses another one than the run's.
    """
    run = RunFolder(path)
    if not run.exists():
        return None
    transformer = run.transformer_config()
    return transformer if task is None else transformer.replace(task=task), run.training_config()


def task_in(file: Path | None) -> str | None:
    """The task that the file of `--config` names; None if it names none."""
    return None if file is None else read_parts(file, ("transformer", "training")).get("transformer", {}).get("task")


def change(
    start: tuple[TransformerConfig, TrainingConfig] | None,
    file: Path | None,
    options: dict[str, Any],
    task: str | None = None,
) -> tuple[TransformerConfig | None, TrainingConfig | None]:
    """The configurations that a run begins or goes on with, changed by the file, and then changed by the options.

    Args:
        start: Both, as they were; None: nobody knows them.
        file: The file of `--config`.
        options: Fields of the training by their names; None stands for an option that is not given.
        task: The value of `--task`.
    """
    changes: dict[str, Any] = read_parts(file, ("transformer", "training")) if file is not None else {}
    if start is None:
        return None, None
    transformer, training = start
    with errors_name(file) if file is not None else contextlib.nullcontext():
        of_option = {} if task is None else {"task": task}
        transformer = transformer.replace(**{**changes.get("transformer", {}), **of_option})
        training = training.replace(**changes.get("training", {}))
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("monitor", training.monitor) in MONITORS:  # `replace` refuses another one
        check_scores(transformer.task, given.get("monitor", training.monitor), training.scored_sources)
    return transformer, training.replace(**given)


def choose_corpus(
    name: str | None,
    tsv: Files,
    train_files: Files,
    valid_files: Files,
    columns: str | None = None,
    plain_text: bool = False,
) -> Corpus:
    """The corpus, given by its name, as files of pairs, or as parallel files.

    Args:
        name: The value of `--corpus`.
        tsv: Files of pairs, to train and to validate on.
        train_files: Two parallel files, source and target, to train on.
        valid_files: The same, to validate on.
        columns: The columns of the files of pairs.
        plain_text: Whether `tsv` are files of plain text instead, for a task that learns from it.
    """
    _check_ways(name, tsv, train_files, valid_files, columns)
    if name is not None:
        return read_corpus(name)
    train = _named(tsv[:1]) or _named(train_files)
    valid = _named(tsv[1:]) or _named(valid_files)

    def part(files: list[Path]) -> Pairs:
        if plain_text or len(files) == 1:
            return open_file(files[0], columns, plain_text)
        return _open_parallel(*files)

    if not valid:
        return corpus_from_pairs(str(train[0]), part(train))
    return corpus_from_pairs(str(train[0]), part(train), part(valid), valid_name=str(valid[0]))


def _open_parallel(source: Path, target: Path) -> Pairs:
    """The pairs of two parallel files, which are looked through at once; those of pipes are held."""
    if not (source.is_file() and target.is_file()):
        return read_parallel(source, target)
    pairs = ParallelFiles(source, target)
    len(pairs)
    return pairs


def _check_ways(name: str | None, tsv: Files, train_files: Files, valid_files: Files, columns: str | None) -> None:
    """Checks that there is exactly one corpus and that the files go together; arguments as in `choose_corpus`."""
    ways = [way for way in (name, tsv[0], *_named(train_files)[:1]) if way is not None]
    if len(ways) != 1:
        raise ValueError(
            "train needs exactly one of --corpus NAME, --train PAIRS.tsv, or --train-source and --train-target "
            f"(a recipe has a corpus of its own). Received: {len(ways)} of them. A run that is resumed needs "
            "the corpus that it began with."
        )
    for form, train, valid in (("", tsv[0], tsv[1:]), ("-source", train_files[0], valid_files)):
        if train is None and _named(valid):
            raise ValueError(
                f"Validation files must have the form of the training files. Received: --valid{form} without "
                f"--train{form}. Give both parts as pairs or both as parallel files; a named corpus has its own "
                "validation pairs."
            )
    for part, files in (("train", train_files), ("valid", valid_files)):
        if len(_named(files)) == 1:
            raise ValueError(f"--{part}-source and --{part}-target go together. Give both.")
    if columns is not None and tsv[0] is None:
        raise ValueError("--columns names the columns of tab-separated files. Give it together with --train.")


def _named(files: Sequence[Path | None]) -> list[Path]:
    return [file for file in files if file is not None]
