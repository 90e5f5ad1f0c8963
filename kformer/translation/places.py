"""Where the tokens of divided texts stand in the texts as given.

Shape letters: B texts, P pieces of them.
"""

from typing import NamedTuple

import tensorflow as tf

from kformer.tokenizers import Tokenizer
from kformer.tokenizers.offsets import byte_lengths, decode, find, in_rows, pick, sums_before
from kformer.tokenizers.text_ops import replace_invalid
from kformer.translation.parts import Pieces, is_longer, lines_of, short_pieces


class Places(NamedTuple):
    """Where the tokens of B texts stand in them."""

    start: tf.RaggedTensor  # (B, None) int64, first byte of each token
    end: tf.RaggedTensor  # (B, None) int64, first byte behind it
    overlong: tf.Tensor  # (B,) bool, True where one sentence has more tokens than the model reads


def locate(text: tf.Tensor, tokenizer: Tokenizer, longest: int) -> Places:
    """Where the tokens of the parts stand in the texts as given. Arguments as in `divide`, whose tokens they are."""
    lines, begin = lines_of(text)
    ids = tokenizer.tokenize(lines.texts)

    def shorter() -> tuple[Pieces, tf.Tensor]:
        return short_pieces(lines, ids, tokenizer, longest)

    def whole() -> tuple[Pieces, tf.Tensor]:
        return lines, tf.zeros_like(text, tf.bool)

    pieces, overlong = tf.cond(tf.reduce_any(is_longer(ids, longest)), shorter, whole)
    spans = tokenizer.tokenize_with_offsets(pieces.texts)
    # Pieces and gaps, one behind the other, are the text without white space at its ends and with U+FFFD for bad bytes.
    lengths, gaps = byte_lengths(pieces.texts), byte_lengths(pieces.gap)
    number = in_rows(gaps + lengths, pieces.owner, tf.size(text))
    first = sums_before(number).values + gaps + tf.gather(begin, pieces.owner)
    rows = tf.gather(first, spans.start.value_rowids())
    _, valid_start, _ = decode(replace_invalid(text))
    _, given_start, _ = decode(text)

    def in_text(place: tf.RaggedTensor) -> tf.RaggedTensor:
        owner = tf.gather(pieces.owner, place.value_rowids())
        there = in_rows(place.values + rows, owner, tf.size(text))
        return pick(given_start, find(valid_start, there), byte_lengths(text))

    return Places(in_text(spans.start), in_text(spans.end), overlong)
