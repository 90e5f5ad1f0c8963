"""Orders of the pairs of a corpus: the same for a key with every NumPy, and shard by shard where there are many."""

import dataclasses
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from kformer.data import BatchPlan
from kformer.data.shuffle import ShardedOrder, permutation

SIZE = 10  # pairs of a shard


def test_an_order_is_this_one_with_every_numpy():
    assert permutation(10, 7).tolist() == [8, 3, 1, 9, 5, 6, 7, 2, 0, 4]
    assert permutation(10, 7, 1).tolist() == [0, 6, 3, 1, 2, 4, 7, 8, 5, 9]
    assert permutation(10, 7, None).tolist() == [4, 7, 5, 6, 8, 0, 3, 2, 9, 1]


def test_all_orders_are_alike_probable():
    counts = Counter(tuple(permutation(3, seed)) for seed in range(6000))
    assert len(counts) == 6
    assert all(900 < count < 1100 for count in counts.values())  # 1,000, and three and a half standard deviations


def test_nothing_to_order():
    assert permutation(0, 1).tolist() == []


def firsts(plan, count, **start):
    """For each batch of the stream, the first source token of each of its pairs."""
    return [inputs["source"][:, 0].tolist() for inputs, _ in islice(plan.endless(shuffle_seed=5, **start), count)]


@pytest.fixture
def plan(make_encoded):
    """47 pairs of two lengths, in five shards of which two are mixed. Batches have three or five rows."""
    lengths = [(2, 2) if number % 3 else (4, 4) for number in range(47)]
    return BatchPlan(make_encoded(lengths), 12, [(2, 2), (4, 4)], shard_size=SIZE, shards_together=2)


def pairs_of(plan, batches):
    """The numbers of the pairs that stand for these tokens."""
    number = {int(plan.encoded.source_ids[start]): pair for pair, start in enumerate(plan.encoded.source_offsets[:-1])}
    return [number[first] for batch in batches for first in batch]


def test_shards_are_mixed_two_by_two():
    order = ShardedOrder(np.zeros(40, int), 1, seed=5, shard_size=SIZE, together=2)
    pairs = order.take(0, 0, 40)
    assert order.groups == 2
    assert sorted(pairs) == list(range(40))
    for group in (pairs[:20], pairs[20:]):
        shards = group // SIZE
        assert len({*shards}) == 2
        assert {*shards[:SIZE]} == {*shards}  # not one shard after the other
        assert not all(np.diff(group[shards == shards[0]]) > 0)


def test_every_epoch_has_an_order_of_shards_of_its_own():
    order = ShardedOrder(np.zeros(40, int), 1, seed=5, shard_size=SIZE, together=1)
    epochs = [tuple(order.take(0, 40 * epoch, 40)[::SIZE] // SIZE) for epoch in range(6)]
    assert all(sorted(epoch) == [0, 1, 2, 3] for epoch in epochs)
    assert len({*epochs}) > 3


def test_without_a_seed_pairs_keep_their_order():
    order = ShardedOrder(np.array([0, 1] * 20), 2, seed=None, shard_size=SIZE, together=2)
    assert order.take(1, 0, 22).tolist() == [*range(1, 40, 2), 1, 3]


def test_an_epoch_of_shards_holds_every_pair_once(plan):
    batches = [inputs["source"] for inputs, _ in plan.once(shuffle_seed=5)]
    assert len(batches) == plan.steps_once
    found = pairs_of(plan, [batch[batch[:, 0] > 0, 0].tolist() for batch in batches])
    assert sorted(found) == list(range(47))


def test_three_epochs_of_shards_hold_all_pairs_alike(plan):
    whole = 3 * plan.batches_per_epoch  # batches of six rows and of three
    seen = Counter(pairs_of(plan, firsts(plan, round(whole))))
    assert {*seen} == {*range(47)}
    assert {*seen.values()} <= {2, 3, 4}


@pytest.mark.parametrize("start", [1, 4, 11, 12, 13, 50, 123])
def test_any_batch_of_shards_can_be_the_first(plan, start):
    whole = firsts(plan, start + 5)
    assert firsts(plan, 5, start_step=start) == whole[start:]
    once = [inputs["source"].tolist() for inputs, _ in plan.once(shuffle_seed=5)]
    later = [inputs["source"].tolist() for inputs, _ in plan.once(shuffle_seed=5, start_step=start % len(once))]
    assert later == once[start % len(once) :]


def test_offsets_and_ids_may_lie_on_the_disk(plan, tmp_path):
    mapped = {}
    for name in ("source_ids", "source_offsets", "target_ids", "target_offsets"):
        array = getattr(plan.encoded, name)
        np.save(tmp_path / name, array.astype(np.uint16) if name.endswith("ids") else array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    encoded = dataclasses.replace(plan.encoded, **mapped)
    other = BatchPlan(encoded, 12, [(2, 2), (4, 4)], shard_size=SIZE, shards_together=2)
    both = zip(plan.endless(shuffle_seed=5), other.endless(shuffle_seed=5), strict=True)
    for (one, one_out), (two, two_out) in islice(both, 40):
        np.testing.assert_array_equal(one["source"], two["source"])
        np.testing.assert_array_equal(one_out, two_out)
        assert two["source"].dtype == two_out.dtype == np.int32
