"""What classifiers and taggers share: an encoder over texts, and labels to choose from.

Shape letters: B texts, N labels.
"""

import abc
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig, answer_outputs
from kformer.data import Pairs
from kformer.data.pairs import MappedPairs, source_only
from kformer.layers import Cache
from kformer.models import build_model
from kformer.presets import find_preset
from kformer.process.forks import check_process
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.tasks.base import Task
from kformer.tasks.translator import TEXT
from kformer.text.codec import longest_source
from kformer.text.text_model import TextModel, is_one_text, model_function, text_tensor
from kformer.tokenizers import SymbolTokenizer, Tokenizer, load_tokenizers, train_tokenizers

NO_LABEL = b"\xe2\x81\x87"  # "⁇" in UTF-8


class LabelPredictor(TextModel, abc.ABC):
    """A trained encoder-only model that answers texts with labels.

    Args:
        model: From `kformer.models.build_model`.
        config: The model's configuration.
        source_tokenizer: Tokenizer of the texts.
        target_tokenizer: The labels.
        decoding: `max_source_length` is the largest number of tokens that the model reads; the rest is cut off.
        samples: Some texts of the kind that the model is made for. An export is checked with them.
        origin: Where the weights come from, see `RunFolder.origin`.
    """

    task: ClassVar[str]
    signatures: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        source_tokenizer: Tokenizer,
        target_tokenizer: SymbolTokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(self.task, model, config, source_tokenizer, target_tokenizer, decoding, samples, origin)

    @classmethod
    def from_preset(cls, preset: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads a trained model that comes with kformer, or a packed run folder, in float32.

        Args:
            preset: A name in `kformer.presets.preset_names()`, or the path of a run folder.
            decoding: See `from_run`.

        Raises:
            ValueError: There is no such model, or it is of another task.
        """
        return cls.from_run(find_preset(preset).path, decoding)

    @classmethod
    def from_run(cls, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads the best weights of a training run, in float32.

        Args:
            run: The path of the run folder.
            decoding: See the arguments of the class; by default as the folder says.

        Raises:
            FileNotFoundError: The folder is no run folder, or has no weights yet.
            ValueError: The run is of another task.
        """
        check_process()
        folder = RunFolder(pathlib.Path(run)).check()
        folder.check_task(cls.task)
        config = folder.transformer_config()
        model = build_model(config, "float32")
        load_weights(folder, model)
        source, labels = load_tokenizers(folder.tokenizer_folder)
        return cls(model, config, source, labels, folder.decoding_config(decoding), folder.samples(), folder.origin())

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, in the order of their probabilities in `answer`."""
        return self.target_tokenizer.symbols

    @property
    def longest(self) -> int:
        """The largest number of tokens that the model reads."""
        return longest_source(self.config, self.decoding)

    def __call__(self, texts: str | Sequence[str]) -> str | list[str]:
        """The answer for one text, or for each text of a list.

        Raises:
            ValueError: A text is not a string.
        """
        if is_one_text(texts):
            return self([texts])[0]
        found = self.function(text_tensor(texts))[answer_outputs(self.task)[0]]
        return [answer.decode("utf-8") for answer in found.numpy()]

    @model_function([TEXT])
    def function(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`answer` as a `tf.function`."""
        return self.answer(text)

    @abc.abstractmethod
    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs for texts (B,) string."""

    def build(self, dtype: Any) -> keras.Model:
        """See `Predictor.build`."""
        return build_model(self.config, dtype)

    def twin(self, model: keras.Model, cache: type[Cache]) -> Self:
        """See `Predictor.twin`. There is no search, so `cache` is not used."""
        return type(self)(model, *self._arguments()[1:])


class LabelTask(Task):
    """A task whose targets are labels: symbols without blanks."""

    def adapt(self, transformer: TransformerConfig) -> TransformerConfig:
        return transformer.replace(num_decoder_layers=0, embedding_tying="none")

    def train_tokenizers(self, pairs: Pairs, training: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
        source, _ = train_tokenizers(MappedPairs(source_only, pairs), training.replace(shared_vocabulary=True))
        return source, self._labels(pairs)

    def keep_tokenizers(
        self, tokenizers: tuple[Tokenizer, Tokenizer], earlier: str, pairs: Pairs
    ) -> tuple[Tokenizer, Tokenizer]:
        """The labels of an earlier run of this task are kept if they include all labels of the pairs."""
        labels = self._labels(pairs)
        kept = tokenizers[1]
        if earlier == self.name and isinstance(kept, SymbolTokenizer) and set(labels.symbols) <= set(kept.symbols):
            return tokenizers
        return tokenizers[0], labels

    def _labels(self, pairs: Pairs) -> SymbolTokenizer:
        return SymbolTokenizer.train(label for _, label in pairs)
