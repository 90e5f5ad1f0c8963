"""The places (offsets in bytes) that the tokens of divided texts have in the original texts.

Shape letters: B texts, P pieces of them.
"""

from typing import NamedTuple

import tensorflow as tf

from kformer.text.codec import TextCodec
from kformer.text.parts import Pieces, is_longer, lines_of, short_pieces
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.offsets import byte_lengths, decode
from kformer.tokenizers.ragged import find, in_rows, pick, row_ids, sums_before
from kformer.tokenizers.text_ops import replace_invalid


class Places(NamedTuple):
    """The places of the tokens of B texts."""

    start: tf.RaggedTensor  # (B, None) int64, first byte of each token
    end: tf.RaggedTensor  # (B, None) int64, first byte after each token
    overlong: tf.Tensor  # (B,) bool, True where one sentence has more tokens than the model reads


def locate(codec: TextCodec, text: tf.Tensor) -> Places:
    """Where in the given texts (B,) string the tokens stand that `codec.divide` makes of them.

    Tokens of a tag have no bytes: they stand before the part that has them, in the text or not.
    """
    if codec.tags is None:
        return _locate(text, codec.source_tokenizer, *codec.room_behind_tags)
    tag, rest = codec.tags.split(text)
    places = _locate(rest, codec.source_tokenizer, *codec.room_behind_tags, tag)
    before = byte_lengths(text) - byte_lengths(rest)
    start, end = (
        side.with_values(side.values + tf.gather(before, row_ids(side))) for side in (places.start, places.end)
    )
    return Places(start, end, places.overlong)


def _locate(
    text: tf.Tensor, tokenizer: Tokenizer, longest_line: int, longest: int, tag: tf.Tensor | None = None
) -> Places:
    """As `locate`. Arguments as of `divide`, and (B,) string, the tags that are put before the parts."""
    lines, begin = lines_of(text)
    ids = tokenizer.tokenize(lines.texts)

    def shorter() -> tuple[Pieces, tf.Tensor]:
        return short_pieces(lines, ids, tokenizer, longest_line, longest)

    def whole() -> tuple[Pieces, tf.Tensor]:
        return lines, tf.zeros_like(text, tf.bool)

    pieces, overlong = tf.cond(tf.reduce_any(is_longer(ids, longest_line)), shorter, whole)
    spans = tokenizer.tokenize_with_offsets(pieces.texts)
    if tag is not None:
        has_ids = spans.start.row_lengths() > 0
        ids = tokenizer.tokenize(tf.where(has_ids, tf.gather(tag, pieces.owner), ""))
        nothing = ids.with_values(tf.zeros_like(ids.values, spans.start.dtype))
        spans = spans._replace(
            start=tf.concat([nothing, spans.start], axis=1), end=tf.concat([nothing, spans.end], axis=1)
        )
    # Pieces and gaps together are the text without white space at its ends, and with U+FFFD for invalid bytes.
    lengths, gaps = byte_lengths(pieces.texts), byte_lengths(pieces.gap)
    number = in_rows(gaps + lengths, pieces.owner, tf.size(text))
    first = sums_before(number).values + gaps + tf.gather(begin, pieces.owner)
    rows = tf.gather(first, row_ids(spans.start))
    _, valid_start = decode(replace_invalid(text))
    _, given_start = decode(text)

    def in_text(place: tf.RaggedTensor) -> tf.RaggedTensor:
        owner = tf.gather(pieces.owner, row_ids(place))
        there = in_rows(place.values + rows, owner, tf.size(text))
        return pick(given_start, find(valid_start, there), byte_lengths(text))

    return Places(in_text(spans.start), in_text(spans.end), overlong)
