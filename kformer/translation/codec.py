"""Texts to the ids that a search takes, and the tokens that it finds to texts: TensorFlow operations.

Shape letters: B sentences, N translations a sentence, S source length, T target length.
"""

import dataclasses

import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class TextCodec:
    """What is before and behind a model.

    Args:
        source_tokenizer: Makes the ids that the model was trained on.
        target_tokenizer: Makes text of the ids that the model gives.
        config: The model's configuration.
        decoding: Bounds of the lengths.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    config: TransformerConfig
    decoding: DecodingConfig

    def encode(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Source ids (B, S) int32 with end ids, and the most tokens of each translation (B,) int32."""
        ids = self.source_tokenizer.tokenize(text)[:, : longest_source(self.config, self.decoding) - 1]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        ends = tf.fill([ids.nrows(), 1], tf.constant(self.config.end_id, tf.int32))
        source = tf.concat([ids, ends], axis=1).to_tensor(default_value=self.config.pad_id)  # (B, S)
        limits = lengths + self.decoding.max_extra_length
        longest = longest_translation(self.config, self.decoding)
        if longest is not None:
            limits = tf.minimum(limits, longest)
        return source, tf.where(lengths > 0, limits, 0)  # nothing to say where nothing was said

    def decode(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """`translation` (B, N) string and `score` (B, N) float32 of the N hypotheses that a search found."""
        shape = tf.shape(result.scores)
        tokens = tf.reshape(result.tokens, [-1, tf.shape(result.tokens)[2]])  # (B x N, T)
        translation = tf.reshape(self.target_tokenizer.detokenize(tokens), shape)
        said = limits[:, tf.newaxis] > 0
        return {
            "translation": tf.where(said, translation, ""),
            "score": tf.where(said, result.scores, 0.0),
        }

    def decode_best(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text (B,) string and score (B,) float32 of the best hypothesis of each sentence."""
        found = self.decode(result, limits)
        return {"translation": found["translation"][:, 0], "score": found["score"][:, 0]}


def longest_source(config: TransformerConfig, decoding: DecodingConfig) -> int:
    """The most tokens of a source that are read, its end id among them."""
    if config.positional_encoding == "learned":
        return min(decoding.max_source_length, config.max_length)
    return decoding.max_source_length


def longest_translation(config: TransformerConfig, decoding: DecodingConfig) -> int | None:
    """The most tokens that any translation may have; None if only its source bounds it."""
    bounds = [decoding.max_length] if decoding.max_length is not None else []
    if config.positional_encoding == "learned":
        bounds.append(config.max_length)
    return min(bounds, default=None)
