"""How often each of several corpora is seen."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from kformer.data import BatchPlan, encode_pairs
from kformer.data.encoded_ids import MemoryIds
from kformer.data.mixture import Mixture, passes_of


@pytest.mark.parametrize(
    ("sizes", "weights", "temperature", "passes"),
    [
        ([], [], 1, [1]),
        ([], [3], 2, [1]),
        ([7, 5], [], 1, [1, 1]),
        ([7, 5], [0.5, 0.5], 1, [1, 1]),
        ([7, 5], [3, 1], 1, [3, 1]),
        ([7, 5], [1, 1.5], 1, [2, 3]),
        ([7, 5, 3], [1, 2, 40], 1, [1, 2, 40]),
        ([10_000, 100], [], 2, [1, 10]),  # shares of 100 : 10, so 1 pass for 10
        ([10_000, 100], [], 1e9, [1, 100]),  # as many rows of each
        ([10_000, 100], [2, 1], 2, [1, 5]),
        ([10_000, 0, 100], [], 2, [1, 1, 10]),  # a corpus without pairs changes nothing
        ([0, 0], [], 2, [1, 1]),
    ],
)
def test_passes_are_the_smallest_whole_numbers_of_the_ratios(sizes, weights, temperature, passes):
    assert passes_of(sizes, weights, temperature) == passes


def test_ratios_that_are_not_whole_are_near():
    first, second = passes_of([10, 10], [1, np.pi])
    assert second / first == pytest.approx(np.pi, rel=0.01)


def test_weights_are_one_for_each_corpus():
    with pytest.raises(ValueError, match="a number for each of several corpora. Received: 3 for 2."):
        passes_of([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="a number for each of several corpora. Received: 2 for 1."):
        passes_of([], [1, 2])


def test_an_epoch_that_would_never_end_is_refused():
    with pytest.raises(ValueError, match=r"an epoch would have 2,000,001,000 pairs: a corpus is seen 2,000,000 times"):
        passes_of([1000, 1000], [1, 2_000_000])


@pytest.mark.parametrize(
    ("sizes", "passes"), [([7, 5], [1, 3]), ([13, 1, 3], [2, 11, 1]), ([5], [3]), ([1, 101], [7, 2])]
)
@pytest.mark.parametrize("stretch", [1, 4, 10, 1000])
def test_each_pair_is_there_as_often_as_its_corpus_has_passes(sizes, passes, stretch):
    mixture = Mixture(sizes, passes, stretch)
    assert len(mixture) == np.dot(sizes, passes)
    pairs = mixture.pairs_of(np.arange(len(mixture)))
    expected = np.repeat(passes, sizes)
    assert np.bincount(pairs).tolist() == expected.tolist()
    values = np.arange(100, 100 + sum(sizes))
    assert mixture.spread(values).tolist() == (100 + pairs).tolist()


def test_every_stretch_has_its_share_of_each_corpus():
    mixture = Mixture([600, 100], [1, 3], stretch=90)
    for start in range(0, 900, 90):
        pairs = mixture.pairs_of(np.arange(start, start + 90))
        assert np.sum(pairs < 600) == pytest.approx(60, abs=1)


# ---- in batches

SIZES = (31, 11)
PAIRS = [("a", "b")] * 13 + [("a b", "b")] * 18 + [("c", "c d")] * 4 + [("c", "c")] * 7


@pytest.fixture
def encoded(letters):
    return encode_pairs(PAIRS, letters, letters, max_length=8, store=MemoryIds(SIZES))


def sources(batches):
    """How often each first letter is in batches."""
    return collections.Counter(row[0] for inputs, _ in batches for row in inputs["source"].tolist() if row[0])


def test_encoded_parts_are_counted_without_what_is_left_out(letters):
    pairs = [("a", "b"), ("", "b"), ("a", "b"), ("c c c", "d"), ("c", "d")]
    found = encode_pairs(pairs, letters, letters, max_length=3, store=MemoryIds([3, 2]))
    assert (found.parts, found.kept) == ((2, 1), 3)
    assert encode_pairs(pairs, letters, letters, max_length=3).parts == ()


def test_an_epoch_has_the_passes_over_each_corpus(encoded):
    plan = BatchPlan(encoded, tokens_per_batch=12, passes=[1, 3])
    assert sources(plan.once(shuffle_seed=5)) == {4: 31, 6: 33}
    # A bucket of 3 rows or more: rounding leaves less than a batch of each bucket.
    epochs = itertools.islice(plan.endless(shuffle_seed=5), 4 * plan.steps_per_epoch)
    found = sources(epochs)
    assert found[6] / found[4] == pytest.approx(33 / 31, rel=0.1)


def test_numbers_of_a_plan_count_every_pass(encoded):
    plan = BatchPlan(encoded, tokens_per_batch=12, buckets=[(3, 3)], passes=[1, 3])
    rows = 31 + 33
    tokens = 13 * 2 + 18 * 3 + 3 * 11 * 2, 31 * 2 + 3 * (4 * 3 + 7 * 2)
    assert plan.shapes == ((4, 3, 3),)
    assert plan.batches_per_epoch == rows / 4
    assert plan.mean_tokens == (tokens[0] / 16, tokens[1] / 16)
    assert plan.padding_share == pytest.approx(1 - sum(tokens) / (rows * 6))


def test_one_pass_over_each_is_as_if_there_was_one_corpus(encoded):
    plan = BatchPlan(encoded, tokens_per_batch=12, passes=[1, 1])
    plain = BatchPlan(dataclasses.replace(encoded, parts=()), tokens_per_batch=12)
    for (found, _), (expected, _) in zip(plan.once(shuffle_seed=3), plain.once(shuffle_seed=3), strict=True):
        assert found["source"].tolist() == expected["source"].tolist()


def test_batches_begin_anywhere_with_several_passes(encoded):
    plan = BatchPlan(encoded, tokens_per_batch=12, passes=[2, 5])
    whole = [inputs["source"].tolist() for inputs, _ in itertools.islice(plan.endless(shuffle_seed=9), 60)]
    for start in (1, 17, 40):
        later = [inputs["source"].tolist() for inputs, _ in itertools.islice(plan.endless(9, start), 60 - start)]
        assert later == whole[start:]
