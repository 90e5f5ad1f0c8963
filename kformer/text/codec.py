"""Converts texts to the ids that a search takes, and the ids that it finds to texts, in TensorFlow operations.

Shape letters: B sentences, N hypotheses for each sentence, S source length, T target length.
"""

import dataclasses
import functools

import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.decoding.length_penalty import norm_of
from kformer.text.parts import Parts, divide, divide_lines
from kformer.text.tags import Tags, known_tags
from kformer.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class TextCodec:
    """Converts text to source ids, and target ids to text.

    Args:
        source_tokenizer: Tokenizer of the source texts that the model was trained on.
        target_tokenizer: Tokenizer of the target texts that the model was trained on.
        config: The model's configuration.
        decoding: The largest lengths of sources and translations.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    config: TransformerConfig
    decoding: DecodingConfig

    def encode(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Converts texts to source ids, and computes how long their translations may become.

        Tokens beyond `longest_part` are cut off: `divide` divides long texts before this.

        Args:
            text: (B,) string.

        Returns:
            (B, S) int32 source ids, each row closed by the end id (`Tokenizer.closing_ids`) and filled up with the pad
            id; and (B,) int32, the largest number of tokens of each translation, its end id included. An empty source
            gets the limit 0.
        """
        return self.pad(self.tokenize(text)[:, : self.longest_part])

    @functools.cached_property
    def tags(self) -> Tags | None:
        """The tags with which texts may begin; None: there are none."""
        return known_tags(self.decoding, self.source_tokenizer, self.target_tokenizer, self.config.start_id)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """(B, None) int32: the ids of whole sources (B,) string, each with its tag, if the model has tags there."""
        if self.tags is None:
            return self.source_tokenizer.tokenize(text)
        tag, rest = self.tags.split_whole(text)
        return self.tags.ids_behind(tag, self.source_tokenizer.tokenize(rest))

    def starts(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) int32: the id that stands before the translation of each whole source (B,) string."""
        if self.tags is None:
            return tf.fill(tf.shape(text), tf.constant(self.config.start_id, tf.int32))
        return self.tags.starts(self.tags.split_whole(text)[0])

    @property
    def never(self) -> tuple[int, ...]:
        """The ids besides the special ones that no translation has."""
        return () if self.tags is None else self.tags.start_ids

    def divide(self, text: tf.Tensor) -> Parts:
        """The parts of sources (B,) string that the model can read; each part has the tag of its line."""
        if self.tags is None:
            parts = divide(text, self.source_tokenizer, self.longest_line, self.longest_part)
            return parts._replace(start=tf.fill(tf.shape(parts.text), tf.constant(self.config.start_id, tf.int32)))
        lines, tags = self.tags.lines(text)[:2]
        parts = divide_lines(lines.numbered(), self.source_tokenizer, *self.room_behind_tags)
        tag = tf.gather(tags, parts.text)
        ids = self.tags.ids_behind(tag, parts.ids)
        return Parts(ids, tf.gather(lines.owner, parts.text), parts.gap, self.tags.starts(tag))

    def written(self, text: str) -> str:
        """A source as the model reads it: with its tag before it, if that is where the model has tags."""
        if self.tags is None:
            return text
        tag, rest = (one.numpy()[0].decode("utf-8").strip() for one in self.tags.split_whole(tf.constant([text])))
        return f"{tag} {rest}" if tag and rest and self.tags.tokens else rest

    @property
    def room_behind_tags(self) -> tuple[int, int]:
        """`longest_line` and `longest_part` without the tokens of a tag before a source, but at least 1."""
        tokens = 0 if self.tags is None else self.tags.tokens
        return max(1, self.longest_line - tokens), max(1, self.longest_part - tokens)

    def score_norm(self, lengths: tf.Tensor, length_penalty: float | tf.Tensor | None = None) -> tf.Tensor:
        """The length penalty by which a search divides log probabilities; 1 in greedy search, which divides by none.

        Args:
            lengths: int32, numbers of tokens of hypotheses, the end included.
            length_penalty: In place of the configuration's: 0 for none.

        Returns:
            float32, the shape of `lengths`.
        """
        exponent = self.decoding.length_penalty if length_penalty is None else length_penalty
        return norm_of(self.decoding.beam_rules)(lengths, exponent if self.decoding.beam_size > 1 else 0.0)

    @property
    def longest_part(self) -> int:
        """The largest number of tokens of a source, without the ids that close it."""
        closing = len(self.source_tokenizer.closing_ids)
        longest = longest_source(self.config, self.decoding) - closing
        if closing or self.config.longest_sequence is None:
            return longest
        return min(longest, self.config.longest_sequence - 1)  # `pad` adds a position

    @property
    def longest_line(self) -> int:
        """The largest number of tokens of a line that is not divided into its sentences, without its closing ids."""
        return min(self.decoding.longest_line - len(self.source_tokenizer.closing_ids), self.longest_part)

    def pad(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `encode`, for sources that are already ids: (B, None) int32, at most `longest_part` in a row."""
        lengths, closing = tf.cast(ids.row_lengths(), tf.int32), self.source_tokenizer.closing_ids
        source = ids.to_tensor(self.config.pad_id)
        more = max(1, len(closing))  # Without a position behind them, blank texts alone would have none.
        source = tf.pad(source, [[0, 0], [0, more]], constant_values=self.config.pad_id)  # (B, S)
        place = tf.range(tf.shape(source)[1]) - lengths[:, tf.newaxis]  # (B, S): 0 is the first one behind the ids
        for number, end in enumerate(closing):
            source = tf.where(place == number, end, source)
        limits = lengths + self.decoding.max_extra_length
        longest = longest_translation(self.config, self.decoding)
        if longest is not None:
            limits = tf.minimum(limits, longest)
        return source, tf.where(lengths > 0, limits, 0)

    def decode(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Converts the hypotheses of a search to texts.

        Args:
            result: N hypotheses for each sentence.
            limits: (B,) int32 from `encode`. An empty source, whose limit is 0, gets an empty translation of score 0.

        Returns:
            `translation` (B, N) string and `score` (B, N) float32.
        """
        shape = tf.shape(result.scores)
        tokens = tf.reshape(result.tokens, [-1, tf.shape(result.tokens)[2]])  # (B x N, T)
        translation = tf.reshape(self.target_tokenizer.detokenize(tokens), shape)
        has_source = limits[:, tf.newaxis] > 0  # (B, 1)
        return {
            "translation": tf.where(has_source, translation, ""),
            "score": tf.where(has_source, result.scores, 0.0),
        }

    def decode_best(self, result: SearchResult, limits: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `decode`, but only the best hypothesis of each sentence: `translation` (B,) and `score` (B,)."""
        return best(self.decode(result, limits))


def best(found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The best hypothesis of each text: (B, N) to (B,)."""
    return {name: values[:, 0] for name, values in found.items()}


def longest_source(config: TransformerConfig, decoding: DecodingConfig) -> int:
    """The largest number of tokens of a source that the model reads, its end id included."""
    bounds = (decoding.longest_source, config.longest_sequence)
    return min(bound for bound in bounds if bound is not None)


def longest_translation(config: TransformerConfig, decoding: DecodingConfig) -> int | None:
    """The largest number of tokens of any translation, or None if only the length of its source limits it."""
    bounds = (decoding.max_length, config.longest_sequence)
    return min((bound for bound in bounds if bound is not None), default=None)
