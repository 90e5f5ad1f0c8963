"""Rows of different lengths, against the same in plain lists: also rows without values, and no rows at all."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.tokenizers import ragged

pytestmark = pytest.mark.tensorflow_only

SHAPES = [[3, 1, 2], [0, 2, 0], [2, 0, 0, 3, 0], [0], []]


def rows_of(lists):
    lengths = [len(row) for row in lists]
    return tf.RaggedTensor.from_row_lengths(tf.constant([v for row in lists for v in row], tf.int64), lengths)


def vector(values):
    return tf.constant(values, tf.int64)


@pytest.fixture(params=SHAPES, ids=str)
def lists(request):
    """Rising numbers in rows of these lengths."""
    generator = np.random.default_rng(7)
    return [sorted(generator.integers(0, 20, length).tolist()) for length in request.param]


def test_rows_of_values_and_back(lists):
    numbers = [number for number, row in enumerate(lists) for _ in row]
    values = vector([value for row in lists for value in row])
    assert ragged.row_ids(rows_of(lists)).numpy().tolist() == numbers
    assert ragged.in_rows(values, vector(numbers), len(lists)).to_list() == lists
    assert ragged.with_lengths(values, vector([len(row) for row in lists])).to_list() == lists


def test_values_are_kept_in_their_rows(lists):
    even = tf.math.floormod(rows_of(lists).values, 2) == 0
    assert ragged.kept(rows_of(lists), even).to_list() == [[value for value in row if value % 2 == 0] for row in lists]


def test_numbers_and_sums(lists):
    assert ragged.numbers(vector([len(row) for row in lists])).to_list() == [[*range(len(row))] for row in lists]
    assert ragged.sums(rows_of(lists)).numpy().tolist() == [sum(row) for row in lists]
    assert ragged.sums_before(rows_of(lists)).to_list() == [[sum(row[:at]) for at in range(len(row))] for row in lists]


def test_neighbours(lists):
    ends = [100 + number for number in range(len(lists))]
    following = [[*row[1:], end][: len(row)] for row, end in zip(lists, ends, strict=True)]
    before = [[end, *row][: len(row)] for row, end in zip(lists, ends, strict=True)]
    assert ragged.next_of(rows_of(lists), vector(ends)).to_list() == following
    assert ragged.previous_of(rows_of(lists), vector(ends)).to_list() == before


def test_places_in_rows_are_found_and_picked(lists):
    wanted = [[0, 7, 21] if number % 2 else [11] for number in range(len(lists))]
    less = [[sum(value < want for value in row) for want in wants] for row, wants in zip(lists, wanted, strict=True)]
    assert ragged.find(rows_of(lists), rows_of(wanted)).to_list() == less
    ends = [100 + number for number in range(len(lists))]
    picked = [[[*row, end][at] for at in places] for row, end, places in zip(lists, ends, less, strict=True)]
    assert ragged.pick(rows_of(lists), rows_of(less), vector(ends)).to_list() == picked


def test_strings_of_a_row_are_joined():
    strings = tf.ragged.constant([["a", "b"], [], ["c"]])
    assert ragged.join(strings).numpy().tolist() == [b"ab", b"", b"c"]
    assert ragged.join(strings, " ").numpy().tolist() == [b"a b", b"", b"c"]
