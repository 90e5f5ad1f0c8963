"""Rows of different lengths, in few operations: TensorFlow's functions for them take up to 250 operations each.

A graph of many operations takes long to trace, to load and to start, even where its tensors are small.

Shapes: B rows, N values in all; a ragged tensor is (B, None).
"""

from collections.abc import Sequence

import tensorflow as tf

_WIDEST_ROW = 1 << 40  # keeps the rows apart in one sorted list


def row_ids(ragged: tf.RaggedTensor) -> tf.Tensor:
    """(N,) int64, the row of each value."""
    places = tf.range(tf.size(ragged.values, tf.int64))
    return (
        tf.squeeze(
            tf.raw_ops.UpperBound(
                sorted_inputs=_one_row(ragged.row_splits), values=_one_row(places), out_type=tf.int64
            ),
            0,
        )
        - 1
    )


def in_rows(values: tf.Tensor, rows: tf.Tensor, number: tf.Tensor) -> tf.RaggedTensor:
    """Values in `number` rows; `rows` holds the row of each value, in ascending order."""
    rows, bounds = tf.cast(rows, tf.int64), tf.range(tf.cast(number, tf.int64) + 1)
    splits = tf.raw_ops.LowerBound(sorted_inputs=_one_row(rows), values=_one_row(bounds), out_type=tf.int64)
    return tf.RaggedTensor.from_row_splits(values, tf.squeeze(splits, 0), validate=False)


def with_lengths(values: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Values in rows of these lengths."""
    splits = tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], axis=0)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def with_first(rows: tf.RaggedTensor, values: Sequence[int]) -> tf.RaggedTensor:
    """(B, None) integers, with values before each row that is not empty."""
    if not values:
        return rows
    lengths = len(values) * tf.cast(rows.row_lengths() > 0, tf.int64)
    firsts = tf.tile(tf.constant(values, rows.dtype), [tf.math.count_nonzero(lengths)])
    return tf.concat([with_lengths(firsts, lengths), rows], axis=1)


def split(texts: tf.Tensor, separator: bytes = b"") -> tf.RaggedTensor:
    """(B,) strings to (B, None): the pieces of each text; without a separator, those between white space of ASCII."""
    pieces = tf.raw_ops.StringSplitV2(input=texts, sep=separator)
    return in_rows(pieces.values, pieces.indices[:, 0], tf.size(texts))


def places(mask: tf.Tensor) -> tf.Tensor:
    """Where `mask` (N,) is true, int64, in rising order."""
    return tf.squeeze(tf.where(mask), 1)


def where_true(values: tf.Tensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """(B, T) to (B, None): in each row, the values for which `mask` (B, T) is true."""
    return with_lengths(tf.gather_nd(values, tf.where(mask)), tf.math.count_nonzero(mask, axis=1))


def kept(ragged: tf.RaggedTensor, mask: tf.Tensor) -> tf.RaggedTensor:
    """The values for which `mask` (N,) is true, in the same rows."""
    sums = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], axis=0)
    values = tf.gather(ragged.values, places(mask))
    return tf.RaggedTensor.from_row_splits(values, tf.gather(sums, ragged.row_splits), validate=False)


def numbers(lengths: tf.Tensor) -> tf.RaggedTensor:
    """Rows of these lengths, each with the numbers 0, 1, 2 and so on: int64."""
    ones = with_lengths(tf.ones([tf.reduce_sum(lengths)], tf.int64), lengths)
    return sums_before(ones)


def next_of(values: tf.RaggedTensor, last: tf.Tensor) -> tf.RaggedTensor:
    """The next value in the row for each value; `last` (B,) for the last value of each row."""
    rows, places = row_ids(values), tf.range(tf.size(values.values, tf.int64))
    is_last = places + 1 == tf.gather(values.row_limits(), rows)
    return values.with_values(tf.where(is_last, tf.gather(last, rows), tf.roll(values.values, -1, axis=0)))


def previous_of(values: tf.RaggedTensor, first: tf.Tensor) -> tf.RaggedTensor:
    """The previous value in the row for each value; `first` (B,) for the first value of each row."""
    rows, places = row_ids(values), tf.range(tf.size(values.values, tf.int64))
    is_first = places == tf.gather(values.row_starts(), rows)
    return values.with_values(tf.where(is_first, tf.gather(first, rows), tf.roll(values.values, 1, axis=0)))


def sums_before(values: tf.RaggedTensor) -> tf.RaggedTensor:
    """For each value, the sum of all values before it in its row."""
    sums = tf.concat([tf.cumsum(values.values, exclusive=True), [0]], axis=0)
    at_start = tf.gather(sums, tf.gather(values.row_starts(), row_ids(values)))
    return values.with_values(sums[:-1] - at_start)


def sums(values: tf.RaggedTensor) -> tf.Tensor:
    """(B,), the sum of each row."""
    before = tf.concat([[0], tf.cumsum(values.values)], axis=0)
    return tf.gather(before, values.row_limits()) - tf.gather(before, values.row_starts())


def join(strings: tf.RaggedTensor, separator: str = "") -> tf.Tensor:
    """(B,) string, the strings of each row joined."""
    return tf.strings.unsorted_segment_join(strings.values, row_ids(strings), strings.nrows(), separator)


def find(ascending: tf.RaggedTensor, values: tf.RaggedTensor) -> tf.RaggedTensor:
    """For each value, int64: how many entries of the same row of `ascending` are less. Each such row is sorted."""
    rows = row_ids(values)
    keys = ascending.values + row_ids(ascending) * _WIDEST_ROW
    wanted = values.values + rows * _WIDEST_ROW
    found = tf.raw_ops.LowerBound(sorted_inputs=_one_row(keys), values=_one_row(wanted), out_type=tf.int64)
    return values.with_values(tf.squeeze(found, 0) - tf.gather(ascending.row_starts(), rows))


def pick(values: tf.RaggedTensor, numbers: tf.RaggedTensor, past_end: tf.Tensor) -> tf.RaggedTensor:
    """The values at the indices `numbers` of their rows; `past_end` (B,) for an index one past the end of a row."""
    rows = row_ids(numbers)
    places = numbers.values + tf.gather(values.row_starts(), rows)
    is_past_end = places == tf.gather(values.row_limits(), rows)
    # One more value, because an index past the end of the last row must find one.
    inside = tf.gather(tf.concat([values.values, past_end[:1]], axis=0), places)
    return numbers.with_values(tf.where(is_past_end, tf.gather(past_end, rows), inside))


def _one_row(values: tf.Tensor) -> tf.Tensor:
    return tf.expand_dims(values, 0)
