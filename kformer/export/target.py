"""Formats in which trained models leave kformer, and what they have in common: a folder that is whole or absent."""

import abc
import contextlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from kformer.config import task_kind
from kformer.export.model_card import write_card
from kformer.files.checksums import note_checksums
from kformer.files.writing import WriteError, new_folder, staging_folder, sync_tree
from kformer.runtime.export_description import DESCRIPTION_FILE
from kformer.runtime.paths import check_export_path
from kformer.runtime.versions import check_version, next_version
from kformer.tasks.predictor import Predictor
from kformer.tokenizers import SymbolTokenizer, Tokenizer


class Trial(NamedTuple):
    """What the trial of an export found out.

    Attributes:
        facts: For the description of the export.
        batch_seconds: How long the largest batch took that a server makes.
    """

    facts: dict[str, Any]
    batch_seconds: float


class ExportTarget(abc.ABC):
    """A format in which a trained model leaves kformer. The options of the format are the fields of its class.

    Attributes:
        name: Of the format.
        versioned: Whether each export is a new version in the given folder, as servers of SavedModels want it. If not,
            the given folder is the export.
    """

    name: ClassVar[str]
    versioned: ClassVar[bool] = True

    @abc.abstractmethod
    def check_options(self, predictor: Predictor) -> None:
        """Refuses options that are unknown or do not suit the predictor, before anything is written.

        Raises:
            ValueError: An option does not fit.
        """

    @abc.abstractmethod
    def write(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> None:
        """Writes the model.

        Args:
            predictor: What to export.
            folder: An empty folder, which becomes the new version.
            texts: Texts like those that the export will get.
            base: The folder of all versions, which messages name.
        """

    @abc.abstractmethod
    def check(self, predictor: Predictor, folder: pathlib.Path, texts: Sequence[str], base: pathlib.Path) -> Trial:
        """Tries out what `write` has written, and adds what the trial found out for those who run the export.

        Args:
            predictor: What was exported.
            folder: From `write`.
            texts: Both must answer them alike.
            base: The folder of all versions.

        Returns:
            What was found out.

        Raises:
            ValueError: The export does not run, or computes something else than the predictor.
        """

    def write_beside(self, base: pathlib.Path, trial: Trial) -> None:  # noqa: B027 (most formats have nothing there)
        """Writes what belongs beside the versions, and is not there yet. By default there is nothing."""


def export(
    predictor: Predictor,
    directory: str | pathlib.Path,
    target: ExportTarget,
    version: int | None = None,
    samples: Sequence[str] = (),
) -> pathlib.Path:
    """Writes `directory/<version>/` in a format, tries it out, and gives it its name. It appears whole or not at all.

    Args:
        predictor: What to export.
        directory: The model's base folder; made if missing.
        target: The format with its options.
        version: As in `export_saved_model`.
        samples: The same.

    Returns:
        The path of the new version.

    Raises:
        FileExistsError, OSError, ValueError: See `export_saved_model`.
    """
    if not isinstance(predictor, Predictor):
        raise ValueError(
            "The first argument of an export must be a kformer.Translator, Classifier, Tagger or LanguageModel. "
            f"Received: a {type(predictor).__name__}. Make a predictor of a model by its class, for example "
            "kformer.Translator(model, config, source_tokenizer, target_tokenizer)."
        )
    directory = pathlib.Path(directory)
    target.check_options(predictor)
    if not target.versioned:
        with new_folder(directory) as fresh:
            _fill(fresh, predictor, target, samples, directory)
        return directory
    check_export_path(directory)
    check_version(directory, next_version(directory) if version is None else version)
    with staging_folder(directory, "export") as fresh:
        trial = _fill(fresh, predictor, target, samples, directory)
        with write_errors_explained(directory):
            target.write_beside(directory, trial)
        return _named(fresh, directory, version)


def _fill(
    fresh: pathlib.Path,
    predictor: Predictor,
    target: ExportTarget,
    samples: Sequence[str],
    directory: pathlib.Path,
) -> Trial:
    """Writes everything of an export into the folder `fresh`, and tries it out."""
    texts = samples or predictor.samples or random_texts(predictor.source_tokenizer)
    target.write(predictor, fresh, texts, directory)
    trial = target.check(predictor, fresh, texts, directory)
    with write_errors_explained(directory):
        describe(fresh, predictor, {"format": target.name, **trial.facts})
        write_card(fresh, predictor, trial.facts)
        files = [file for file in fresh.rglob("*") if file.is_file()]
        note_checksums((fresh / DESCRIPTION_FILE).parent, files)
        sync_tree(fresh)
    return trial


def refuse_tags_before_targets(predictor: Predictor, engine: str) -> None:
    """Refuses a model for an engine whose translations all begin alike.

    Raises:
        ValueError: The translations of the model begin with tags.
    """
    if predictor.decoding.tags_start_targets:
        raise ValueError(
            f"{engine} begins all translations with the same token, but this model begins each with its tag: "
            f"{predictor.decoding.tags}. Export it as a SavedModel, or train one with tags_before='source'."
        )


@contextlib.contextmanager
def write_errors_explained(directory: pathlib.Path) -> Iterator[None]:
    """Turns an error in writing a file, also one of TensorFlow, into an OSError with a plain message."""
    try:
        with write_errors_of_tensorflow():
            yield
    except OSError as error:
        raise WriteError(
            f"The export could not be written to {directory}: {error.strerror or error}. No incomplete export remains "
            "there. Make room on that disk, or name a folder on another one."
        ) from error


@contextlib.contextmanager
def write_errors_of_tensorflow() -> Iterator[None]:
    """Turns an error of TensorFlow in writing a file into an OSError with the reason alone."""
    try:
        yield
    except tf.errors.OpError as error:
        # TensorFlow puts the path of its own temporary file before the reason, and the operation behind it.
        reason = error.message.strip().splitlines()[0].split("; ")[-1].split(" [Op:")[0].rstrip(".")
        raise OSError(reason) from error


def describe(folder: pathlib.Path, predictor: Predictor, facts: dict[str, Any]) -> None:
    """Writes what any loader needs to know of an exported model, see `kformer.runtime.export_description`."""
    symbols = predictor.source_tokenizer.kind == SymbolTokenizer.kind
    answers = {"task": predictor.task, "outputs": task_kind(predictor.task).outputs, "labels": predictor.labels}
    path = folder / DESCRIPTION_FILE
    path.parent.mkdir(exist_ok=True)
    description = {**facts, **predictor.decoding.to_dict(), "symbols": symbols, **answers}
    path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def random_texts(tokenizer: Tokenizer, number: int = 16) -> list[str]:
    """`number` texts of 1 to `number` random pieces; every call gives the same texts."""
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), [*tokenizer.special_ids()])
    pieces = np.random.default_rng(0).choice(ordinary, (number, number))
    ids = tf.RaggedTensor.from_tensor(pieces.astype("int32"), lengths=range(1, number + 1))
    return [text.decode("utf-8", "replace") for text in tokenizer.detokenize(ids).numpy()]


def _named(fresh: pathlib.Path, directory: pathlib.Path, version: int | None) -> pathlib.Path:
    """Gives a finished export its name: the version asked for, or the next one that no other export has taken."""
    while True:
        target = directory / str(next_version(directory) if version is None else version)
        try:
            # This fails if the version exists, since a folder that is not empty cannot be replaced.
            return fresh.rename(target)
        except OSError:
            if version is not None:
                check_version(directory, version)
            if version is not None or not target.exists():
                raise
