"""The ids that an encoder-only model reads: of one text, or of two texts with a tab between them.

Shape letters: B texts, S tokens.
"""

from collections.abc import Sequence

import tensorflow as tf

from kformer.data.encoding import Sequences, rows_of
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.text_ops import string_tensor

TAB = "\t"


def encode_texts(text: tf.Tensor, tokenizer: Tokenizer) -> tf.RaggedTensor:
    """`[start] text [end]`, or for a pair of texts with a tab between them `[start] text [end] text [end]`.

    Args:
        text: (B,) string.
        tokenizer: Has the start and the end id.

    Returns:
        (B, None) int32.
    """
    parts = tf.strings.split(text, TAB, maxsplit=1)  # (B, 1 or 2)
    ids = tokenizer.tokenize(parts.flat_values)
    ended = tf.concat([ids, tf.fill([ids.nrows(), 1], tf.constant(tokenizer.end_id, tf.int32))], axis=1)
    return with_start(parts.with_flat_values(ended).merge_dims(1, 2), tokenizer)


def with_start(ids: tf.RaggedTensor, tokenizer: Tokenizer) -> tf.RaggedTensor:
    """The ids (B, None) after the start id."""
    return tf.concat([tf.fill([ids.nrows(), 1], tf.constant(tokenizer.start_id, tf.int32)), ids], axis=1)


def encoded_texts(texts: Sequence[str], tokenizer: Tokenizer) -> Sequences:
    """The ids of texts for training, as `encode_texts` makes them."""
    return rows_of(encode_texts(string_tensor(texts), tokenizer))
