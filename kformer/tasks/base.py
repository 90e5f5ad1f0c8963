"""The interface of all tasks."""

import abc
import pathlib
import pkgutil
from typing import ClassVar

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig, task_kind
from kformer.data import EncodedPairs, Pairs
from kformer.data.arrangements import Arrangement
from kformer.data.encoded_ids import IdStore
from kformer.runs.folder import RunFolder
from kformer.tasks.objective import Objective, cross_entropy
from kformer.tasks.predictor import Predictor
from kformer.tokenizers import Tokenizer


class Task(abc.ABC):
    """What a model learns: its data, its model, and what it answers when it is trained.

    Attributes:
        name: One of `kformer.config.TASKS`, where its description is.

    Examples:
        >>> task_of("tag").adapt(kformer.TransformerConfig()).num_decoder_layers
        0
    """

    name: ClassVar[str]

    def pairs(self, pairs: Pairs) -> Pairs:
        """A part of a corpus as this task uses it."""
        return pairs

    @abc.abstractmethod
    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        """The configuration for the task's model: an encoder-only model gets no decoder layers, for example."""

    @abc.abstractmethod
    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        """Learns the vocabularies of source and target.

        Raises:
            ValueError: The pairs do not suit the task: a label has a blank in it, for example.
        """

    def keep_tokenizers(
        self, tokenizers: tuple[Tokenizer, Tokenizer], earlier: str, pairs: Pairs
    ) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of a run that begins with the weights of a run of the task `earlier`, which has `tokenizers`.

        Layers of a vocabulary that is not kept begin with random weights.
        """
        return tokenizers

    @abc.abstractmethod
    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        """The ids of the pairs, which the store keeps, or else the memory."""

    @abc.abstractmethod
    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        """How batches of ids become inputs and labels of the model."""

    def training_arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        """As `arrangement`, of the batches that the model learns from. Those of validations never change at random."""
        return self.arrangement(tokenizers, training)

    def objective(self, transformer: TransformerConfig, training: TrainingConfig) -> Objective:
        """What the model is trained to do better; by default, to predict the labels."""
        return cross_entropy(transformer, training)

    @abc.abstractmethod
    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        """The predictor with the best weights of a run, in float32.

        Raises:
            ValueError: Models of this task give no answers.
        """

    def load_for_export(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        """As `load`, but also of a model that gives no answers: some formats keep the model alone."""
        return self.load(run, decoding)


def task_of(name: str) -> Task:
    """The task of this name.

    Raises:
        ValueError: There is none.

    Examples:
        >>> task_of("language-model").name
        'language-model'
    """
    return pkgutil.resolve_name(task_kind(name).implementation)()


def task_of_run(run: RunFolder) -> Task:
    """The task that the run's model learned.

    Examples:
        >>> task_of_run(kformer.presets.find_preset("cmudict")).name
        'translate'
    """
    return task_of(run.transformer_config().task)
