"""What the options of the command line choose: a model, a corpus, configurations."""

import pathlib
from typing import Any

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig, read_parts
from kformer.data import Corpus, corpus_from_pairs, load_corpus, read_parallel, read_tsv
from kformer.presets import find_preset
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder


def choose_model(model: pathlib.Path | None, preset: str | None) -> pathlib.Path:
    """The model that is named in one of two ways."""
    if (model is None) == (preset is None):
        raise ValueError("Name one model: a folder, or a model that kformer brings by --preset NAME.")
    return model if preset is None else find_preset(preset).path


def choose_decoding(beam_size: int | None, start: DecodingConfig | None = None) -> DecodingConfig | None:
    """Where a search begins, with the beam that is asked for; None where nothing is asked for."""
    return start if beam_size is None else (start or DecodingConfig()).replace(beam_size=beam_size)


def corpus_part(corpus: Corpus, split: str) -> list[tuple[str, str]]:
    """The pairs of one part of a corpus."""
    if split not in ("train", "valid", "test"):
        raise ValueError(f"--split must be train, valid or test. Received: {split}.")
    return getattr(corpus, split)


def start_of_new_run(
    size: str | None, recipe: str | None, initialize_from: str | None
) -> tuple[TransformerConfig, TrainingConfig]:
    """What a new run begins with: that of the recipe or of the size, and the sizes of the weights it begins with."""
    if recipe is not None and size is not None:
        raise ValueError("A recipe has its own sizes and settings. Leave out --size; --config changes single fields.")
    if recipe is not None:
        chosen = load_recipe(recipe)
        transformer, training = chosen.transformer, chosen.training
    else:
        transformer = TransformerConfig.of_size(size or "small")
        training = TrainingConfig.of_size(size or "small")
    if initialize_from is not None:
        transformer = find_preset(initialize_from).transformer_config()
    return transformer, training


def start_of_resumed_run(path: pathlib.Path) -> tuple[TransformerConfig, TrainingConfig] | None:
    """What a run that goes on has; None where there is none, which `train` says."""
    run = RunFolder(path)
    return (run.transformer_config(), run.training_config()) if run.exists() else None


def change(
    start: tuple[TransformerConfig, TrainingConfig] | None, file: pathlib.Path | None, options: dict[str, Any]
) -> tuple[TransformerConfig | None, TrainingConfig | None]:
    """Where a run begins or goes on, changed by the file, changed by the options."""
    parts = ("transformer", "training")
    changes: dict[str, Any] = read_parts(file, parts) if file is not None else {part: {} for part in parts}
    if start is None:
        return None, None
    given = {name: value for name, value in options.items() if value is not None}
    return start[0].replace(**changes["transformer"]), start[1].replace(**{**changes["training"], **given})


def choose_corpus(
    name: str | None,
    tsv: tuple[pathlib.Path | None, pathlib.Path | None],
    train_files: tuple[pathlib.Path | None, pathlib.Path | None],
    valid_files: tuple[pathlib.Path | None, pathlib.Path | None],
) -> Corpus:
    """The corpus that one of the three ways of naming it means."""
    ways = [name is not None, tsv[0] is not None, train_files != (None, None)]
    if sum(ways) != 1:
        raise ValueError(
            "train needs exactly one of --corpus NAME, --train PAIRS.tsv, or --train-source and --train-target "
            "(a recipe has a corpus of its own). "
            f"Received: {sum(ways)} of them."
        )
    for form, train, valid in (("", tsv[0], tsv[1:]), ("-source", train_files[0], valid_files)):
        if train is None and any(valid):
            raise ValueError(
                f"Validation files are of the form of the training data. Received: --valid{form} without "
                f"--train{form}. Give both parts as pairs or both as parallel files; a corpus by name has its own."
            )
    if name is not None:
        return load_corpus(name)
    if tsv[0] is not None:
        valid = read_tsv(tsv[1]) if tsv[1] is not None else None
        return corpus_from_pairs(str(tsv[0]), read_tsv(tsv[0]), valid)
    for side, files in (("train", train_files), ("valid", valid_files)):
        if (files[0] is None) != (files[1] is None):
            raise ValueError(f"--{side}-source and --{side}-target go together. Give both.")
    valid = read_parallel(*valid_files) if valid_files[0] is not None else None
    return corpus_from_pairs(str(train_files[0]), read_parallel(*train_files), valid)
