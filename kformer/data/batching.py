"""Which pairs share a batch, and the batches themselves, in NumPy.

Sentence pairs of about the same length are batched together (section 5.1 of the paper), in few shapes, because XLA
compiles once a shape. Everything is a pure function of the data, the seed and the step.

Shapes: N pairs, B rows, S source and T target length.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kformer.data.encoding import EncodedPairs

MAX_SHAPES = 10
Batch = tuple[dict[str, np.ndarray], np.ndarray]


def default_bucket_lengths(max_length: int) -> tuple[int, ...]:
    """4, 8, 12, 16, 24, ... 64, 80, ... 128, 160, ...: steps of a quarter of the length and less, up to max_length."""
    lengths = []
    length = 4
    while length < max_length:
        lengths.append(length)
        step = 4 if length < 16 else max(8, 2 ** (length.bit_length() - 3))
        length += step
    return (*lengths, max_length)


class BatchPlan:
    """Batches of one epoch: pairs in buckets by their longer side, as many rows as the tokens allow.

    A bucket of length L has batches of `max(1, tokens_per_batch // L)` rows, both sides padded to L. Rows that are
    missing in its last batch are filled with pad ids. Buckets with less than one full batch join the next
    larger one, and those that cost the least padding are joined until there are at most 10.

    Args:
        encoded: the pairs.
        tokens_per_batch: rows times length of a batch, at most (one row may be longer).
        bucket_lengths: ascending lengths to use as they are, such as those of another plan.

    Attributes:
        bucket_lengths: lengths of the buckets in use.
        shapes: (B, S, T) of each bucket, the shortest first.
        steps_per_epoch: batches in an epoch.
        padding_share: share of the target positions of an epoch that are padding, in [0, 1).

    Raises:
        ValueError: `bucket_lengths` do not ascend or do not reach the longest pair, or tokens_per_batch is below 1.
    """

    def __init__(
        self, encoded: EncodedPairs, tokens_per_batch: int, bucket_lengths: Sequence[int] | None = None
    ) -> None:
        if tokens_per_batch < 1:
            raise ValueError(f"tokens_per_batch must be at least 1. Received: tokens_per_batch={tokens_per_batch}.")
        self.encoded = encoded
        lengths = encoded.lengths
        if bucket_lengths is None:
            merged = _merge(default_bucket_lengths(encoded.max_length), lengths, tokens_per_batch)
        else:
            merged = _checked(bucket_lengths, int(lengths.max()))
        buckets = np.searchsorted(merged, lengths)  # (N,): the first bucket that is long enough
        counts = np.bincount(buckets, minlength=len(merged))
        used = np.flatnonzero(counts)
        self.bucket_lengths = tuple(int(merged[bucket]) for bucket in used)
        self._buckets = np.searchsorted(used, buckets)  # (N,), numbered among those in use
        self.shapes = tuple((_rows(tokens_per_batch, length), length, length) for length in self.bucket_lengths)
        # Batch i of an epoch takes pairs starts[i]:stops[i] of the epoch's pairs sorted by bucket.
        table = []
        first = 0
        for bucket, count in enumerate(counts[used]):
            rows = self.shapes[bucket][0]
            starts = np.arange(first, first + count, rows)
            first += count
            table.append(np.stack([starts, np.minimum(starts + rows, first), np.full_like(starts, bucket)], axis=1))
        self._table = np.concatenate(table)  # (steps, 3): start, stop, bucket
        self.steps_per_epoch = len(self._table)
        positions = sum(rows * length for rows, _, length in (self.shapes[bucket] for bucket in self._table[:, 2]))
        self.padding_share = 1 - len(encoded.target_ids) / positions

    def batches(self, shuffle_seed: int | None, repeat: bool, start_step: int = 0) -> Iterator[Batch]:
        """The stream of `make_dataset` as NumPy arrays, from batch `start_step` on."""
        epoch, step = divmod(start_step, self.steps_per_epoch)
        while repeat or epoch == 0:
            pairs, table = self._epoch(shuffle_seed, epoch)
            for start, stop, bucket in table[step:].tolist():
                yield self._assemble(pairs[start:stop], self.shapes[bucket])
            epoch, step = epoch + 1, 0

    def _epoch(self, shuffle_seed: int | None, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(N,) pairs sorted by bucket, and the batch table in the order of this epoch."""
        if shuffle_seed is None:
            return np.argsort(self._buckets, kind="stable"), self._table
        generator = np.random.default_rng((shuffle_seed, epoch))
        shuffled = generator.permutation(len(self._buckets))
        pairs = shuffled[np.argsort(self._buckets[shuffled], kind="stable")]
        return pairs, self._table[generator.permutation(self.steps_per_epoch)]

    def _assemble(self, pairs: np.ndarray, shape: tuple[int, int, int]) -> Batch:
        rows, source_length, target_length = shape
        data = self.encoded
        source, _ = _pad(data.source_ids, data.source_offsets, pairs, (rows, source_length), data.source_pad_id)
        target_out, real = _pad(data.target_ids, data.target_offsets, pairs, (rows, target_length), data.target_pad_id)
        target_in = np.full_like(target_out, data.target_pad_id)
        target_in[:, 1:] = np.where(real[:, 1:], target_out[:, :-1], data.target_pad_id)
        target_in[: len(pairs), 0] = data.start_id
        return {"source": source, "target_in": target_in}, target_out


def _pad(
    ids: np.ndarray, offsets: np.ndarray, pairs: np.ndarray, shape: tuple[int, int], pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sequences of `pairs` as rows of a (B, L) int32 array, and a (B, L) bool array, True where they are."""
    first = np.zeros(shape[0], np.int64)
    length = np.zeros(shape[0], np.int64)
    first[: len(pairs)] = offsets[pairs]
    length[: len(pairs)] = offsets[pairs + 1] - offsets[pairs]
    position = np.arange(shape[1])
    real = position < length[:, None]  # (B, L)
    padded = np.full(shape, pad_id, np.int32)
    padded[real] = ids[(first[:, None] + position)[real]]
    return padded, real


def _rows(tokens_per_batch: int, length: int) -> int:
    return max(1, tokens_per_batch // length)


def _merge(bucket_lengths: Sequence[int], lengths: np.ndarray, tokens_per_batch: int) -> np.ndarray:
    """Ascending bucket lengths, after joining small buckets upwards and then the cheapest ones."""
    ends = list(bucket_lengths)
    counts = np.bincount(np.searchsorted(ends, lengths), minlength=len(ends)).tolist()
    while counts[-1] == 0:
        ends.pop()
        counts.pop()

    def join(bucket: int) -> None:
        counts[bucket + 1] += counts[bucket]
        del ends[bucket], counts[bucket]

    bucket = 0
    while bucket < len(ends) - 1:
        if counts[bucket] < _rows(tokens_per_batch, ends[bucket]):
            join(bucket)
        else:
            bucket += 1
    while len(ends) > MAX_SHAPES:
        join(min(range(len(ends) - 1), key=lambda i: counts[i] * (ends[i + 1] - ends[i])))
    return np.array(ends)


def _checked(bucket_lengths: Sequence[int], longest: int) -> np.ndarray:
    lengths = np.array(bucket_lengths, np.int64)
    if lengths.ndim != 1 or not len(lengths) or lengths[0] < 1 or np.any(np.diff(lengths) <= 0):
        raise ValueError(f"bucket_lengths must ascend from 1 or more. Received: bucket_lengths={list(bucket_lengths)}.")
    if lengths[-1] < longest:
        raise ValueError(
            f"bucket_lengths end at {lengths[-1]}, but the longest pair has {longest} tokens. "
            f"Add a bucket of {longest} or more, or encode with a smaller max_length."
        )
    return lengths
