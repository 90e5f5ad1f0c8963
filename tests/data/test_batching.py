"""Buckets, shapes and padding."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from kformer.data import BatchPlan
from kformer.data.arrangements import Arrangement, Growth, ShiftedTarget
from kformer.data.buckets import FEW_BUCKETS, GOAL, MANY_BUCKETS, choose_buckets, count_lengths


def test_shapes_by_both_sides(make_encoded) -> None:
    # Bucket (4, 4): two pairs; (8, 4): one; (8, 8): two.
    encoded = make_encoded([(4, 2), (2, 5), (3, 3), (8, 2), (7, 7)])
    plan = BatchPlan(encoded, tokens_per_batch=17, buckets=[(4, 4), (8, 4), (8, 8), (16, 16)])
    assert plan.shapes == ((2, 4, 4), (1, 8, 4), (2, 8, 8))  # rows: 17 // 4, 17 // 8, but no more than there are pairs
    assert (plan.steps_once, plan.steps_per_epoch) == (3, 3)
    # Both sides: 24 + 19 tokens in 2 * 8 + 12 + 2 * 16 positions.
    assert plan.padding_share == pytest.approx(1 - 43 / 60)
    assert plan.mean_tokens == (24 / 3, 19 / 3)  # in three batches


def test_a_batch_has_at_least_one_row(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(9, 9), (9, 9)]), tokens_per_batch=5, buckets=[(9, 9)])
    assert (plan.shapes, plan.steps_once) == (((1, 9, 9),), 2)


def test_rows_are_a_multiple_for_the_devices_that_share_them(make_encoded) -> None:
    encoded = make_encoded([(4, 4)] * 20 + [(8, 8)] * 3)
    plan = BatchPlan(encoded, tokens_per_batch=40, buckets=[(4, 4), (8, 8)], row_multiple=4)
    assert plan.shapes == ((8, 4, 4), (4, 8, 8))  # 40 // 4 is rounded down; three rows of 8 are rounded up


def test_pairs_fewer_than_the_devices_come_again_in_the_same_batch(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(2, 2), (2, 2)]), tokens_per_batch=4, buckets=[(2, 2)], row_multiple=5)
    inputs, _ = next(plan.endless(shuffle_seed=None))
    first, second = inputs["source"][:2, 0]
    assert inputs["source"][:, 0].tolist() == [first, second, first, second, first]
    (once,) = plan.once(shuffle_seed=None)  # a validation counts every pair once
    assert once[0]["source"][:, 0].tolist() == [first, second, 0, 0, 0]


def test_rows_can_be_a_multiple_of_one_and_more_only(make_encoded) -> None:
    with pytest.raises(ValueError, match="row_multiple must be at least 1. Received: row_multiple=0"):
        BatchPlan(make_encoded([(2, 2)]), tokens_per_batch=4, row_multiple=0)


@pytest.mark.parametrize(
    ("pairs", "batches", "steps"),
    [
        (2, Fraction(2, 5), 1),  # an epoch of less than a batch has a step all the same
        (5, Fraction(1), 1),
        (7, Fraction(7, 5), 1),
        (8, Fraction(8, 5), 2),
        (10, Fraction(2), 2),
    ],
)
def test_an_epoch_has_the_nearest_number_of_whole_batches(pairs, batches, steps, make_encoded) -> None:
    plan = BatchPlan(make_encoded([(4, 4)] * pairs), tokens_per_batch=20, buckets=[(4, 4)], row_multiple=5)
    assert (plan.batches_per_epoch, plan.steps_per_epoch) == (batches, steps)
    assert plan.steps_once == -(-pairs // 5)


class Drawn(Arrangement):
    """It gives one random number in place of a batch."""

    inputs = ()

    def arrange(self, rows, generator):
        return generator.integers(1 << 62)


def test_every_batch_has_random_numbers_of_its_own_and_the_seed_decides(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(2, 2)] * 6 + [(5, 5)] * 6), 10, [(3, 3), (6, 6)], arrangement=Drawn())
    steps = plan.steps_once
    assert steps == 8  # two of three short rows, six of a long one

    def drawn(seed):
        return list(itertools.islice(plan.endless(shuffle_seed=seed), 3 * steps))

    assert len({*drawn(1), *drawn(2)}) == 6 * steps
    assert drawn(1) == drawn(1)
    once = [list(plan.once(shuffle_seed=seed)) for seed in (1, 1, 2)]
    assert once[0] == once[1]
    assert len({*once[0], *once[2]}) == 2 * steps


class Growing(ShiftedTarget):
    """Sources become half as long again, and targets twice as long."""

    def growth(self, pairs):
        return Growth(0.5, 0.0), Growth(1.0, 0.0)


def test_rows_have_room_for_texts_that_become_longer_up_to_the_largest_length(make_encoded) -> None:
    encoded = make_encoded([(4, 4)] * 40 + [(10, 8)] * 40, max_length=13)
    plan = BatchPlan(encoded, 48, [(4, 4), (10, 8)], arrangement=Growing())
    assert plan.buckets == ((4, 4), (10, 8))
    assert plan.shapes == ((6, 6, 8), (3, 13, 13))
    assert plan.batches_per_epoch == Fraction(40, 6) + Fraction(40, 3)
    assert plan.mean_tokens == pytest.approx((1.5 * 14 * 40 / 20, 2 * 12 * 40 / 20))
    assert {labels.shape for _, labels in plan.once(shuffle_seed=None)} == {(6, 8), (3, 13)}


def test_no_bucket_at_all_is_refused(make_encoded) -> None:
    with pytest.raises(ValueError, match="max_buckets must be at least 1. Received: max_buckets=0"):
        BatchPlan(make_encoded([(2, 2)]), tokens_per_batch=4, max_buckets=0)


def test_two_lengths_need_two_buckets() -> None:
    lengths = np.array([5] * 30 + [17] * 30)
    assert choose_buckets(lengths, lengths, 68) == [(5, 5), (17, 17)]


def test_sources_are_cut_within_a_target_length() -> None:
    source = np.array([3] * 40 + [30] * 40)
    assert choose_buckets(source, np.full(80, 7), 60) == [(3, 7), (30, 7)]


def test_a_bucket_has_pairs_for_a_batch() -> None:
    # 60 tokens: 12 rows of 5, 10 rows of 6, 3 rows of 17. Two short pairs do not fill a batch of any length.
    lengths = np.array([5] * 2 + [17] * 30)
    assert choose_buckets(lengths, lengths, 60) == [(17, 17)]
    lengths = np.array([5] * 12 + [17] * 30)
    assert choose_buckets(lengths, lengths, 60) == [(5, 5), (17, 17)]
    lengths = np.array([5] * 11 + [17] * 30)
    assert choose_buckets(lengths, lengths, 60) == [(5, 6), (17, 17)]


def test_a_long_target_leaves_few_rows_so_that_few_short_sources_fill_a_batch() -> None:
    # 60 tokens: two rows beside a target of 30, though there would be 20 rows of a source of 3.
    source = np.array([3] * 10 + [30] * 10)
    assert choose_buckets(source, np.full(20, 30), 60) == [(3, 30), (30, 30)]


def test_no_more_buckets_than_are_allowed() -> None:
    lengths = np.repeat([5, 17, 30, 60], 40)
    assert choose_buckets(lengths, lengths, 60) == [(5, 5), (17, 17), (30, 30), (60, 60)]
    assert len(choose_buckets(lengths, lengths, 60, max_buckets=2)) == 2
    assert choose_buckets(lengths, lengths, 60, max_buckets=1) == [(60, 60)]


def test_fewer_pairs_than_a_batch_are_one_bucket(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(18, 5)], max_length=1000), tokens_per_batch=1000)
    assert plan.shapes == ((1, 18, 5),)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_shapes_leave_little_padding(seed: int, make_encoded) -> None:
    generator = np.random.default_rng(seed)
    source = np.clip(generator.gamma(3, 9, 5000).astype(int) + 1, 1, 127)
    target = np.clip((source * generator.normal(1.1, 0.2, 5000)).astype(int), 1, 127)
    encoded = make_encoded(list(zip(source.tolist(), target.tolist(), strict=True)), max_length=128)
    few, many = BatchPlan(encoded, 512), BatchPlan(encoded, 512, max_buckets=MANY_BUCKETS)
    assert (len(few.shapes), len(few.buckets)) == (FEW_BUCKETS, FEW_BUCKETS)
    assert len(many.shapes) <= MANY_BUCKETS
    assert few.padding_share < 0.15
    assert many.padding_share < 0.07
    assert all(rows * max(lengths) <= 512 for rows, *lengths in (*few.shapes, *many.shapes))


def test_no_more_buckets_than_the_goal_needs() -> None:
    lengths = np.repeat(np.arange(100, 104), 100)
    assert len(choose_buckets(lengths, lengths, 1000)) == 1  # 1.5 padded positions of 102
    assert GOAL > 1.5 / 103


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_cuts_are_the_best_there_are(seed: int) -> None:
    """Beside a search through all of them."""
    lengths = np.random.default_rng(seed).geometric(0.3, 50).clip(max=11)
    longest = int(lengths.max())

    def padding(cuts: tuple[int, ...]) -> int:
        return sum(min(cut for cut in cuts if cut >= length) - length for length in lengths)

    for most in (1, 2, 3, 4):
        cuts = tuple(target for _, target in choose_buckets(np.full(50, 7), lengths, 1, most))
        assert len(cuts) == most or padding(cuts) <= GOAL * sum(lengths + 7)
        others = itertools.combinations(range(1, longest), len(cuts) - 1)
        assert padding(cuts) == min(padding((*other, longest)) for other in others)


@pytest.mark.parametrize("longest", [7, 5003])  # one of them is counted in a table, the other is too long for it
def test_pairs_of_lengths_are_counted(longest: int) -> None:
    draw = np.random.default_rng(3)
    source, target = draw.integers(1, 6, (2, (1 << 20) + 1009))  # they are read in two pieces
    source[11], target[13] = longest, longest - 1
    counts = count_lengths(*(np.concatenate([[0], np.cumsum(side)]) for side in (source, target)))
    expected = Counter(zip(target.tolist(), source.tolist(), strict=True))
    assert dict(zip(zip(counts.target, counts.source, strict=True), counts.pairs, strict=True)) == expected
    assert list(zip(counts.target, counts.source, strict=True)) == sorted(expected)
    np.testing.assert_array_equal(counts.source[counts.number], source)
    np.testing.assert_array_equal(counts.target[counts.number], target)


def test_lengths_with_their_numbers_give_the_same_buckets() -> None:
    generator = np.random.default_rng(4)
    source, target = generator.geometric(0.1, (2, 3000)).clip(max=60)
    offsets = [np.concatenate([[0], np.cumsum(side)]) for side in (source, target)]
    counts = count_lengths(*offsets)
    assert counts.pairs.sum() == 3000
    assert len(counts.pairs) < 1500
    np.testing.assert_array_equal(counts.source[counts.number], source)
    np.testing.assert_array_equal(counts.target[counts.number], target)
    expected = choose_buckets(source, target, 300)
    assert choose_buckets(counts.source, counts.target, 300, pairs=counts.pairs) == expected


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ([(4, 4)], "No bucket holds the pair of 9 source and 3 target tokens.* Add a longer bucket"),
        ([(16, 16), (8, 8)], r"must be .* sorted by target and then by source length. Received: buckets=.\(16, 16\)"),
        ([(8, 8), (8, 8)], "sorted by target"),
        ([(0, 16)], "each at least 1"),
        ([], "each at least 1"),
    ],
)
def test_unusable_buckets(buckets: list, message: str, make_encoded) -> None:
    with pytest.raises(ValueError, match=message):
        BatchPlan(make_encoded([(2, 2), (9, 3)]), tokens_per_batch=64, buckets=buckets)


@pytest.mark.parametrize("name", ["shard_size", "shards_together"])
def test_shards_are_of_a_pair_and_one_at_a_time_at_least(name, make_encoded) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1. Received: {name}=0"):
        BatchPlan(make_encoded([(9, 3)]), tokens_per_batch=9, **{name: 0})


def test_tokens_per_batch_below_one(make_encoded) -> None:
    with pytest.raises(ValueError, match=r"tokens_per_batch must be at least 1. Received: tokens_per_batch=0"):
        BatchPlan(make_encoded([(9, 3)]), tokens_per_batch=0)
