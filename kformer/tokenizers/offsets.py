"""Byte offsets of tokens in UTF-8 texts, also if a text is normalized before it is tokenized.

Shapes: B batch. Ragged tensors are (B, None): a row for each text, an entry for each character or token.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from kformer.tokenizers.ragged import find, join, kept, next_of, numbers, pick, previous_of, row_ids, sums, sums_before
from kformer.tokenizers.text_ops import replace_invalid, tf_text, trimmed
from kformer.writing_systems import MEANINGLESS, WHITESPACE

_EXTRA = "\n"
_SPACES, _MEANINGLESS = tuple(map(ord, WHITESPACE)), tuple(map(ord, MEANINGLESS))


class Spans(NamedTuple):
    """The tokens of texts and their byte offsets. For a token without bytes, `end` equals `start`."""

    ids: tf.RaggedTensor  # int32
    start: tf.RaggedTensor  # int64, first byte of the token in its text
    end: tf.RaggedTensor  # int64, first byte after the token


class Characters(NamedTuple):
    """The characters of a normalized text, and the places where they come from."""

    start: tf.RaggedTensor  # int64, first byte in the normalized text
    given_start: tf.RaggedTensor  # int64, first byte in the given text
    given_end: tf.RaggedTensor  # int64, first byte after the character in the given text


def decode(text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Code points, int32, and their first bytes, int64. Bytes that are not UTF-8 become U+FFFD."""
    return tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="replace", replacement_char=0xFFFD)


def byte_lengths(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) int64."""
    return tf.cast(tf.strings.length(text), tf.int64)


def is_space(points: tf.RaggedTensor) -> tf.RaggedTensor:
    """True for code points that are white space."""
    return points.with_values(_is_one_of(points.values, _SPACES))


def _is_one_of(points: tf.Tensor, chosen: Sequence[int]) -> tf.Tensor:
    return tf.reduce_any(points[:, tf.newaxis] == tf.constant(chosen), axis=1)


def read_characters(text: tf.Tensor) -> Characters:
    """The characters of `text_ops.read_text(text)`, and where they stand in `text`.

    A character that is not read belongs to the one before it.
    """
    points, given_start = decode(text)
    is_read = tf.logical_not(_is_one_of(points.values, _MEANINGLESS))
    read = tf.strings.unicode_encode(kept(points, is_read), "UTF-8")
    given, (_, start) = kept(given_start, is_read), decode(read)
    found, past_end = normalized_characters(read), byte_lengths(text)
    places = (pick(given, find(start, place), past_end) for place in (found.given_start, found.given_end))
    return Characters(found.start, *places)


def normalized_characters(text: tf.Tensor) -> Characters:
    """The characters of `text_ops.normalize_text(text)`, and where they stand in `text`."""
    _, given_start = decode(text)
    valid = replace_invalid(text)  # has the same number of characters
    _, valid_start = decode(valid)
    # The operations fail for an empty text, so each text gets one more byte, with which nothing composes. They crash
    # for a batch of no texts, so there is one more text.
    more = tf.concat([_EXTRA + valid, [_EXTRA]], axis=0)
    composed, changes = tf_text.normalize_utf8_with_offsets_map(more, "NFC")
    points, start = decode(composed)
    lengths = start.with_values(next_of(start, byte_lengths(composed)).values - start.values)
    source = tf_text.find_source_offsets(changes, start)
    source = source.with_values(source.values - len(_EXTRA))  # places in `valid`
    points, lengths, source = (_without_extra(values, start.values) for values in (points, lengths, source))
    past_end = byte_lengths(text)
    was_start = pick(given_start, find(valid_start, source), past_end)
    # A composed character comes from all bytes up to the start of the next one.
    return _collapsed(points, lengths, was_start, next_of(was_start, past_end))


def valid_characters(text: tf.Tensor) -> Characters:
    """The characters of `replace_invalid(text)`, and where they stand in `text`."""
    _, given_start = decode(text)
    _, start = decode(replace_invalid(text))  # has the same number of characters
    return Characters(start, given_start, next_of(given_start, byte_lengths(text)))


def _without_extra(values: tf.RaggedTensor, start: tf.Tensor) -> tf.RaggedTensor:
    """Without the first byte of each text, and without the last text, which has that byte alone."""
    rest = kept(values, start >= len(_EXTRA))
    return tf.RaggedTensor.from_row_splits(rest.values, rest.row_splits[:-1], validate=False)


def _collapsed(
    points: tf.RaggedTensor, lengths: tf.RaggedTensor, was_start: tf.RaggedTensor, was_end: tf.RaggedTensor
) -> Characters:
    """The characters that stay if each run of white space becomes one blank, or nothing at the ends of a text."""
    space = is_space(points)
    letters = space.with_values(tf.cast(tf.logical_not(space.values), tf.int64))
    is_inside = sums_before(letters).values < tf.gather(sums(letters), row_ids(letters))
    outside = tf.ones_like(space.row_starts(), tf.bool)
    follows_space = previous_of(space, outside).values
    stays = tf.logical_not(space.values) | (tf.logical_not(follows_space) & is_inside)
    lengths = lengths.with_values(tf.where(space.values, tf.ones_like(lengths.values), lengths.values))
    space, lengths, was_start, was_end = (kept(values, stays) for values in (space, lengths, was_start, was_end))
    # A blank stands for all white space up to the next character.
    reach = next_of(was_start, tf.zeros_like(was_start.row_starts())).values
    was_end = was_end.with_values(tf.where(space.values, reach, was_end.values))
    return Characters(sums_before(lengths), was_start, was_end)


def given_places(
    characters: Characters, start: tf.RaggedTensor, end: tf.RaggedTensor, given: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """From the tokens' offsets `start` and `end` in the normalized texts to those in the given texts, `given` (B,)."""
    past_end = byte_lengths(given)
    first = pick(characters.given_start, find(characters.start, start), past_end)
    last = find(characters.start, end)
    reach = pick(characters.given_end, last.with_values(tf.maximum(last.values - 1, 0)), past_end)
    has_bytes = end.values > start.values
    return first, first.with_values(tf.where(has_bytes, reach.values, first.values))


def joined_places(pieces: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The joined pieces (strings) of each text, (B,) string, and the start and end of each piece in that text."""
    lengths = byte_lengths(pieces.values)
    start = sums_before(pieces.with_values(lengths))
    return join(pieces), start, start.with_values(start.values + lengths)


def trimmed_places(pieces: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """As `joined_places`, of texts that are valid UTF-8 and have no white space at their ends.

    Bytes that are no characters become U+FFFD.
    """
    joined, *places = joined_places(pieces)
    valid = replace_invalid(joined)
    text, without = trimmed(valid), tf.strings.regex_replace(valid, r"^\s+", "")
    _, first = decode(joined)
    _, valid_first = decode(valid)
    cut, length = byte_lengths(valid) - byte_lengths(without), byte_lengths(text)

    def in_text(place: tf.RaggedTensor) -> tf.RaggedTensor:
        found = moved(pick(valid_first, find(first, place), byte_lengths(valid)), -cut)
        largest = tf.gather(length, row_ids(found))
        return found.with_values(tf.clip_by_value(found.values, tf.zeros_like(largest), largest))

    start, end = map(in_text, places)
    return text, start, end


def moved(places: tf.RaggedTensor, distance: tf.Tensor) -> tf.RaggedTensor:
    """Places in texts, each text's moved by its own distance, (B,) int64."""
    return places.with_values(places.values + tf.gather(distance, row_ids(places)))


def with_every_bad_byte_replaced(text: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Valid UTF-8 in which each byte that belongs to no character is a U+FFFD, as SentencePiece writes it.

    Returns:
        The new text; and for each of its characters the first byte in the new text, and the first byte in the given
        text. (Other decoders make one U+FFFD of several such bytes.)
    """
    place = numbers(byte_lengths(text))  # of each byte
    points, start = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="ignore")
    characters = tf.strings.unicode_encode(tf.expand_dims(points.values, 1), "UTF-8")
    # The number of the last character that begins at this byte or before it.
    number = find(start, place.with_values(place.values + 1)).values - 1
    index = tf.maximum(tf.gather(start.row_starts(), row_ids(place)) + number, 0)
    empty = tf.zeros([1], tf.int64)  # for texts without any character
    begins = tf.gather(tf.concat([start.values, empty], axis=0), index)
    length = tf.gather(tf.concat([byte_lengths(characters), empty], axis=0), index)
    has_character = number >= 0
    is_first = has_character & (begins == place.values)
    is_bad = tf.logical_not(has_character & (place.values < begins + length))
    unit = tf.where(is_first, tf.gather(tf.concat([characters, [""]], axis=0), index), "\ufffd")
    units, origin = (kept(values, is_first | is_bad) for values in (place.with_values(unit), place))
    joined, first, _ = joined_places(units)
    return joined, first, origin
