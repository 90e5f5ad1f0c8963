"""The stream of batches: what a batch holds, and that it depends on nothing but seed and step."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from kformer.data import BatchPlan, encode_pairs, make_dataset, shuffle
from kformer.data.arrangements import ShiftedTarget
from kformer.tokenizers import SymbolTokenizer

LENGTHS = [(2 + n % 7, 2 + n * 3 % 11) for n in range(61)]


def as_numpy(dataset: tf.data.Dataset, count: int | None = None) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return [
        (inputs["source"].numpy(), inputs["target_in"].numpy(), target_out.numpy())
        for inputs, target_out in islice(dataset, count)
    ]


def same(first: list, second: list) -> bool:
    return len(first) == len(second) and all(
        np.array_equal(a, b) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_shifted_pair(letters: SymbolTokenizer) -> None:
    encoded = encode_pairs([("a b", "c"), ("d", "e f a")], letters, letters, max_length=4)
    dataset = make_dataset(BatchPlan(encoded, 12, [(4, 4)]), shuffle_seed=None, repeat=False)
    ((source, target_in, target_out),) = as_numpy(dataset)
    assert source.tolist() == [[4, 5, 2, 0], [7, 2, 0, 0]]
    assert target_in.tolist() == [[1, 6, 0, 0], [1, 8, 9, 4]]
    assert target_out.tolist() == [[6, 2, 0, 0], [8, 9, 4, 2]]
    assert {array.dtype for array in (source, target_in, target_out)} == {np.dtype(np.int32)}


def test_pad_and_start_ids_of_the_tokenizers(letters: SymbolTokenizer) -> None:
    target = SymbolTokenizer(["x"])
    target.pad_id, target.start_id, target.end_id = 7, 8, 9
    encoded = encode_pairs([("a", "x"), ("b", "x"), ("c", "x")], letters, target, max_length=3)
    _, (source, target_in, target_out) = as_numpy(
        make_dataset(BatchPlan(encoded, 6, [(3, 3)]), shuffle_seed=None, repeat=False)
    )
    # Two rows of 3; the third pair's batch is filled with pad ids.
    assert source.tolist() == [[6, 2, 0], [0, 0, 0]]
    assert target_in.tolist() == [[8, 4, 7], [7, 7, 7]]
    assert target_out.tolist() == [[4, 9, 7], [7, 7, 7]]


def rows(batches: list, padding: int = 0) -> Counter[tuple[bytes, bytes]]:
    """The pairs in the batches, without padding."""
    return Counter(
        (source[source != padding].tobytes(), target[target != padding].tobytes())
        for batch in batches
        for source, target in zip(batch[0], batch[2], strict=True)
        if source.any()
    )


def expected_rows(encoded) -> Counter[tuple[bytes, bytes]]:
    s, t = encoded.source_offsets, encoded.target_offsets
    return Counter(
        (encoded.source_ids[s[n] : s[n + 1]].tobytes(), encoded.target_ids[t[n] : t[n + 1]].tobytes())
        for n in range(encoded.kept)
    )


@pytest.mark.parametrize("shuffle_seed", [None, 5])
def test_once_holds_every_pair_once(shuffle_seed: int | None, make_encoded) -> None:
    encoded = make_encoded(LENGTHS)
    plan = BatchPlan(encoded, 40)
    batches = as_numpy(make_dataset(plan, shuffle_seed=shuffle_seed, repeat=False))
    assert len(batches) == plan.steps_once
    assert rows(batches) == expected_rows(encoded)
    assert {(*source.shape, target.shape[1]) for source, _, target in batches} == set(plan.shapes)


def test_without_seed_buckets_and_pairs_keep_their_order(make_encoded) -> None:
    encoded = make_encoded([(2, 2), (6, 6), (3, 3), (5, 5), (2, 2)])
    batches = as_numpy(make_dataset(BatchPlan(encoded, 8, [(4, 4), (8, 8)]), shuffle_seed=None, repeat=False))
    # The sources start at 10, 12, 18, 21 and 26. Two rows of 4: pairs 0 and 2, then 4; one row of 8: 1, then 3.
    assert [batch[0][:, 0].tolist() for batch in batches] == [[10, 18], [26, 0], [12], [21]]


def test_an_endless_stream_sees_all_pairs_alike(make_encoded) -> None:
    encoded = make_encoded(LENGTHS)
    plan = BatchPlan(encoded, 40)
    stream = as_numpy(make_dataset(plan, shuffle_seed=5, repeat=True), 10 * plan.steps_per_epoch)
    seen = rows(stream)
    assert set(seen) == set(expected_rows(encoded))
    assert min(seen.values()) >= 8  # A bucket may be a batch ahead or behind.
    assert max(seen.values()) <= 12
    assert all((source[:, 0] > 0).all() for source, _, _ in stream)  # no row is padding alone
    assert {(*source.shape, target.shape[1]) for source, _, target in stream} == set(plan.shapes)
    positions = sum(source.size + target.size for source, _, target in stream)
    padding = sum((source == 0).sum() + (target == 0).sum() for source, _, target in stream) / positions
    assert padding == pytest.approx(plan.padding_share, abs=0.01)


def test_a_pass_over_a_bucket_holds_each_of_its_pairs_once_in_a_new_order(make_encoded) -> None:
    encoded = make_encoded([(4, 4)] * 10)  # five batches of two rows are a pass
    stream = as_numpy(make_dataset(BatchPlan(encoded, 8, [(4, 4)]), shuffle_seed=5, repeat=True), 15)
    passes = [stream[first : first + 5] for first in (0, 5, 10)]
    assert all(rows(batches) == expected_rows(encoded) for batches in passes)
    assert not same(passes[0], passes[1])
    assert not same(passes[1], passes[2])


def test_every_pass_has_an_order_of_pairs_of_its_own(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(4, 4)] * 10), 8, [(4, 4)])  # five batches of two rows are a pass
    firsts = [inputs["source"][:, 0].tolist() for inputs, _ in islice(plan.endless(shuffle_seed=5), 15)]
    # Sorted: the order of the batches, which changes from epoch to epoch too, does not count.
    passes = [sorted(firsts[start : start + 5]) for start in (0, 5, 10)]
    assert passes[0] != passes[1]
    assert passes[1] != passes[2]


def test_every_bucket_has_an_order_of_pairs_of_its_own(make_encoded) -> None:
    # Two buckets of ten pairs. The first ids tell the pair: 10, 12, 14, ... and 30, 36, 42, ...
    plan = BatchPlan(make_encoded([(2, 2)] * 10 + [(6, 6)] * 10), 60, [(2, 2), (6, 6)])
    found = {inputs["source"].shape[1]: inputs["source"][:, 0] for inputs, _ in plan.once(shuffle_seed=5)}
    short, long = (found[2] - 10) // 2, (found[6] - 30) // 6
    assert sorted(short) == sorted(long) == list(range(10))
    assert short.tolist() != long.tolist()


def test_every_epoch_has_an_order_of_batches_of_its_own(make_encoded) -> None:
    lengths = [(length, length) for length in range(3, 13)]
    plan = BatchPlan(make_encoded(lengths), 12, lengths)  # a pair each, so a batch is known by its length
    found = [target.shape[1] for _, target in islice(plan.endless(shuffle_seed=5), 30)]
    epochs = [found[start : start + 10] for start in (0, 10, 20)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(3, 13))] * 3
    assert epochs[0] != epochs[1]
    assert epochs[1] != epochs[2]


def test_a_batch_may_end_one_pass_and_begin_the_next(make_encoded) -> None:
    encoded = make_encoded([(4, 4)] * 5)
    dataset = make_dataset(BatchPlan(encoded, 8, [(4, 4)]), shuffle_seed=None, repeat=True)
    sources = [batch[0][:, 0].tolist() for batch in as_numpy(dataset, 5)]
    assert sources == [[10, 14], [18, 22], [26, 10], [14, 18], [22, 26]]


def test_start_step_reaches_the_same_batches(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)
    steps = plan.steps_per_epoch

    def stream(start_step: int, count: int) -> list:
        return as_numpy(make_dataset(plan, shuffle_seed=7, repeat=True, start_step=start_step), count)

    whole = stream(0, 4 * steps)
    for start_step in (1, steps - 1, steps, steps + 3, 2 * steps):
        # The rest of an epoch, and a whole one after it.
        assert same(stream(start_step, 2 * steps), whole[start_step : start_step + 2 * steps])


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [
        ([(4, 4)] * 7, 20),  # 7 pairs in rows of 5: an epoch has 1.4 batches, which rounds to 1
        ([(4, 4)] * 8, 20),  # 1.6, which rounds to 2
        (LENGTHS, 40),
    ],
)
def test_start_step_reaches_the_same_batches_after_forty_epochs(lengths: list, tokens: int, make_encoded) -> None:
    plan = BatchPlan(make_encoded(lengths), tokens)
    whole = [batch["source"] for batch, _ in islice(plan.endless(shuffle_seed=7), 45 * plan.steps_per_epoch)]
    for start_step in range(40 * plan.steps_per_epoch, len(whole)):
        batch, _ = next(plan.endless(shuffle_seed=7, start_step=start_step))
        np.testing.assert_array_equal(batch["source"], whole[start_step])


def test_the_seed_decides_the_order(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)

    def epoch(seed: int) -> list:
        return as_numpy(make_dataset(plan, shuffle_seed=seed, repeat=False))

    assert same(epoch(1), epoch(1))
    assert not same(epoch(1), epoch(2))


def test_shuffling_mixes_buckets_and_pairs(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)
    batches = as_numpy(make_dataset(plan, shuffle_seed=3, repeat=False))
    buckets = [plan.buckets.index((source.shape[1], target.shape[1])) for source, _, target in batches]
    assert buckets != sorted(buckets)
    first = [batch[0][0, 0] for batch in batches if batch[0].shape[1] == 8]
    assert first != sorted(first)


@pytest.mark.parametrize("batches_per_update", [1, 4])
def test_skipping_computes_nothing(batches_per_update: int, make_encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = []
    permutation = shuffle.permutation
    monkeypatch.setattr(shuffle, "permutation", lambda *key: shuffled.append(key) or permutation(*key))
    counting = Counting()
    plan = BatchPlan(make_encoded(LENGTHS), 40, arrangement=counting)
    next(plan.endless(shuffle_seed=1, start_step=10**6))
    # The batches of one epoch, and the pairs of one bucket: of two passes if the batch ends one and begins the next.
    # (One shard, which is all there is here, has no order.)
    assert len([count for count, *_ in shuffled if count > 1]) in (2, 3)
    assert counting.batches == 1
    options = {"shuffle_seed": 1, "repeat": True, "batches_per_update": batches_per_update}
    next(iter(make_dataset(plan, **options, start_step=10**6)))
    assert counting.batches < 100  # one, and those that are prefetched


class Counting(ShiftedTarget):
    """Counts the batches that were made."""

    batches = 0

    def arrange(self, rows, random):
        self.batches += 1
        return super().arrange(rows, random)


def test_cardinality(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)
    steps = plan.steps_once
    assert make_dataset(plan, shuffle_seed=1, repeat=False, start_step=2).cardinality() == steps - 2
    assert make_dataset(plan, shuffle_seed=1, repeat=True).cardinality() == tf.data.INFINITE_CARDINALITY
    assert as_numpy(make_dataset(plan, shuffle_seed=1, repeat=False, start_step=steps)) == []


def test_no_thread_of_tf_data_holds_the_end_of_an_iterator(make_encoded) -> None:
    dataset = make_dataset(BatchPlan(make_encoded(LENGTHS), 40), shuffle_seed=1, repeat=True)
    assert dataset.options().autotune.enabled is False  # None: it would run


def test_micro_batches_weigh_as_many_tokens_as_they_hold(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)
    options = {"shuffle_seed": 1, "repeat": True, "batches_per_update": 3}
    batches = [(y.numpy(), weight.numpy()) for _, y, weight in islice(make_dataset(plan, **options), 6)]
    for group in (batches[:3], batches[3:]):
        tokens = np.array([(y > 0).sum() for y, _ in group])
        for (y, weight), count in zip(group, tokens, strict=True):
            np.testing.assert_allclose(weight, np.full(len(y), 3 * count / tokens.sum()), rtol=1e-6)
    # From the middle of an update on, the weights are those of the whole update.
    later = [(y.numpy(), weight.numpy()) for _, y, weight in islice(make_dataset(plan, **options, start_step=4), 2)]
    assert same(later, batches[4:])


def test_micro_batches_weigh_tokens_and_not_padding_whatever_id_it_has(letters) -> None:
    target = SymbolTokenizer(["x", "y"])
    target.pad_id = 7
    pairs = [("a", "x"), ("b", "x y"), ("c", "x y x"), ("d", "y")]
    plan = BatchPlan(encode_pairs(pairs, letters, target, max_length=4), 8, [(4, 4)])  # two batches of two rows
    batches = make_dataset(plan, shuffle_seed=None, repeat=False, batches_per_update=2)
    weights = [weight.numpy().tolist() for _, _, weight in batches]
    assert weights == [[pytest.approx(2 * 5 / 11)] * 2, [pytest.approx(2 * 6 / 11)] * 2]


@pytest.mark.parametrize("repeat", [True, False])
def test_the_parts_of_all_processes_are_the_whole_batches(repeat: bool, make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40, row_multiple=3)
    options = {"shuffle_seed": 1, "repeat": repeat, "start_step": 2, "batches_per_update": 2 if repeat else 1}

    def stream(part: tuple[int, int]) -> list[list[np.ndarray]]:
        dataset = make_dataset(plan, **options, part=part)
        return [[array.numpy() for array in tf.nest.flatten(batch)] for batch in islice(dataset, 20)]

    whole = stream((0, 1))
    assert len(whole) > 10
    parts = [stream((number, 3)) for number in range(3)]
    joined = [[np.concatenate(arrays) for arrays in zip(*batches, strict=True)] for batches in zip(*parts, strict=True)]
    assert same(joined, whole)
    assert all(len(batch[0]) == len(all_of_it[0]) / 3 for batch, all_of_it in zip(parts[0], whole, strict=True))


def test_a_dataset_can_be_read_again(make_encoded) -> None:
    dataset = make_dataset(BatchPlan(make_encoded(LENGTHS), 40), shuffle_seed=1, repeat=False)
    assert same(as_numpy(dataset), as_numpy(dataset))


def test_every_batch_must_have_rows_for_all_processes(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(4, 4)] * 4 + [(8, 8)] * 3), 24, [(4, 4), (8, 8)])
    assert [rows for rows, _, _ in plan.shapes] == [4, 3]
    with pytest.raises(ValueError, match=r"Received: part=\(0, 2\), and batches of 3, 4 rows. Make the BatchPlan with"):
        make_dataset(plan, shuffle_seed=None, repeat=True, part=(0, 2))


def test_a_seed_may_be_0(make_encoded) -> None:
    plan = BatchPlan(make_encoded(LENGTHS), 40)
    ordered, mixed = (as_numpy(make_dataset(plan, shuffle_seed=seed, repeat=False)) for seed in (None, 0))
    assert not same(ordered, mixed)
    assert rows(ordered) == rows(mixed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle_seed": -1}, "shuffle_seed must be 0 or more, or None. Received: shuffle_seed=-1"),
        ({"start_step": -1}, "start_step must be at least 0 .* Received: start_step=-1"),
        ({"part": (1, 1)}, r"a number from 0 up and below the count.* Received: part=\(1, 1\)"),
        ({"part": (0, 2)}, r"divide the rows of every batch. Received: part=\(0, 2\), and batches of 1 rows. Make"),
        ({"start_step": 2}, "at most the 1 steps of the epoch. Received: start_step=2"),
    ],
)
def test_unusable_options(options: dict, message: str, make_encoded) -> None:
    with pytest.raises(ValueError, match=message):
        make_dataset(BatchPlan(make_encoded([(3, 3)]), 64), repeat=False, **{"shuffle_seed": None, **options})
