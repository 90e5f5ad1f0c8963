"""The run folder: what one training run leaves on disk, and under which names.

RUN/
  transformer.json, training.json   the configurations, with every default written out
  corpus.json                       what it is trained on
  environment.json                  versions of what it is trained with
  tokenizer/                        both tokenizers
  initial/                          the run whose weights it began with, if any: a small run folder
  best.weights.h5                   the weights of the best validation
  weights/                          those of the last validations, for an average
  checkpoint.npz                    everything needed to go on
  previous-checkpoint.npz           the one before it
  log.csv, tensorboard/             the course of the run

A run folder made to be passed on (`kformer.presets.pack_run`) has `packed-weights.npz` in place of `best.weights.h5`,
`preset.json` with what is to be said of it, and nothing of the run's course.
"""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from kformer import files
from kformer.config import TrainingConfig, TransformerConfig


class RunFolder:
    """Paths of a run folder, and its configurations.

    Args:
        path: The folder, which need not exist yet.
    """

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)

    transformer_file = property(lambda self: self.path / "transformer.json")
    training_file = property(lambda self: self.path / "training.json")
    corpus_file = property(lambda self: self.path / "corpus.json")
    environment_file = property(lambda self: self.path / "environment.json")
    preset_file = property(lambda self: self.path / "preset.json")
    tokenizer_folder = property(lambda self: self.path / "tokenizer")
    initial = property(lambda self: RunFolder(self.path / "initial"))
    best_weights_file = property(lambda self: self.path / "best.weights.h5")
    packed_weights_file = property(lambda self: self.path / "packed-weights.npz")
    weights_folder = property(lambda self: self.path / "weights")
    checkpoint_file = property(lambda self: self.path / "checkpoint.npz")
    log_file = property(lambda self: self.path / "log.csv")
    tensorboard_folder = property(lambda self: self.path / "tensorboard")

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return self.transformer_file.is_file()

    def check(self) -> "RunFolder":
        """This folder, if a translator can be made from it.

        Raises:
            FileNotFoundError: It is no run folder, or its run has kept no weights yet.
        """
        if not self.exists():
            raise FileNotFoundError(
                f"{self.path} is not a run folder: it has no {self.transformer_file.name}. "
                "Name the folder that `kformer train --output` wrote."
            )
        if not self.weights_file().is_file():
            raise FileNotFoundError(
                f"{self.path} has no {self.best_weights_file.name}: the run has not reached its first validation. "
                "Go on with `kformer train --resume`, or wait for it."
            )
        return self

    def weights_file(self) -> pathlib.Path:
        """The weights to translate with: the best ones, or the packed ones of a folder that has only those."""
        return self.best_weights_file if self.best_weights_file.is_file() else self.packed_weights_file

    def kept_weights(self) -> list[pathlib.Path]:
        """The weights of the last validations, oldest first."""
        return sorted(self.weights_folder.glob("step-*.weights.h5"))

    def transformer_config(self) -> TransformerConfig:
        return TransformerConfig.load(self.transformer_file)

    def training_config(self) -> TrainingConfig:
        return TrainingConfig.load(self.training_file)

    def corpus(self) -> dict[str, Any]:
        """What `write_corpus` wrote."""
        return _read_json(self.corpus_file)

    def write_corpus(self, description: dict[str, Any]) -> None:
        """Notes what the run trains on: plain values, such as the corpus name and the number of pairs."""
        files.write_json(self.corpus_file, description)

    def environment(self) -> dict[str, str]:
        """What `write_environment` wrote; empty where nothing is known."""
        return _read_json(self.environment_file) if self.environment_file.is_file() else {}

    def write_environment(self, description: dict[str, str]) -> None:
        """Notes what the run trains with, see `kformer.runs.environment`."""
        files.write_json(self.environment_file, description)

    def preset(self) -> dict[str, Any]:
        """What `write_preset` wrote."""
        return _read_json(self.preset_file)

    def write_preset(self, description: dict[str, Any]) -> None:
        """Notes what is to be said of a packed model, see `kformer.presets.pack_run`."""
        files.write_json(self.preset_file, description)


@contextlib.contextmanager
def derived_run(source: RunFolder, output: str | pathlib.Path) -> Iterator[RunFolder]:
    """Makes a run folder with what tells of `source` and with its tokenizers; the block adds the weights.

    The folder given lies beside `output` and gets that name if the block ends well: it appears whole or not at all.

    Raises:
        FileExistsError: `output` exists.
    """
    with files.new_folder(output) as folder:
        fresh = RunFolder(folder)
        for file in (source.transformer_file, source.training_file, source.corpus_file, source.environment_file):
            if file.is_file():
                shutil.copy(file, fresh.path)
        shutil.copytree(source.tokenizer_folder, fresh.tokenizer_folder)
        yield fresh


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
