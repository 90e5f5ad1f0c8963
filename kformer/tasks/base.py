"""The interface of all tasks."""

import abc
import importlib
import pathlib
from collections.abc import Sequence
from typing import ClassVar

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import EncodedPairs, Pair
from kformer.data.arrangements import Arrangement
from kformer.runs.folder import RunFolder
from kformer.tasks.predictor import Predictor
from kformer.tokenizers import Tokenizer

# Name of a task, one of `kformer.config.TASKS`: its module and its class. A module is loaded when its task is used.
_CLASSES = {
    "translate": ("kformer.tasks.translate", "TranslateTask"),
    "classify": ("kformer.tasks.classify", "ClassifyTask"),
    "tag": ("kformer.tasks.tag", "TagTask"),
    "language-model": ("kformer.tasks.language_model", "LanguageModelTask"),
    "masked-language-model": ("kformer.tasks.masked_language_model", "MaskedLanguageModelTask"),
}


class Task(abc.ABC):
    """What a model learns: its data, its model, and what it answers when it is trained.

    Attributes:
        name: One of `kformer.config.TASKS`.
        translates: Whether translations of the validation sources can be scored, see `kformer.config.MONITORS`.

    Examples:
        >>> task_of("translate").translates, task_of("classify").translates
        (True, False)
    """

    name: ClassVar[str]
    translates: ClassVar[bool] = False

    def pairs(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """The pairs of a corpus as this task uses them."""
        return pairs

    @abc.abstractmethod
    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        """The configuration for the task's model: an encoder-only model gets no decoder layers, for example."""

    @abc.abstractmethod
    def train_tokenizers(self, pairs: Sequence[Pair], training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        """Learns the vocabularies of source and target.

        Raises:
            ValueError: The pairs do not suit the task: a label has a blank in it, for example.
        """

    def keep_tokenizers(
        self, tokenizers: tuple[Tokenizer, Tokenizer], earlier: str, pairs: Sequence[Pair]
    ) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of a run that begins with the weights of a run of the task `earlier`, which has `tokenizers`.

        Layers of a vocabulary that is not kept begin with random weights.
        """
        return tokenizers

    @abc.abstractmethod
    def encode(self, pairs: Sequence[Pair], tokenizers: tuple[Tokenizer, Tokenizer], max_length: int) -> EncodedPairs:
        """The ids of the pairs."""

    @abc.abstractmethod
    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        """How batches of ids become inputs and labels of the model."""

    @abc.abstractmethod
    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Predictor:
        """The predictor with the best weights of a run, in float32.

        Raises:
            ValueError: Models of this task give no answers.
        """


def task_of(name: str) -> Task:
    """The task of this name.

    Examples:
        >>> task_of("language-model").name
        'language-model'
    """
    module, kind = _CLASSES[name]
    return getattr(importlib.import_module(module), kind)()


def task_of_run(run: RunFolder) -> Task:
    """The task that the run's model learned.

    Examples:
        >>> task_of_run(kformer.presets.find_preset("cmudict")).name
        'translate'
    """
    return task_of(run.training_config().task)
