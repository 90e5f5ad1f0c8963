"""The base class of all that answers texts: a trained model with its tokenizers.

Shape letters: B texts.
"""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig, answer_outputs
from kformer.layers import Cache
from kformer.models import build_model
from kformer.presets import find_preset
from kformer.process.forks import check_process
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.text.model_function import ModelFunction, is_one_text, model_function, require_tensorflow, text_tensor
from kformer.text.searcher import Searcher
from kformer.tokenizers import Tokenizer, load_tokenizers

TEXT = tf.TensorSpec([None], tf.string, name="text")
_FIXED = ("model", "config", "source_tokenizer", "target_tokenizer", "decoding")


class Predictor(tf.Module, abc.ABC):
    """A trained model that answers texts: a `Translator`, a `Classifier`, a `Tagger` or a `LanguageModel`.

    Its parts stay the same; the weights of its model may change. It can be pickled and copied: the copy has the weights
    that the model has at that time.

    Args:
        model: From `kformer.models.build_model`.
        config: The model's configuration.
        source_tokenizer: Tokenizer of the texts that the model reads.
        target_tokenizer: Tokenizer of what it answers.
        decoding: How to search, and how many tokens are read.
        samples: Some texts of the kind that the model is made for. An export is checked with them.
        facts: What is known of the model, see `RunFolder.facts`. An export states it.

    Attributes:
        task: One of `kformer.config.TASKS`.
        signatures: The methods that an export can have beside `answer`, each by the name of its signature.
        searcher: Searches for the answers; None for a model that does not search.

    Raises:
        ValueError: Keras runs on another backend than TensorFlow.
    """

    task: ClassVar[str]
    signatures: ClassVar[Mapping[str, ModelFunction]] = {}
    searcher: Searcher | None = None

    def __init__(
        self,
        model: keras.Model,
        config: TransformerConfig,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        samples: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        require_tensorflow(f"A {type(self).__name__}")
        _check_kinds(type(self).__name__, model, config)
        super().__init__(name=self.task.replace("-", "_"))
        self.model = model
        self.config = config
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.decoding = decoding or DecodingConfig()
        self.samples = tuple(samples)
        self.facts = dict(facts or {})

    @classmethod
    def from_preset(cls, preset: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads a trained model that comes with kformer, or a packed run folder, in float32. It downloads nothing.

        Args:
            preset: A name in `kformer.presets.preset_names()`, or the path of a run folder, such as
                `kformer.presets.pack_run` writes.
            decoding: See `from_run`. The scores of a preset were measured with its own search.

        Raises:
            ValueError: There is no such model, or it is of another task.
        """
        return cls.from_run(find_preset(preset).path, decoding)

    @classmethod
    def from_run(cls, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Self:
        """Reads the best weights of a training run, in float32.

        Args:
            run: The path of the run folder.
            decoding: How to search; by default as the folder says, or the paper's beam search if it says nothing.
                Fields for the lengths of texts that are None are those of the folder.

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
        tokenizers = load_tokenizers(folder.tokenizer_folder)
        return cls._of(model, config, tokenizers, folder.decoding_config(decoding), folder.samples(), folder.facts())

    @classmethod
    def _of(cls, model: keras.Model, config: TransformerConfig, tokenizers: Sequence[Tokenizer], *rest: Any) -> Self:
        """Calls the constructor with a source and a target tokenizer."""
        return cls(model, config, *tokenizers, *rest)

    def _parts(self) -> tuple[Any, ...]:
        """The arguments of `_of`, the model first."""
        tokenizers = (self.source_tokenizer, self.target_tokenizer)
        return self.model, self.config, tokenizers, self.decoding, self.samples, dict(self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._of, self._parts()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and name in self.__dict__:
            kind = type(self).__name__
            raise AttributeError(
                f"A {kind} keeps its {name}, because its functions are made for it. Make another one: "
                f"{kind}(model, config, ..., decoding=...). The weights of its model may change at any time."
            )
        super().__setattr__(name, value)

    @property
    def labels(self) -> tuple[str, ...]:
        """What a classifier or tagger chooses from; () for the others."""
        return ()

    def __call__(self, texts: str | Sequence[str]) -> str | list[str]:
        """The answer to one text, or to each text of a list.

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
        """The outputs for texts (B,) string; every output has B rows.

        Two of them, (B,) each, are the answer, a string, and its score, a float32. Their names are in
        `kformer.config.TASKS`.
        """

    def is_cut(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) string to (B,) bool: whether the end of a text is not read. A translator divides long texts instead."""
        return tf.fill(tf.shape(text), False)

    @abc.abstractmethod
    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The model's inputs for sample texts, as in training. An int8 export measures ranges of numbers with them."""

    def build(self, dtype: Any) -> keras.Model:
        """A new model of the same configuration, with random weights, under another dtype policy."""
        return build_model(self.config.replace(task=self.task), dtype)

    def with_decoding(self, decoding: DecodingConfig) -> Self:
        """A predictor with the same model that searches in another way."""
        model, config, tokenizers, _, *rest = self._parts()
        return self._of(model, config, tokenizers, decoding, *rest)

    def twin(self, model: keras.Model, cache: type[Cache]) -> Self:
        """A predictor like this one, with another model from `build`, whose search uses this class of caches."""
        other = self._of(model, *self._parts()[1:])
        if other.searcher is not None:
            other.searcher = dataclasses.replace(other.searcher, cache=cache)
        return other


def _check_kinds(predictor: str, model: Any, config: Any) -> None:
    """Refuses a model and a configuration that change places, or are something else.

    Raises:
        ValueError: An argument has the wrong class.
    """
    for name, value, kind in (("model", model, keras.Model), ("config", config, TransformerConfig)):
        if not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a {kind.__name__}. Received: a {type(value).__name__}. The arguments of a {predictor} "
                "are model, config, source_tokenizer and target_tokenizer, in this order."
            )
