"""Divides long texts into the parts that a language model learns or reads at once.

Shape letters: B texts, P parts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kformer.data.encoding import Sequences


def pieces(text: str, longest: int) -> Iterator[str]:
    """The text in pieces of at most `longest` characters, cut at blanks where there are any.

    A text of many millions of characters would take too much memory while it is tokenized.
    """
    start = 0
    while len(text) - start > longest:
        blank = text.rfind(" ", start + 1, start + longest)
        end = start + longest if blank < 0 else blank
        yield text[start:end]
        start = end
    yield text[start:]


def divided(texts: Sequences, longest: int) -> Sequences:
    """The sequences in parts of at most `longest` ids. The ids stay the same, and no part is only an end id."""
    parts = np.maximum(1, -(-texts.counts // longest))
    counts = np.full(int(parts.sum()), longest, np.int64)
    last = np.cumsum(parts) - 1
    counts[last] = texts.counts - (parts - 1) * longest
    only_end = last[(counts[last] == 1) & (parts > 1)]
    counts[only_end] += 1
    counts[only_end - 1] -= 1
    return Sequences(texts.ids, counts)


class TextParts(NamedTuple):
    """The parts of texts that a language model reads at once."""

    ids: tf.RaggedTensor  # (P, None) int32
    text: tf.Tensor  # (P,) int64, the number of the text that a part belongs to
    is_last: tf.Tensor  # (P,) booleans, True for the last part of each text


def parts_of(ids: tf.RaggedTensor, longest: int) -> TextParts:
    """Divides texts, (B, None) int32 ids, into parts of at most `longest` ids. A text without ids is one part."""
    lengths = ids.row_lengths()
    number = tf.maximum(-(-lengths // longest), 1)  # (B,)
    text = tf.repeat(tf.range(ids.nrows()), number)
    index = tf.range(tf.reduce_sum(number)) - tf.gather(tf.cumsum(number, exclusive=True), text)  # in its text
    counts = tf.minimum(tf.gather(lengths, text) - index * longest, longest)
    parts = tf.RaggedTensor.from_row_lengths(ids.flat_values, counts)
    return TextParts(parts, text, index == tf.gather(number, text) - 1)
