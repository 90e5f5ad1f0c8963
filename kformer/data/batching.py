"""Chooses the pairs that share a batch, and makes the batches as NumPy arrays.

Pairs of about the same lengths are batched together (section 5.1 of the paper). The batches have few different shapes,
because XLA compiles a program for each shape. Every batch is a pure function of the data, the seed and the step.

Beside the ids, which may lie on the disk, a plan holds a byte or two for each pair, and the order of those pairs that
are mixed at the time (see `kformer.data.shuffle`).

Shapes: N pairs, of which an epoch may have some several times, B rows, S source and T target length, K buckets.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from kformer.data.arrangements import Arrangement, Batch, Growth, Rows, ShiftedTarget
from kformer.data.buckets import FEW_BUCKETS, Bucket, LengthCounts, choose_buckets, count_lengths
from kformer.data.encoding import EncodedPairs
from kformer.data.mixture import Mixture
from kformer.data.shuffle import SHARD_SIZE, SHARDS_TOGETHER, ShardedOrder


class BatchPlan:
    """Sorts pairs into buckets by the lengths of both sides. Each batch is filled from one bucket.

    If the arrangement makes texts longer (`Arrangement.growth`), the rows of a bucket have room for most of them, but
    for no more than `max_length` ids.

    A batch of rows of the lengths (S, T) has `tokens_per_batch // max(S, T)` rows, or as many rows as the bucket has
    pairs if that is less. The number is rounded down to a multiple of `row_multiple`, but is at least `row_multiple`.

    Args:
        encoded: the pairs.
        tokens_per_batch: the limit of B max(S, T). A batch of only `row_multiple` rows may exceed it.
        buckets: (S, T) of each bucket, sorted by T and then by S, such as the buckets of another plan. None: the
            buckets are chosen to suit the lengths of the pairs.
        row_multiple: the number of rows is a multiple of it, so that this number of devices can share a batch evenly.
        max_buckets: the largest number of buckets that may be chosen. More buckets leave less padding.
        arrangement: makes the model's inputs and labels from the ids. None: those of translation.
        shard_size: pairs that lie together, and are read at about the same time.
        shards_together: how many shards are mixed with each other. A corpus of no more shards is mixed as a whole.
        passes: how many times an epoch has the pairs of each joined corpus, see `kformer.data.mixture.passes_of`.
            None: every pair once.

    Attributes:
        buckets: (S, T) of each bucket that has pairs.
        shapes: (B, S, T) of the batches of each bucket that has pairs.
        batches_per_epoch: the mean number of batches per epoch of an endless stream, a `Fraction`. Such a stream has no
            partial batches: a batch may hold the last pairs of one epoch and the first pairs of the next.
        steps_per_epoch: the same number, rounded, at least 1.
        steps_once: the number of batches that hold every pair once. The last batch of a bucket is filled up with rows
            of pad ids.
        mean_tokens: the mean numbers of source and target tokens in a batch of an endless stream, without padding.
        padding_share: the share of the positions of an endless stream, source and target, that are padding, in [0, 1).

    Raises:
        ValueError: A pair fits into no bucket, the buckets are not sorted, or a number is below 1.

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
        shard_size: int = SHARD_SIZE,
        shards_together: int = SHARDS_TOGETHER,
        passes: Sequence[int] | None = None,
    ) -> None:
        least_one = {"tokens_per_batch": tokens_per_batch, "row_multiple": row_multiple, "max_buckets": max_buckets}
        least_one |= {"shard_size": shard_size, "shards_together": shards_together}
        for name, value in least_one.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1. Received: {name}={value}.")
        self.encoded = encoded
        self.arrangement = arrangement or ShiftedTarget()
        self._shard_size, self._together = shard_size, shards_together
        self.passes = tuple(passes or (1,))
        self._mixture = Mixture(encoded.parts, self.passes, shard_size) if set(self.passes) != {1} else None
        lengths = self._lengths()
        if buckets is None:
            buckets = choose_buckets(lengths.source, lengths.target, tokens_per_batch, max_buckets, lengths.pairs)
        chosen = _assign(buckets, lengths.source, lengths.target)  # of each pair of lengths
        used, numbers = np.unique(chosen, return_inverse=True)
        small = np.min_scalar_type(len(used))
        bucket_of_pair = numbers.astype(small)[lengths.number]  # (N,)
        self._buckets = bucket_of_pair if self._mixture is None else self._mixture.spread(bucket_of_pair)  # of each row
        self.buckets = tuple(buckets[number] for number in used)
        self._totals = np.bincount(numbers, weights=lengths.pairs).astype(np.int64).tolist()  # pairs of each bucket
        growths = self.arrangement.growth(encoded)
        padded = [_with_room(bucket, growths, encoded.max_length) for bucket in self.buckets]
        self.shapes = tuple(
            (_rows(min(tokens_per_batch // max(lengths_of_row), pairs), row_multiple), *lengths_of_row)
            for lengths_of_row, pairs in zip(padded, self._totals, strict=True)
        )
        batches_of = [Fraction(pairs, rows) for pairs, (rows, _, _) in zip(self._totals, self.shapes, strict=True)]
        self.batches_per_epoch = sum(batches_of, start=Fraction())
        self.steps_per_epoch = max(1, round(self.batches_per_epoch))
        self.steps_once = sum(map(math.ceil, batches_of))
        batches = float(self.batches_per_epoch)
        sides = zip((lengths.source, lengths.target), growths, strict=True)
        tokens = [int(side @ lengths.pairs) * (1 + growth.mean) for side, growth in sides]
        self.mean_tokens = (tokens[0] / batches, tokens[1] / batches)
        positions = sum(pairs * sum(shape[1:]) for pairs, shape in zip(self._totals, self.shapes, strict=True))
        self.padding_share = 1 - sum(tokens) / positions

    def _lengths(self) -> LengthCounts:
        """How many rows of an epoch have which lengths."""
        lengths = count_lengths(self.encoded.source_offsets, self.encoded.target_offsets)
        if self._mixture is None:
            return lengths
        ends = np.cumsum(self.encoded.parts)
        rows = np.zeros_like(lengths.pairs)
        for times, size, end in zip(self.passes, self.encoded.parts, ends, strict=True):
            rows += times * np.bincount(lengths.number[end - size : end], minlength=len(rows))
        return lengths._replace(pairs=rows)

    def once(self, shuffle_seed: int | None, start_step: int = 0) -> Iterator[Batch]:
        """Batches that hold every pair once, without the first `start_step` ones."""
        order = self._order(shuffle_seed)
        filled = self._filled(order, 0)
        filled[-1] = [-(-pairs // rows) for pairs, (rows, _, _) in zip(self._totals, self.shapes, strict=True)]
        return self._epoch(order, 0, filled, start_step)

    def endless(self, shuffle_seed: int | None, start_step: int = 0) -> Iterator[Batch]:
        """Batches of one epoch after another without an end, without the first `start_step` ones.

        The pairs of a bucket come in passes, each in a new order. A batch may hold the end of a pass and the beginning
        of the next. It belongs to the epoch, and to the group of shards, in which it becomes full.
        """
        order = self._order(shuffle_seed)
        first, skipped = self._find(start_step)
        for epoch in itertools.count(first):
            yield from self._epoch(order, epoch, self._filled(order, epoch), skipped)
            skipped = 0

    def _filled(self, order: ShardedOrder, epoch: int) -> np.ndarray:
        """(groups + 1, K) int64: how many batches are full before the epoch, and after each of its groups of shards."""
        before = epoch * np.array(self._totals)
        return np.vstack([before, before + order.ends(epoch)]) // [rows for rows, _, _ in self.shapes]

    def _epoch(self, order: ShardedOrder, epoch: int, filled: np.ndarray, skipped: int) -> Iterator[Batch]:
        """The batches of an epoch, group by group of its shards, without the first `skipped` ones.

        Args:
            order: The order of the pairs.
            epoch: Its number.
            filled: As of `_filled`.
            skipped: Batches to leave out.
        """
        for group, (first, end) in enumerate(itertools.pairwise(filled)):
            counts = end - first
            if skipped < counts.sum():
                buckets = np.repeat(np.arange(len(counts)), counts)
                numbers = np.arange(len(buckets)) - np.repeat(np.cumsum(counts) - counts - first, counts)
                for place in order.of_batches(len(buckets), epoch, group)[skipped:]:
                    yield self._batch(order, epoch, int(buckets[place]), int(numbers[place]))
            skipped = max(0, skipped - int(counts.sum()))

    def _batch(self, order: ShardedOrder, epoch: int, bucket: int, number: int) -> Batch:
        """A batch by its number in its bucket. The last one of `once` may have fewer pairs than rows."""
        shape = self.shapes[bucket]
        start, end = number * shape[0], (epoch + 1) * self._totals[bucket]
        rows = order.take(bucket, start, min(shape[0], end - start))
        pairs = rows if self._mixture is None else self._mixture.pairs_of(rows)
        return self._assemble(pairs, shape, (order.seed, bucket, number))

    def _find(self, step: int) -> tuple[int, int]:
        """The number of the epoch that holds batch `step`, and the place of the batch in it."""
        # The mean number of batches per epoch is below this divisor, so the search does not begin too late.
        epoch = step // (self.steps_per_epoch + 1)
        while self._batches(epoch + 1) <= step:
            epoch += 1
        return epoch, step - self._batches(epoch)

    def _batches(self, epochs: int) -> int:
        """The number of batches of the first `epochs` epochs of an endless stream."""
        return sum(epochs * pairs // rows for pairs, (rows, _, _) in zip(self._totals, self.shapes, strict=True))

    def _order(self, seed: int | None) -> ShardedOrder:
        return ShardedOrder(self._buckets, len(self.shapes), seed, self._shard_size, self._together)

    def _aligned(self, pairs: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray | None:
        """(B, T, S) uint8: 1 where tokens of some pairs translate each other; None if the pairs are not aligned."""
        data = self.encoded
        if data.links is None or data.link_offsets is None:
            return None
        rows, source_length, target_length = shape
        aligned = np.zeros((rows, target_length, source_length), np.uint8)  # tf.distribute cannot divide booleans
        for row, pair in enumerate(pairs):
            links = np.asarray(data.links[data.link_offsets[pair] : data.link_offsets[pair + 1]]).reshape(-1, 2)
            aligned[row, links[:, 1], links[:, 0]] = 1
        return aligned

    def _assemble(self, pairs: np.ndarray, shape: tuple[int, int, int], key: tuple[int | None, int, int]) -> Batch:
        """The batch of some pairs. `key` is the seed, the bucket and the number of the batch in the bucket."""
        rows, source_length, target_length = shape
        data = self.encoded
        starts = np.full(rows, data.start_id, np.int32)
        starts[: len(pairs)] = data.starts_of(pairs)
        padded = Rows(
            _pad(data.source_ids, data.source_offsets, pairs, (rows, source_length), data.source_pad_id),
            _pad(data.target_ids, data.target_offsets, pairs, (rows, target_length), data.target_pad_id),
            data.source_pad_id,
            data.target_pad_id,
            starts,
            self._aligned(pairs, shape) if self.arrangement.matrices else None,
        )
        seed, bucket, number = key
        return self.arrangement.arrange(padded, np.random.default_rng((seed or 0, bucket, number)))


def _with_room(bucket: Bucket, growths: tuple[Growth, Growth], max_length: int) -> Bucket:
    """The lengths to which the pairs of a bucket are padded."""
    source, target = (
        max(length, min(growth.room(length), max_length)) for length, growth in zip(bucket, growths, strict=True)
    )
    return source, target


def _rows(most: int, multiple: int) -> int:
    """The largest multiple of `multiple` up to `most`, but at least `multiple` itself."""
    return max(1, most // multiple) * multiple


def _assign(buckets: Sequence[Bucket], source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(L,) int: for pairs of lengths the number of the first bucket that is long enough on both sides."""
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
