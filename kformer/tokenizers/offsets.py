"""Where tokens stand in texts, in bytes of UTF-8, also where a text is normalized before it is tokenized.

Shapes: B batch. Ragged tensors are (B, None): a row for each text, an entry for each character or token.
"""

from typing import NamedTuple

import tensorflow as tf

from kformer.tokenizers.text_ops import replace_invalid, tf_text

_EXTRA = "\n"
_WIDEST_TEXT = 1 << 40  # bytes; keeps the texts of a batch apart in one rising list
# The characters of `text_ops.WHITESPACE`.
_SPACES = (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)


class Spans(NamedTuple):
    """The tokens of texts and their places. A token of no bytes has its end at its start."""

    ids: tf.RaggedTensor  # int32
    start: tf.RaggedTensor  # int64, first byte of the token in its text
    end: tf.RaggedTensor  # int64, first byte behind it


class Characters(NamedTuple):
    """The characters of a normalized text, and the places where they come from."""

    start: tf.RaggedTensor  # int64, first byte in the normalized text
    given_start: tf.RaggedTensor  # int64, first byte in the text as given
    given_end: tf.RaggedTensor  # int64, first byte behind it there


def decode(text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Code points, their first bytes, and the first bytes behind them. What is not UTF-8 is U+FFFD."""
    points, start = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="replace", replacement_char=0xFFFD)
    return points, start, next_of(start, byte_lengths(text))


def byte_lengths(text: tf.Tensor) -> tf.Tensor:
    """(B,) string to (B,) int64."""
    return tf.cast(tf.strings.length(text), tf.int64)


def is_space(points: tf.RaggedTensor) -> tf.RaggedTensor:
    """True for code points that are white space."""
    return points.with_values(tf.reduce_any(points.values[:, tf.newaxis] == tf.constant(_SPACES), axis=1))


def next_of(values: tf.RaggedTensor, last: tf.Tensor) -> tf.RaggedTensor:
    """The value behind each one in its row; `last` (B,) at the rows' ends."""
    return tf.concat([values, last[:, tf.newaxis]], axis=1)[:, 1:]


def previous_of(values: tf.RaggedTensor, first: tf.Tensor) -> tf.RaggedTensor:
    """The value before each one in its row; `first` (B,) at the rows' beginnings."""
    return tf.concat([first[:, tf.newaxis], values], axis=1)[:, :-1]


def in_rows(values: tf.Tensor, rows: tf.Tensor, number: tf.Tensor) -> tf.RaggedTensor:
    """Values in `number` rows; `rows` tells the row of each, rising."""
    return tf.RaggedTensor.from_value_rowids(values, tf.cast(rows, tf.int64), tf.cast(number, tf.int64))


def sums_before(values: tf.RaggedTensor) -> tf.RaggedTensor:
    """The sum of all values before each one in its row."""
    sums = tf.cumsum(values.values, exclusive=True)
    at_start = tf.gather(tf.concat([sums, [0]], axis=0), values.row_starts())
    return values.with_values(sums - tf.gather(at_start, values.value_rowids()))


def find(rising: tf.RaggedTensor, values: tf.RaggedTensor) -> tf.RaggedTensor:
    """How many entries of each row of `rising` are less than each value of the same row of `values`. int64."""
    keys = rising.values + rising.value_rowids() * _WIDEST_TEXT
    found = tf.searchsorted(keys, values.values + values.value_rowids() * _WIDEST_TEXT, out_type=tf.int64)
    return values.with_values(found - tf.gather(rising.row_starts(), values.value_rowids()))


def pick(values: tf.RaggedTensor, numbers: tf.RaggedTensor, behind: tf.Tensor) -> tf.RaggedTensor:
    """The values with these numbers in their rows; `behind` (B,) for the number behind the last one."""
    row_starts = tf.range(values.nrows()) + values.row_starts()  # each row has one entry more
    longer = tf.concat([values, behind[:, tf.newaxis]], axis=1)
    return numbers.with_values(tf.gather(longer.values, numbers.values + tf.gather(row_starts, numbers.value_rowids())))


def normalized_characters(text: tf.Tensor) -> Characters:
    """The characters of `text_ops.normalize_text(text)`, and where they stand in `text`."""
    _, given_start, _ = decode(text)
    valid = replace_invalid(text)  # has as many characters
    _, valid_start, _ = decode(valid)
    # The operations fail for an empty text, so each gets one more byte, with which nothing composes. They crash for a
    # batch of no texts, so there is one more.
    more = tf.concat([_EXTRA + valid, [_EXTRA]], axis=0)
    composed, changes = tf_text.normalize_utf8_with_offsets_map(more, "NFC")
    points, start, end = decode(composed)
    source = tf_text.find_source_offsets(changes, start) - len(_EXTRA)  # places in `valid`
    points, start, end, source = (values[:-1, len(_EXTRA) :] for values in (points, start, end, source))
    behind = byte_lengths(text)
    was_start = pick(given_start, find(valid_start, source), behind)
    # What composed a character reaches to the next one.
    return _collapsed(points, end - start, was_start, next_of(was_start, behind))


def _collapsed(
    points: tf.RaggedTensor, lengths: tf.RaggedTensor, was_start: tf.RaggedTensor, was_end: tf.RaggedTensor
) -> Characters:
    """What stays when a run of white space becomes one blank, or nothing at the ends of a text."""
    space = is_space(points)
    rows = tf.cast(space.nrows(), tf.int32)
    letters = tf.cast(tf.logical_not(space), tf.int64)
    last = tf.reduce_sum(letters, axis=1)
    is_inside = sums_before(letters).values < tf.gather(last, letters.value_rowids())
    follows_space = previous_of(space, tf.fill([rows], True))
    kept = space.with_values(tf.logical_not(space.values) | (tf.logical_not(follows_space.values) & is_inside))
    lengths = lengths.with_values(tf.where(space.values, tf.ones_like(lengths.values), lengths.values))
    space, lengths, was_start, was_end = (
        tf.ragged.boolean_mask(values, kept) for values in (space, lengths, was_start, was_end)
    )
    # A blank stands for all white space up to the next character.
    reach = next_of(was_start, tf.zeros([rows], tf.int64))
    was_end = was_end.with_values(tf.where(space.values, reach.values, was_end.values))
    return Characters(sums_before(lengths), was_start, was_end)


def given_places(
    characters: Characters, start: tf.RaggedTensor, end: tf.RaggedTensor, given: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Places in the text as given, (B,) `given`, of tokens whose places in the normalized text are known."""
    behind = byte_lengths(given)
    first = pick(characters.given_start, find(characters.start, start), behind)
    last = find(characters.start, end)
    reach = pick(characters.given_end, last.with_values(tf.maximum(last.values - 1, 0)), behind)
    has_bytes = end.values > start.values
    return first, first.with_values(tf.where(has_bytes, reach.values, first.values))


def joined_places(pieces: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """The pieces (strings) of each text joined, (B,) string, and where each one stands in it."""
    lengths = pieces.with_values(tf.cast(tf.strings.length(pieces.values), tf.int64))
    start = sums_before(lengths)
    return tf.strings.reduce_join(pieces, axis=1), start, start + lengths


def with_every_bad_byte_replaced(text: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Valid UTF-8 in which each byte that belongs to no character is a U+FFFD, as SentencePiece writes it.

    Returns:
        The text; and for each of its characters the first byte in it, and the first byte in the text as given. (Other
        decoders make one U+FFFD of several such bytes.)
    """
    letters = tf.strings.bytes_split(text)
    place = tf.ragged.range(letters.row_lengths())  # of each byte
    points, start = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="ignore")
    characters = tf.strings.unicode_encode(tf.expand_dims(points.values, 1), "UTF-8")
    lengths = tf.cast(tf.strings.length(characters), tf.int64)
    number = find(start, place + 1) - 1  # of the last character that begins at this byte or before it
    row_starts = tf.gather(start.row_starts(), number.value_rowids())
    index = row_starts + number.values
    empty = tf.zeros([1], tf.int64)  # for texts without any character
    begins = tf.gather(tf.concat([start.values, empty], axis=0), tf.maximum(index, 0))
    length = tf.gather(tf.concat([lengths, empty], axis=0), tf.maximum(index, 0))
    has_character = number.values >= 0
    is_first = has_character & (begins == place.values)
    is_bad = tf.logical_not(has_character & (place.values < begins + length))
    unit = tf.where(is_first, tf.gather(tf.concat([characters, [""]], axis=0), tf.maximum(index, 0)), "\ufffd")
    units = place.with_values(unit)
    kept = place.with_values(is_first | is_bad)
    units, origin = tf.ragged.boolean_mask(units, kept), tf.ragged.boolean_mask(place, kept)
    joined, first, _ = joined_places(units)
    return joined, first, origin
