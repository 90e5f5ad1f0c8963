"""The places (offsets in bytes) that the tokens of divided texts have in the original texts.

Shape letters: B texts, P pieces of them.
"""

from typing import NamedTuple

import tensorflow as tf

from kformer.text.codec import TextCodec
from kformer.text.parts import Parts, Pieces, differs_from_last, divided_anywhere, is_longer, lines_of, short_pieces
from kformer.tokenizers.offsets import byte_lengths, decode
from kformer.tokenizers.ragged import find, in_rows, pick, row_ids, sums_before, with_lengths
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
        return _locate(codec, text, *lines_of(text))
    lines, tag, cut, rest, begin = codec.tags.lines(text)
    places = _locate(codec, rest, lines._replace(gap=lines.gap + cut), begin, tag)
    before = byte_lengths(text) - byte_lengths(rest)
    start, end = (
        side.with_values(side.values + tf.gather(before, row_ids(side))) for side in (places.start, places.end)
    )
    return Places(start, end, places.overlong)


def _locate(codec: TextCodec, text: tf.Tensor, lines: Pieces, begin: tf.Tensor, tag: tf.Tensor | None = None) -> Places:
    """As `locate`.

    Args:
        codec: The tokenizers and the largest lengths.
        text: (B,) string.
        lines: Its lines.
        begin: (B,) int64, how many bytes of white space stand before the first one.
        tag: (L,) string, the tags of the L lines, if the model has tags.
    """
    tokenizer, (longest_line, longest) = codec.source_tokenizer, codec.room_behind_tags
    ids, numbered = tokenizer.tokenize(lines.texts), lines.numbered()

    def shorter() -> tuple[Pieces, tf.Tensor]:
        return short_pieces(numbered, ids, tokenizer, longest_line, longest)

    def whole() -> tuple[Pieces, tf.Tensor]:
        return numbered, tf.zeros_like(lines.texts, tf.bool)

    pieces, of_lines = tf.cond(tf.reduce_any(is_longer(ids, longest_line)), shorter, whole)
    overlong = tf.math.unsorted_segment_max(tf.cast(of_lines, tf.int32), lines.owner, tf.size(text)) > 0
    spans = tokenizer.tokenize_with_offsets(pieces.texts)
    of_rows = tf.range(tf.size(pieces.owner))  # the piece of each row of tokens
    if tag is not None and codec.tags is not None:
        # A word that is longer than a part makes several, each with the tag.
        rows = divided_anywhere(Parts(spans.start, of_rows, pieces.gap), longest)
        start, end, of_rows = rows.ids, with_lengths(spans.end.values, rows.ids.row_lengths()), rows.text
        tags = tf.gather(tag, tf.gather(pieces.owner, of_rows))
        ids = codec.tags.source_ids(tf.where(start.row_lengths() > 0, tags, ""))
        first_token = tf.gather(tf.pad(start.values, [[0, 1]]), start.row_starts())
        place = tf.where(differs_from_last(of_rows), tf.zeros_like(first_token), first_token)
        before = ids.with_values(tf.gather(place, row_ids(ids)))
        spans = spans._replace(start=tf.concat([before, start], axis=1), end=tf.concat([before, end], axis=1))
    pieces = pieces._replace(owner=tf.gather(lines.owner, pieces.owner))
    # Pieces and gaps together are the text without white space at its ends, and with U+FFFD for invalid bytes.
    lengths, gaps = byte_lengths(pieces.texts), byte_lengths(pieces.gap)
    number = in_rows(gaps + lengths, pieces.owner, tf.size(text))
    first = sums_before(number).values + gaps + tf.gather(begin, pieces.owner)
    of_tokens = tf.gather(of_rows, row_ids(spans.start))
    rows = tf.gather(first, of_tokens)
    _, valid_start = decode(replace_invalid(text))
    _, given_start = decode(text)

    def in_text(place: tf.RaggedTensor) -> tf.RaggedTensor:
        owner = tf.gather(pieces.owner, of_tokens)
        there = in_rows(place.values + rows, owner, tf.size(text))
        return pick(given_start, find(valid_start, there), byte_lengths(text))

    return Places(in_text(spans.start), in_text(spans.end), overlong)
