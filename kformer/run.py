"""The run folder: what one training run leaves on disk, and under which names.

RUN/
  transformer.json, training.json   the configurations, with every default written out
  corpus.json                       what it was trained on
  tokenizer/                        both tokenizers
  best.weights.h5                   the weights of the best validation
  weights/                          those of the last validations, for an average
  checkpoint.npz                    everything needed to go on
  previous-checkpoint.npz           the one before it
  log.csv, tensorboard/             the course of the run
"""

import dataclasses
import json
import pathlib
from typing import Any

from kformer.config import TrainingConfig, TransformerConfig


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Paths of a run folder, and its configurations."""

    path: pathlib.Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", pathlib.Path(self.path))

    transformer_file = property(lambda self: self.path / "transformer.json")
    training_file = property(lambda self: self.path / "training.json")
    corpus_file = property(lambda self: self.path / "corpus.json")
    tokenizer_folder = property(lambda self: self.path / "tokenizer")
    best_weights_file = property(lambda self: self.path / "best.weights.h5")
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
        if not self.best_weights_file.is_file():
            raise FileNotFoundError(
                f"{self.path} has no {self.best_weights_file.name}: the run has not reached its first validation. "
                "Go on with `kformer train --resume`, or wait for it."
            )
        return self

    def kept_weights(self) -> list[pathlib.Path]:
        """The weights of the last validations, oldest first."""
        return sorted(self.weights_folder.glob("step-*.weights.h5"))

    def transformer_config(self) -> TransformerConfig:
        return TransformerConfig.load(self.transformer_file)

    def training_config(self) -> TrainingConfig:
        return TrainingConfig.load(self.training_file)

    def corpus(self) -> dict[str, Any]:
        """What `write_corpus` wrote."""
        return json.loads(self.corpus_file.read_text(encoding="utf-8"))

    def write_corpus(self, description: dict[str, Any]) -> None:
        """Notes what the run trains on: plain values, such as the corpus name and the number of pairs."""
        partial = self.corpus_file.with_name(self.corpus_file.name + ".partial")
        partial.write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(self.corpus_file)
