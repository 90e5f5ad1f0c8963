"""Tagging: a label for each word of a text, such as its part of speech or its punctuation.

Words are separated by blanks. A word may have several tokens. The model predicts the word's label at its first token,
as Devlin et al. (2019, section 5.3) do.

Shape letters: B texts, W words, S tokens.
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kformer.config import DecodingConfig, TrainingConfig
from kformer.data import EncodedPairs, Pair, Pairs
from kformer.data.arrangements import Arrangement, SourceToLabels
from kformer.data.encoded_ids import IdStore
from kformer.data.encoding import Sequences, encode_with, rows_of
from kformer.tasks.encoder_inputs import with_start
from kformer.tasks.label_task import NO_LABEL, LabelPredictor, LabelTask
from kformer.text.translate_texts import BATCH_TOKENS, in_batches
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import NUM_SPECIAL_IDS
from kformer.tokenizers.ragged import join, split, sums_before
from kformer.tokenizers.text_ops import collapse_whitespace, replace_invalid, string_tensor


class Words(NamedTuple):
    """The tokens of texts, and where their words begin."""

    ids: tf.RaggedTensor  # (B, None) int32: `[start] tokens [end]`
    first: tf.RaggedTensor  # (B, None) int64, the place of each word's first token in `ids`


def encode_words(text: tf.Tensor, tokenizer: Tokenizer) -> Words:
    """Splits texts (B,) at blanks, and tokenizes each word by itself. A word without any token gets the unknown id."""
    words = split(collapse_whitespace(replace_invalid(text)))  # (B, W)
    pieces = tokenizer.tokenize(words.flat_values)
    unknown = tf.fill([pieces.nrows(), 1], tf.constant(tokenizer.unknown_id, tf.int32))
    is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
    pieces = tf.concat([pieces, tf.RaggedTensor.from_tensor(unknown, lengths=is_empty)], axis=1)
    ids = words.with_flat_values(pieces).merge_dims(1, 2)
    ends = tf.fill([ids.nrows(), 1], tf.constant(tokenizer.end_id, tf.int32))
    first = sums_before(words.with_flat_values(pieces.row_lengths()))
    return Words(with_start(tf.concat([ids, ends], axis=1), tokenizer), first + 1)


class Tagger(LabelPredictor):
    """Finds a label for each word of a text.

    Examples:
        >>> tagger = Tagger.from_run("runs/punctuation")  # doctest: +SKIP
        >>> tagger("in the beginning god created the heavens")  # doctest: +SKIP
        'A a a, A a a a'
    """

    task = "tag"

    def answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the most probable label of each word.

        Args:
            text: (B,) string, UTF-8: words with blanks between them.

        Returns:
            `tags` (B,) string, a label for each word with blanks between them, "⁇" for words beyond the `longest`
            tokens; and `score` (B,) float32, the natural logarithm of the probability of all labels.
        """
        words = encode_words(text, self.source_tokenizer)
        labels = tf.concat([tf.constant(self.labels), tf.constant([NO_LABEL])], axis=0)

        def batch(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            source = tf.gather(words.ids, rows)[:, : self.longest].to_tensor(self.config.pad_id)
            first = tf.gather(words.first, rows)
            logits = self.model({"source": source}, training=False)[:, :, NUM_SPECIAL_IDS:]
            log_probs = tf.nn.log_softmax(logits)  # (B, S, N)
            best, score = tf.argmax(log_probs, axis=2), tf.reduce_max(log_probs, axis=2)  # (B, S)
            length = tf.shape(source, tf.int64)[1]
            is_read = first.flat_values < length
            places = tf.stack([first.value_rowids(), tf.minimum(first.flat_values, length - 1)], axis=1)
            chosen = tf.where(is_read, tf.gather_nd(best, places), len(self.labels))
            scores = first.with_flat_values(tf.where(is_read, tf.gather_nd(score, places), 0.0))
            return join(first.with_flat_values(tf.gather(labels, chosen)), " "), tf.reduce_sum(scores, axis=1)

        lengths = tf.cast(words.ids.row_lengths(), tf.int32)
        nothing = [tf.zeros((0,), tf.string), tf.zeros((0,), tf.float32)]
        tags, score = in_batches(lengths, BATCH_TOKENS, batch, nothing)
        return {"tags": tags, "score": score}

    def is_cut(self, text: tf.Tensor) -> tf.Tensor:
        return encode_words(text, self.source_tokenizer).ids.row_lengths() > self.longest

    def calibration_inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = encode_words(text, self.source_tokenizer).ids
        return {"source": ids[:, : self.longest].to_tensor(self.config.pad_id)}


class TagTask(LabelTask):
    """The task to give a label to each word of a text. The target has blanks between the labels."""

    name = "tag"

    def encode(
        self, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], max_length: int, store: IdStore | None = None
    ) -> EncodedPairs:
        source, labels = tokenizers

        def encode(pairs: Sequence[Pair]) -> tuple[Sequences, Sequences]:
            words = encode_words(string_tensor([text for text, _ in pairs]), source)
            tags = labels.tokenize(string_tensor([tags for _, tags in pairs]))
            ids, first = rows_of(words.ids), rows_of(words.first)
            starts = np.repeat(np.cumsum(ids.counts) - ids.counts, first.counts)  # where each word's text begins
            at_tokens = np.full(len(ids.ids), labels.pad_id, np.int32)
            at_tokens[starts + first.ids] = tags.flat_values.numpy()
            return ids, Sequences(at_tokens, ids.counts)

        return encode_with(encode, pairs, source, labels, max_length, store)

    def arrangement(self, tokenizers: tuple[Tokenizer, Tokenizer], training: TrainingConfig) -> Arrangement:
        return SourceToLabels(for_each_token=True)

    def load(self, run: str | pathlib.Path, decoding: DecodingConfig | None = None) -> Tagger:
        return Tagger.from_run(run, decoding)
