"""The interface of a trained model of any task, which an export uses.

Shape letters: B texts.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self

import keras
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.layers import Cache
from kformer.tokenizers import Tokenizer


class Predictor(Protocol):
    """A trained model that answers texts: a `Translator`, a `Classifier`, a `Tagger` or a `LanguageModel`.

    Attributes:
        task: One of `kformer.config.TASKS`.
        signatures: Names of the further signatures that an export can have, see `kformer.export.signatures`.
        labels: What a classifier or tagger chooses from; () for the others.
        samples: Some texts of the kind that the model is made for.
        origin: Where the weights come from, see `RunFolder.origin`.
    """

    task: str
    signatures: tuple[str, ...]
    labels: tuple[str, ...]
    model: keras.Model
    config: TransformerConfig
    decoding: DecodingConfig
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    samples: tuple[str, ...]
    origin: Mapping[str, Any]

    def build(self, dtype: Any) -> keras.Model:
        """A new model of the same configuration, with random weights, under another dtype policy."""

    def twin(self, model: keras.Model, cache: type[Cache]) -> Self:
        """A copy of this predictor with another model from `build`, whose search uses this class of caches."""

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs for texts (B,) string; every output has B rows.

        Two of them, (B,) each, are the answer, a string, and its score, a float32. Their names are in
        `kformer.config.TASKS`.
        """

    @property
    def function(self) -> Any:
        """`answer` as a `tf.function`."""

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The model's inputs for sample texts, as in training. An int8 export measures ranges of numbers with them."""
