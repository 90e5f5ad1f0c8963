"""Chooses the pairs that share a batch, and makes the batches as NumPy arrays.

Pairs of about the same lengths are batched together (section 5.1 of the paper). The batches have few different shapes,
because XLA compiles a program for each shape. Every batch is a pure function of the data, the seed and the step.

Shapes: N pairs, B rows, S source and T target length.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from kformer.data.arrangements import Arrangement, Batch, Rows, ShiftedTarget
from kformer.data.buckets import FEW_BUCKETS, Bucket, choose_buckets
from kformer.data.encoding import EncodedPairs


class BatchPlan:
    """Sorts pairs into buckets by the lengths of both sides. Each batch is filled from one bucket.

    A batch of a bucket (S, T) has `tokens_per_batch // max(S, T)` rows, or as many rows as the bucket has pairs if
    that is less. The number is rounded down to a multiple of `row_multiple`, but is at least `row_multiple`.

    Args:
        encoded: the pairs.
        tokens_per_batch: the limit of B max(S, T). A batch of only `row_multiple` rows may exceed it.
        buckets: (S, T) of each bucket, sorted by T and then by S, such as the buckets of another plan. None: the
            buckets are chosen to suit the lengths of the pairs.
        row_multiple: the number of rows is a multiple of it, so that this number of devices can share a batch evenly.
        max_buckets: the largest number of buckets that may be chosen. More buckets leave less padding.
        arrangement: makes the model's inputs and labels from the ids. None: those of translation.

    Attributes:
        buckets: (S, T) of each bucket that has pairs.
        shapes: (B, S, T) of each bucket that has pairs.
        batches_per_epoch: the mean number of batches per epoch of an endless stream, a `Fraction`. Such a stream has no
            partial batches: a batch may hold the last pairs of one epoch and the first pairs of the next.
        steps_per_epoch: the same number, rounded, at least 1.
        steps_once: the number of batches that hold every pair once. The last batch of a bucket is filled up with rows
            of pad ids.
        mean_tokens: the mean numbers of source and target tokens in a batch of an endless stream, without padding.
        padding_share: the share of the positions of an endless stream, source and target, that are padding, in [0, 1).

    Raises:
        ValueError: A pair fits into no bucket, the buckets are not sorted, or `tokens_per_batch`, `row_multiple` or
            `max_buckets` is below 1.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["one", "uno"])
        >>> encoded = encode_pairs([("one", "uno")] * 100, tokenizer, tokenizer, max_length=8)
        >>> BatchPlan(encoded, tokens_per_batch=20).shapes  # 20 // 2 rows: each side is a word and its end
        ((10, 2, 2),)
    """

    def __init__(
        self,
        encoded: EncodedPairs,
        tokens_per_batch: int,
        buckets: Sequence[Bucket] | None = None,
        row_multiple: int = 1,
        max_buckets: int = FEW_BUCKETS,
        arrangement: Arrangement | None = None,
    ) -> None:
        least_one = {"tokens_per_batch": tokens_per_batch, "row_multiple": row_multiple, "max_buckets": max_buckets}
        for name, value in least_one.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1. Received: {name}={value}.")
        self.encoded = encoded
        self.arrangement = arrangement or ShiftedTarget()
        source, target = np.diff(encoded.source_offsets), np.diff(encoded.target_offsets)
        if buckets is None:
            buckets = choose_buckets(source, target, tokens_per_batch, max_buckets)
        chosen = _assign(buckets, source, target)  # (N,)
        used = np.unique(chosen)
        self._members = [np.flatnonzero(chosen == number) for number in used]
        self.buckets = tuple(buckets[number] for number in used)
        self.shapes = tuple(
            (_rows(min(tokens_per_batch // max(bucket), len(members)), row_multiple), *bucket)
            for bucket, members in zip(self.buckets, self._members, strict=True)
        )
        passes = [
            Fraction(len(members), rows) for members, (rows, _, _) in zip(self._members, self.shapes, strict=True)
        ]
        self.batches_per_epoch = sum(passes, start=Fraction())
        self.steps_per_epoch = max(1, round(self.batches_per_epoch))
        self.steps_once = sum(map(math.ceil, passes))
        batches = float(self.batches_per_epoch)
        self.mean_tokens = (len(encoded.source_ids) / batches, len(encoded.target_ids) / batches)
        positions = sum(
            len(members) * sum(shape[1:]) for members, shape in zip(self._members, self.shapes, strict=True)
        )
        self.padding_share = 1 - (len(encoded.source_ids) + len(encoded.target_ids)) / positions

    def once(self, shuffle_seed: int | None, start_step: int = 0) -> Iterator[Batch]:
        """Batches that hold every pair once, without the first `start_step` ones."""
        streams = self._streams(shuffle_seed)
        table = [
            (bucket, number)
            for bucket, (members, (rows, _, _)) in enumerate(zip(self._members, self.shapes, strict=True))
            for number in range(-(-len(members) // rows))
        ]
        for place in _order(len(table), shuffle_seed, 0)[start_step:]:
            bucket, number = table[place]
            rows = self.shapes[bucket][0]
            left = len(self._members[bucket]) - number * rows
            taken = streams[bucket].take(number * rows, min(rows, left))
            yield self._assemble(taken, self.shapes[bucket], (shuffle_seed, bucket, number))

    def endless(self, shuffle_seed: int | None, start_step: int = 0) -> Iterator[Batch]:
        """Batches of one epoch after another without an end, without the first `start_step` ones.

        The pairs of a bucket come in passes, each in a new order. A batch may hold the end of a pass and the beginning
        of the next. It belongs to the epoch in which it becomes full.
        """
        streams = self._streams(shuffle_seed)
        epoch, skipped = self._find(start_step)
        while True:
            bounds = zip(self._filled(epoch), self._filled(epoch + 1), strict=True)
            table = [(bucket, number) for bucket, bound in enumerate(bounds) for number in range(*bound)]
            for place in _order(len(table), shuffle_seed, epoch)[skipped:]:
                bucket, number = table[place]
                rows = self.shapes[bucket][0]
                taken = streams[bucket].take(number * rows, rows)
                yield self._assemble(taken, self.shapes[bucket], (shuffle_seed, bucket, number))
            epoch, skipped = epoch + 1, 0

    def _filled(self, epochs: int) -> list[int]:
        """The number of batches of each bucket in the first `epochs` epochs."""
        return [epochs * len(members) // rows for members, (rows, _, _) in zip(self._members, self.shapes, strict=True)]

    def _find(self, step: int) -> tuple[int, int]:
        """The number of the epoch that holds batch `step`, and the place of the batch in it."""
        # The mean number of batches per epoch is below this divisor, so the search does not begin too late.
        epoch = step // (self.steps_per_epoch + 1)
        while sum(self._filled(epoch + 1)) <= step:
            epoch += 1
        return epoch, step - sum(self._filled(epoch))

    def _streams(self, seed: int | None) -> list["_Passes"]:
        return [_Passes(members, seed, bucket) for bucket, members in enumerate(self._members)]

    def _assemble(self, pairs: np.ndarray, shape: tuple[int, int, int], key: tuple[int | None, int, int]) -> Batch:
        """The batch of some pairs. `key` is the seed, the bucket and the number of the batch in the bucket."""
        rows, source_length, target_length = shape
        data = self.encoded
        padded = Rows(
            _pad(data.source_ids, data.source_offsets, pairs, (rows, source_length), data.source_pad_id),
            _pad(data.target_ids, data.target_offsets, pairs, (rows, target_length), data.target_pad_id),
            data.source_pad_id,
            data.target_pad_id,
            data.start_id,
        )
        seed, bucket, number = key
        return self.arrangement.arrange(padded, np.random.default_rng((seed or 0, bucket, number)))


class _Passes:
    """The endless sequence of a bucket's pairs: pass after pass over all of them, each pass in an order of its own."""

    def __init__(self, members: np.ndarray, seed: int | None, bucket: int) -> None:
        self._members = members
        self._seed = seed
        self._bucket = bucket
        self._orders: dict[int, np.ndarray] = {}  # the pairs in the orders of the last passes that were used

    def take(self, start: int, count: int) -> np.ndarray:
        """The `count` elements of the sequence from number `start` on."""
        number, offset = divmod(start, len(self._members))
        found = self._pass(number)[offset : offset + count]
        while len(found) < count:
            number += 1
            found = np.concatenate([found, self._pass(number)[: count - len(found)]])
        return found

    def _pass(self, number: int) -> np.ndarray:
        if number not in self._orders:
            kept = {known: order for known, order in self._orders.items() if abs(known - number) == 1}
            self._orders = {**kept, number: self._members[_order(len(self._members), self._seed, number, self._bucket)]}
        return self._orders[number]


def _rows(most: int, multiple: int) -> int:
    """The largest multiple of `multiple` up to `most`, but at least `multiple` itself."""
    return max(1, most // multiple) * multiple


def _order(count: int, seed: int | None, epoch: int, bucket: int = -1) -> np.ndarray:
    """A random order of an epoch's batches or a bucket's pairs, of which there are `count`. No seed: 0, 1, 2, ..."""
    if seed is None:
        return np.arange(count)
    return np.random.default_rng((seed, epoch, bucket + 1)).permutation(count)


def _assign(buckets: Sequence[Bucket], source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(N,) int: for each pair the number of the first bucket that is long enough on both sides."""
    if not buckets or list(buckets) != sorted(set(buckets), key=lambda bucket: bucket[::-1]) or min(min(buckets)) < 1:
        raise ValueError(
            "buckets must be different pairs of a source and a target length, each at least 1, sorted by target and "
            f"then by source length. Received: buckets={list(buckets)}."
        )
    chosen = np.full(len(source), -1)
    for number, (longest_source, longest_target) in reversed(list(enumerate(buckets))):
        chosen[(source <= longest_source) & (target <= longest_target)] = number
    if np.any(chosen < 0):
        pair = int(np.argmin(chosen))
        raise ValueError(
            f"No bucket holds the pair of {source[pair]} source and {target[pair]} target tokens. "
            f"Received: buckets={list(buckets)}. Add a longer bucket, or encode the pairs with a smaller max_length."
        )
    return chosen


def _pad(ids: np.ndarray, offsets: np.ndarray, pairs: np.ndarray, shape: tuple[int, int], pad_id: int) -> np.ndarray:
    """The sequences of `pairs` as the first rows of a (B, L) int32 array."""
    first = np.zeros(shape[0], np.int64)
    length = np.zeros(shape[0], np.int64)
    first[: len(pairs)] = offsets[pairs]
    length[: len(pairs)] = offsets[pairs + 1] - offsets[pairs]
    position = np.arange(shape[1])
    real = position < length[:, None]  # (B, L)
    padded = np.full(shape, pad_id, np.int32)
    padded[real] = ids[(first[:, None] + position)[real]]
    return padded
