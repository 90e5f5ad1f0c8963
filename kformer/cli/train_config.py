"""The configurations of `kformer train`: an option for each field, and what wins over what.

A run begins with the settings of a size, of a recipe or of a run. The file of `--config` changes them, and an option on
the command line wins over all.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from kformer.cli.options import Path, RecipeName
from kformer.config import (
    MONITORS,
    SIZES,
    TrainingConfig,
    TransformerConfig,
    check_first_weights,
    check_guided_alignment,
    check_layers,
    check_positions,
    check_scores,
    check_subword_sampling,
    read_parts,
)
from kformer.config.fields import Field, fields_of
from kformer.presets import find_preset
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder

DEFAULT_SIZE = "small"
# The parts of a configuration file, with the settings of the default size.
PARTS: dict[str, TransformerConfig | TrainingConfig] = {
    "transformer": TransformerConfig.of_size(DEFAULT_SIZE),
    "training": TrainingConfig.of_size(DEFAULT_SIZE),
}
CONFIG_PARTS = (*PARTS, "data")  # of a configuration file; the last has the options that choose the corpus
# The fields that have no option, and the reasons.
WITHOUT_OPTION = {
    "source_vocab_size": "It is the number of tokens that the tokenizer of the source has.",
    "target_vocab_size": "It is the number of tokens that the tokenizer of the target has.",
    "pad_id": "The tokenizers decide it.",
    "start_id": "The tokenizers decide it.",
    "end_id": "The tokenizers decide it.",
}
# The fields whose option has another name than the field: both classes have a `max_length`.
OTHER_NAMES = {("transformer", "max_length"): "transformer_max_length"}
# Each field with an option: the name of the option, with underscores, and the field with its part of a file.
FIELDS: dict[str, tuple[str, Field]] = {
    OTHER_NAMES.get((part, field.name), field.name): (part, field)
    for part, start in PARTS.items()
    for field in fields_of(type(start))
    if field.name not in WITHOUT_OPTION
}


def _option(name: str) -> inspect.Parameter:
    """The option of a field: without a value, so that nothing is changed if it is not given."""
    part, field = FIELDS[name]
    help, default = field.meaning, getattr(PARTS[part], field.name)
    if field.choices:
        help += f" One of {', '.join(field.choices)}."
    if default not in (None, ""):
        help += f" Default: {default if not isinstance(default, bool) else 'yes' if default else 'no'}."
    kind = field.types[0]
    # What is a text and no name is a file, if it may be left out.
    metavar = None if kind is not str else "NAME" if field.choices else "FILE" if default is None else "TEXT"
    complete = (lambda: list(field.choices)) if field.choices else None
    option = typer.Option(help=help, metavar=metavar, autocompletion=complete, rich_help_panel=field.panel)
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


# Of the model's options, users need the task most.
FIELD_OPTIONS = [_option(name) for name in sorted(FIELDS, key=lambda name: name != "task")]


_model = functools.partial(typer.Option, rich_help_panel="Model")


@dataclasses.dataclass(frozen=True)
class StartOptions:
    """The options that choose the settings and the weights with which a run begins."""

    size: Annotated[
        str | None,
        _model(
            metavar="NAME",
            help=f"Sizes and settings of a new run: {', '.join(SIZES)}. The default is {DEFAULT_SIZE}.",
            autocompletion=lambda: list(SIZES),
        ),
    ] = None
    recipe: RecipeName = None
    config: Annotated[
        Path | None,
        _model(
            help="JSON or YAML with the fields to change, under `transformer:` and `training:`, and options that "
            "choose the corpus, under `data:`."
        ),
    ] = None
    initialize_from: Annotated[
        str | None,
        _model(
            metavar="RUN", help="Begin with the weights, the vocabulary and the sizes of a run folder or of a preset."
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class Changes:
    """What a user changes in the configurations.

    Attributes:
        transformer, training: The new values of fields, by the fields' names.
        origins: Where each value was given, an option or a file, by the part and the name of the field.
    """

    transformer: Mapping[str, Any]
    training: Mapping[str, Any]
    origins: Mapping[tuple[str, str], str]

    @contextlib.contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Puts before the message of a ValueError where the values of the fields were given that it names."""
        try:
            yield
        except ValueError as error:
            named = [where for (_, name), where in self.origins.items() if re.search(rf"\b{name}\b", str(error))]
            if not named:
                raise
            raise ValueError(f"{', '.join(dict.fromkeys(named))}: {error}") from error


def read_changes(file: Path | None, given: Mapping[str, Any]) -> Changes:
    """The changes by the file of `--config` and by the options of the fields, which win.

    Args:
        file: The value of `--config`.
        given: The values of all options in `FIELDS`; None stands for an option that is not given.
    """
    found = {} if file is None else read_parts(file, CONFIG_PARTS)
    values: dict[str, dict[str, Any]] = {part: found.get(part, {}) for part in PARTS}
    origins = {(part, name): str(file) for part, fields in values.items() for name in fields}
    for option, value in given.items():
        if value is not None:
            part, field = FIELDS[option]
            values[part][field.name] = value
            origins[part, field.name] = f"--{option.replace('_', '-')}"
    return Changes(values["transformer"], values["training"], origins)


def choose_configs(
    options: StartOptions, changes: Changes, run: RunFolder, goes_on: bool
) -> tuple[TransformerConfig | None, TrainingConfig | None]:
    """The configurations with which a run begins or goes on.

    Both are None if there is no run to go on with, as in processes other than the main one.

    Args:
        options: With which settings a new run begins.
        changes: What is changed in them.
        run: The run.
        goes_on: Whether it is resumed.
    """
    if not goes_on:
        return new_configs(options, changes)
    with changes.named_in_errors():
        if (options.size, options.recipe) != (None, None):
            # `kformer.train` refuses to resume with a size or recipe of other settings than the run's.
            start = _of_new_run(options, changes.transformer.get("task"), run)
        elif run.exists():
            start = run.transformer_config(), run.training_config()
        else:
            return None, None
        return _changed(*start, changes)


def new_configs(options: StartOptions, changes: Changes) -> tuple[TransformerConfig, TrainingConfig]:
    """The configurations with which a new run begins; arguments as of `choose_configs`."""
    with changes.named_in_errors():
        start = _of_new_run(options, changes.transformer.get("task"), resumed=None)
        transformer, training = _changed(*start, changes)
        _check_new_run(transformer, training, options.initialize_from)
        return transformer, training


def _of_new_run(
    options: StartOptions, task: str | None, resumed: RunFolder | None
) -> tuple[TransformerConfig, TrainingConfig]:
    """The configurations of the recipe or of the size, but the transformer of the first weights, if there are any.

    A resumed run has its own copy of that transformer.
    """
    if options.recipe is not None and options.size is not None:
        raise ValueError("A recipe has its own sizes and settings. Leave out --size; other options change fields.")
    if options.recipe is not None:
        recipe = load_recipe(options.recipe)
        transformer, training = recipe.transformer, recipe.training
    else:
        transformer = TransformerConfig.of_size(options.size or DEFAULT_SIZE)
        training = TrainingConfig.of_size(options.size or DEFAULT_SIZE, task or transformer.task)
    if options.initialize_from is not None:
        origin = resumed or find_preset(options.initialize_from)
        transformer = origin.transformer_config().replace(task=transformer.task)
    return transformer, training


def _changed(
    transformer: TransformerConfig, training: TrainingConfig, changes: Changes
) -> tuple[TransformerConfig, TrainingConfig]:
    transformer = transformer.replace(**changes.transformer)
    asked = {**training.to_dict(), **changes.training}
    if str(asked["monitor"]) in MONITORS:  # `replace` refuses another one
        check_scores(transformer.task, asked["monitor"], asked["scored_sources"])
    return transformer, training.replace(**changes.training)


def _check_new_run(transformer: TransformerConfig, training: TrainingConfig, initialize_from: str | None) -> None:
    """Refuses a transformer, first weights and tokens that do not suit the task, its texts or each other."""
    kinds = training.token_kinds
    teacher = None if training.word_level_teacher is None else find_preset(training.word_level_teacher)
    origin = None if initialize_from is None else find_preset(initialize_from)
    if teacher is not None:
        teacher.check_task(transformer.task)
        check_positions(teacher.transformer_config(), training)
    if origin is not None:
        check_first_weights(transformer.task, origin.transformer_config().task)
    if (known := origin or teacher) is not None:  # its tokenizers are kept
        kinds = known.training_config().token_kinds if known.training_file.is_file() else None
    check_subword_sampling(transformer.task, training, kinds)
    check_guided_alignment(transformer.task, training)
    check_layers(transformer)
    check_positions(transformer, training)
