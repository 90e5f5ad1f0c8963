"""Biases by the distance, each against its formula in plain NumPy.

Shape letters: H heads, T queries, S keys.
"""

import math

import keras
import numpy as np
import pytest

from kformer.layers import BucketedBias, LinearBias

B, H, T, S, K = 2, 3, 5, 7, 4


def numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_linear_biases_fall_with_the_distance():
    positions = LinearBias(4)
    bias = numbers(positions.score_bias(positions.table(T, offset=1), positions.table(S)))
    for head, slope in enumerate((0.25, 0.0625, 0.015625, 0.00390625)):
        expected = [[-slope * abs(query + 1 - key) for key in range(S)] for query in range(T)]
        np.testing.assert_allclose(bias[head], expected, rtol=1e-6)


def slopes(num_heads):
    """By the recursion of the authors' code; Bloom and MPT have the same slopes in the same order."""
    if math.log2(num_heads).is_integer():
        ratio = 2 ** (-8 / num_heads)
        return [ratio ** (head + 1) for head in range(num_heads)]
    power = 2 ** math.floor(math.log2(num_heads))
    return slopes(power) + slopes(2 * power)[0::2][: num_heads - power]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 24, 31, 112])
def test_each_number_of_heads_has_the_usual_slopes(num_heads):
    positions = LinearBias(num_heads)
    bias = numbers(positions.score_bias(positions.table(1, offset=1), positions.table(1)))  # at distance 1
    np.testing.assert_allclose(-bias[:, 0, 0], slopes(num_heads), rtol=1e-6)


def test_twelve_heads_have_the_slopes_of_eight_and_four_between_them():
    positions = LinearBias(12)
    bias = numbers(positions.score_bias(positions.table(1, offset=1), positions.table(1)))
    of_eight, between = [2.0**-head for head in range(1, 9)], [0.70710678, 0.35355339, 0.17677670, 0.08838835]
    np.testing.assert_allclose(-bias[:, 0, 0], of_eight + between, rtol=1e-6)


def bucket(distance, each_side, max_distance):
    """The bucket of T5 for a distance: keys behind the query have the upper half."""
    first, far, near = (each_side if distance > 0 else 0), abs(distance), each_side // 2
    if far < near:
        return first + far
    grown = near + int(math.log(far / near) / math.log(max_distance / near) * (each_side - near) + 1e-5)
    return first + min(grown, each_side - 1)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (12, 37)])
def test_buckets_are_narrow_near_by_and_wide_far_away(num_buckets, max_distance):
    positions, distances = BucketedBias(H, num_buckets, max_distance), np.arange(-300, 301)
    found = numbers(positions.buckets(distances)).tolist()
    assert found == [bucket(distance, num_buckets // 2, max_distance) for distance in distances.tolist()]
    assert len(set(found)) == num_buckets - 1  # none for the distance 0 behind the query


def test_each_bucket_has_a_bias_for_each_head():
    positions = BucketedBias(H, num_buckets=8, max_distance=6)
    positions.build((B, S, 12))
    positions.biases.assign(np.arange(8 * H).reshape(8, H))
    bias = numbers(positions.score_bias(positions.table(T), positions.table(S)))
    assert bias.shape == (H, T, S)
    for query, key in ((0, 0), (4, 2), (1, 6)):
        expected = bucket(key - query, 4, 6) * H + np.arange(H)
        assert bias[:, query, key].tolist() == expected.tolist()


def one_way_bucket(distance, num_buckets, max_distance):
    """The bucket of T5's decoder: all are for keys before the query."""
    back, near = max(-distance, 0), num_buckets // 2
    if back < near:
        return back
    grown = near + int(math.log(back / near) / math.log(max_distance / near) * (num_buckets - near) + 1e-5)
    return min(grown, num_buckets - 1)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (12, 37)])
def test_all_buckets_of_a_decoder_are_for_keys_before_the_query(num_buckets, max_distance):
    positions, distances = BucketedBias(H, num_buckets, max_distance, causal=True), np.arange(-300, 301)
    found = numbers(positions.buckets(distances)).tolist()
    assert found == [one_way_bucket(distance, num_buckets, max_distance) for distance in distances.tolist()]
    assert found[300:] == [0] * 301  # the query itself, and the keys after it
    assert set(found) == set(range(num_buckets))


def test_the_buckets_of_a_decoder_are_those_of_t5():
    # 16 distances with a bucket of their own, then 16 + ln(d / 16) / ln(8) 16: 20 / 16, 40 / 16 and 90 / 16.
    found = BucketedBias(H, causal=True).buckets(np.array([0, -1, -15, -16, -20, -40, -90, -127, -128, -5000]))
    assert numbers(found).tolist() == [0, 1, 15, 16, 17, 23, 29, 31, 31, 31]


def test_a_saved_decoder_keeps_its_one_way_buckets():
    layer = BucketedBias(H, num_buckets=8, max_distance=16, causal=True)
    again = BucketedBias.from_config(layer.get_config())
    assert np.asarray(again.buckets(np.array([0, -1, -2, -3]))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("sizes", "part"),
    [
        ({"num_buckets": 30}, 4),
        ({"num_buckets": 32, "max_distance": 8}, 4),
        ({"num_buckets": 32, "max_distance": 16, "causal": True}, 2),
    ],
)
def test_buckets_that_cannot_be_divided_are_refused(sizes, part):
    with pytest.raises(ValueError, match=f"multiple of 4, and max_distance above num_buckets / {part}. Received: "):
        BucketedBias(H, **sizes)
