"""The run folder: the files of one training run, and their names.

RUN/
  transformer.json, training.json   the configurations, with every default written out
  corpus.json                       facts about the corpus that it is trained on
  samples.json                      some validation sources: an export is tried on them
  decoding.json                     the model's search, and how long its training texts are
  origin.json                       where a model comes from that was trained elsewhere, and its licence
  environment.json                  versions of the packages that it is trained with
  tokenizer/                        both tokenizers
  initial/                          a small run folder with the initial weights, if they are those of another run
  word-level-teacher/               a small run folder with the model whose probabilities are learned, if there is one
  initial-embeddings.npz            the pretrained embeddings that the run began with, if there are any
  best.weights.h5                   the weights of the best validation
  weights/                          the weights of the last validations, for averaging
  checkpoint.npz                    everything needed to resume the run
  previous-checkpoint.npz           the one before it
  SHA256SUMS, weights/SHA256SUMS    checksums of the files above, except the checkpoints, which contain their own
  lock                              the process that trains here, see `kformer.runs.ownership`
  log.csv, tensorboard/             the logs of the run

A model that was not trained here has no `training.json`, `environment.json`, checkpoints or logs.

A packed run folder (`kformer.presets.pack_run`) has `packed-weights.npz` instead of `best.weights.h5`, `preset.json`
with facts about the model, always `decoding.json`, and no logs, checkpoints or other weights.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.files.checksums import check_folder, note_checksums, replacing_noted
from kformer.files.writing import write_json


class RunFolder:
    """Paths of a run folder, and its configurations.

    Args:
        path: The folder, which need not exist yet.
    """

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)

    transformer_file = property(lambda self: self.path / "transformer.json")
    training_file = property(lambda self: self.path / "training.json")
    decoding_file = property(lambda self: self.path / "decoding.json")
    corpus_file = property(lambda self: self.path / "corpus.json")
    samples_file = property(lambda self: self.path / "samples.json")
    environment_file = property(lambda self: self.path / "environment.json")
    origin_file = property(lambda self: self.path / "origin.json")
    preset_file = property(lambda self: self.path / "preset.json")
    tokenizer_folder = property(lambda self: self.path / "tokenizer")
    initial = property(lambda self: RunFolder(self.path / "initial"))
    word_level_teacher = property(lambda self: RunFolder(self.path / "word-level-teacher"))
    embeddings_file = property(lambda self: self.path / "initial-embeddings.npz")
    best_weights_file = property(lambda self: self.path / "best.weights.h5")
    packed_weights_file = property(lambda self: self.path / "packed-weights.npz")
    weights_folder = property(lambda self: self.path / "weights")
    checkpoint_file = property(lambda self: self.path / "checkpoint.npz")
    log_file = property(lambda self: self.path / "log.csv")
    tensorboard_folder = property(lambda self: self.path / "tensorboard")

    def copied_runs(self) -> tuple["RunFolder", ...]:
        """The folders of the run's own that hold copies of other runs. The first that exists gave it its tokenizers."""
        return self.initial, self.word_level_teacher

    def vocabulary_from(self) -> "RunFolder | None":
        """The copy of the run whose tokenizers this run has. None: it has learned its own."""
        return next((copy for copy in self.copied_runs() if copy.exists()), None)

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return self.transformer_file.is_file()

    def check_new(self) -> None:
        """Refuses to begin a run here.

        Raises:
            FileExistsError: A run has begun here already.
        """
        if self.exists():
            raise FileExistsError(
                f"{self.path} holds a run already. Go on with it by resume (`--resume`), or choose another folder."
            )
        if left := [file for file in (self.checkpoint_file, *self.kept_weights()) if file.exists()]:
            raise FileExistsError(
                f"{self.path} holds {left[0].name} of a run, but no {self.transformer_file.name}. Was a copy "
                "interrupted? Copy the whole folder again, or choose another folder."
            )

    def check_begun(self) -> None:
        """Refuses to go on with a run here.

        Raises:
            FileNotFoundError: No run has begun here.
        """
        if not self.exists():
            raise FileNotFoundError(
                f"{self.path} holds no run, so there is nothing to resume. Start without resume (`--resume`)."
            )

    def check(self) -> "RunFolder":
        """This folder, if a translator can be made from it.

        Raises:
            FileNotFoundError: It is no run folder, or it has no weights to translate with.
            DamagedFileError: A configuration, a description or a tokenizer was damaged or edited.
        """
        self._check_is_run()
        self.check_weights()
        self.check_files()
        return self

    def check_task(self, task: str) -> None:
        """Refuses a run of another task.

        Raises:
            ValueError: The run's model learned another task.
        """
        own = self.transformer_config().task
        if own != task:
            raise ValueError(f"{self.path} is a run of the task {own}. Expected: a run of the task {task}.")

    def check_weights(self) -> None:
        """Refuses a folder without weights to translate with.

        Raises:
            FileNotFoundError: It has none.
        """
        if not self.weights_file().is_file():
            if self.kept_weights():
                reason = f"somebody removed it. {self.kept_weights_remedy()}"
            else:
                reason = (
                    "the run has not reached its first validation. Go on with `kformer train --resume`, or wait for it."
                )
            raise FileNotFoundError(f"{self.path} has no {self.best_weights_file.name}: {reason}")

    def check_described(self) -> "RunFolder":
        """This folder, if a run has begun in it and its description is undamaged.

        Raises:
            FileNotFoundError: It is no run folder.
            DamagedFileError: A configuration, a description or a tokenizer was damaged or edited.
        """
        self._check_is_run()
        self.check_files()
        return self

    def _check_is_run(self) -> None:
        if self.exists():
            return
        remedy = "Name the folder that `kformer train --output` wrote."
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} does not exist. {remedy}")
        if (self.path / "config.json").is_file():
            remedy = (
                f"If it holds a model of another toolkit, `kformer import {self.path} NEW` makes a run folder of it."
            )
        raise FileNotFoundError(f"{self.path} is not a run folder: it has no {self.transformer_file.name}. {remedy}")

    def kept_weights_remedy(self) -> str:
        """What a user can do if the best weights are lost."""
        kept = len(self.kept_weights())
        if not kept:
            return "Restore it from a copy."
        return (
            f"The run has kept the weights of its last {kept} validations: `kformer average {self.path} NEW --last 1` "
            "makes a run folder of the last ones."
        )

    def check_files(self) -> None:
        """Checks configurations, tokenizers and descriptions. Weights and checkpoints are checked when they are read.

        Raises:
            DamagedFileError: One of the files was damaged or edited.
        """
        check_folder(self.path, but=(".h5", ".npz"))

    def note_files(self) -> None:
        """Notes the checksums of configurations, descriptions, tokenizers and best weights."""
        files = [self.transformer_file, self.training_file, self.decoding_file, self.corpus_file, self.samples_file]
        files += [
            self.environment_file,
            self.origin_file,
            self.preset_file,
            self.best_weights_file,
            self.packed_weights_file,
        ]
        files += self.tokenizer_folder.rglob("*")
        note_checksums(self.path, [file for file in files if file.is_file()])

    def write_config(self, file: pathlib.Path, config: TransformerConfig | TrainingConfig) -> None:
        """Writes `transformer_file` or `training_file`, whole or not at all, and notes its checksum."""
        with replacing_noted(file) as partial:
            config.save(partial)

    def weights_file(self) -> pathlib.Path:
        """The weights to translate with: the best ones, or the packed ones of a folder that has only those."""
        return self.best_weights_file if self.best_weights_file.is_file() else self.packed_weights_file

    def kept_weights(self) -> list[pathlib.Path]:
        """The weights of the last validations, oldest first."""
        return kept_weights_files(self.weights_folder)

    def last_weights(self, last: int | None = None) -> list[pathlib.Path]:
        """The weights of the `last` validations, or of all that the run has kept, oldest first.

        Raises:
            ValueError: The run has kept fewer, or none; or `last` is less than 1.
        """
        kept = self.kept_weights()
        count = len(kept) if last is None else last
        if last is not None and last < 1:
            raise ValueError(
                f"last is the number of validations whose weights are wanted, at least 1. Received: last={last}. Leave "
                f"it out for all that {self.path} has kept: {len(kept)}."
            )
        if not 1 <= count <= len(kept):
            asked = "" if last is None else f" Received: last={last}."
            raise ValueError(
                f"{self.path} has kept the weights of {len(kept)} validations.{asked} Ask for at most as many; a run "
                "keeps more with a larger keep_weights in its configuration."
            )
        return kept[-count:]

    def transformer_config(self) -> TransformerConfig:
        return TransformerConfig.load(self.transformer_file)

    def training_config(self) -> TrainingConfig:
        """How the model is trained.

        Raises:
            FileNotFoundError: It was not trained here.
        """
        if not self.training_file.is_file():
            raise FileNotFoundError(
                f"{self.path} has no {self.training_file.name}: its model was not trained here, so there is nothing to "
                "resume. Begin a new run with its weights by initialize_from (`--initialize-from`)."
            )
        return TrainingConfig.load(self.training_file)

    def reads_symbols(self) -> bool:
        """Whether the sources are symbols split by blanks, not sentences."""
        folder = self.tokenizer_folder
        sides = [file for side in ("shared", "source") if (file := folder / side / "tokenizer.json").is_file()]
        return any(_read_json(file)["kind"] == "symbols" for file in sides)

    def decoding_config(self, chosen: DecodingConfig | None = None) -> DecodingConfig:
        """The model's default search, which is that of `decoding.json`, or the paper's if there is no such file.

        Args:
            chosen: A search to use instead. What it does not say of the training data is taken from the default search.
        """
        own = DecodingConfig.load(self.decoding_file) if self.decoding_file.is_file() else DecodingConfig()
        return own if chosen is None else chosen.completed(own)

    def corpus(self) -> dict[str, Any]:
        """What `write_corpus` wrote."""
        return _read_json(self.corpus_file)

    def write_corpus(self, description: dict[str, Any]) -> None:
        """Notes what the run trains on: plain values, such as the corpus name and the number of pairs."""
        write_json(self.corpus_file, description)

    def samples(self) -> list[str]:
        """What `write_samples` wrote; empty where there is no such file."""
        return _read_json(self.samples_file) if self.samples_file.is_file() else []

    def write_samples(self, texts: Sequence[str]) -> None:
        """Keeps some typical source texts: an export is tried on them."""
        write_json(self.samples_file, list(texts))

    def environment(self) -> dict[str, str]:
        """What `write_environment` wrote; empty where nothing is known."""
        return _read_json(self.environment_file) if self.environment_file.is_file() else {}

    def write_environment(self, description: dict[str, str]) -> None:
        """Notes what the run trains with, see `kformer.runs.environment`."""
        write_json(self.environment_file, description)

    def preset(self) -> dict[str, Any]:
        """What `write_preset` wrote."""
        return _read_json(self.preset_file)

    def facts(self) -> dict[str, Any]:
        """What is known of the model: `corpus`, `environment`, of a model that was trained elsewhere `licence` and
        `provenance`, and of a packed one also `description` and `scores`."""
        facts: dict[str, Any] = {"environment": self.environment()}
        if self.corpus_file.is_file():
            facts["corpus"] = self.corpus()
        if self.origin_file.is_file():
            imported = _read_json(self.origin_file)
            provenance = f"{imported['name']}, imported from the format {imported['format']}"
            facts |= {"licence": imported["licence"], "provenance": provenance}
        packed = self.preset() if self.preset_file.is_file() else {}
        names = ("description", "licence", "provenance", "scores")
        return facts | {name: packed[name] for name in names if name in packed}

    def write_origin(self, description: dict[str, Any]) -> None:
        """Notes where the model comes from: see `kformer.importing.run.describe_origin`."""
        write_json(self.origin_file, description)

    def write_preset(self, description: dict[str, Any]) -> None:
        """Writes the facts about a packed model, see `kformer.presets.pack_run`."""
        write_json(self.preset_file, description)


def kept_weights_file(weights_folder: pathlib.Path, step: int) -> pathlib.Path:
    """The file of the weights after `step` updates, in the folder `weights/` of a run."""
    return weights_folder / f"step-{step:09}.weights.h5"


def kept_weights_files(weights_folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of `kept_weights_file` that are there, oldest first."""
    return sorted(weights_folder.glob("step-*.weights.h5"))


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}. Restore it from a copy.") from error
