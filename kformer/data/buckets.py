"""Chooses buckets: pairs of a source and a target length to which batches are padded.

More buckets leave less padding, but make more batch shapes. How many rows a batch has: see `BatchPlan` in `batching`.

Shapes: N pairs, L different pairs of lengths, C candidate lengths.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

FEW_BUCKETS = 24  # if XLA compiles a step for each bucket
MANY_BUCKETS = 96  # if no step is compiled
GOAL = 0.05  # the share of positions that may be padding
TARGET_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # the numbers of different target lengths that are tried

Bucket = tuple[int, int]  # the lengths of the longest source and of the longest target
Codes = Callable[[], Iterator[np.ndarray]]  # gives numbers from 0 up anew each time, some of them at once
_PAIRS_AT_ONCE = 1 << 20
_LARGEST_TABLE = 1 << 22  # pairs of lengths that are counted in a table


class LengthCounts(NamedTuple):
    """How many pairs have which lengths. Of millions of pairs, there are only thousands of different lengths."""

    source: np.ndarray  # (L,) int64, sorted by target and then by source
    target: np.ndarray  # (L,) int64
    pairs: np.ndarray  # (L,) int64, how many have these lengths
    number: np.ndarray  # (N,) uint16 or uint32, which of the L a pair has


def count_lengths(source_offsets: np.ndarray, target_offsets: np.ndarray) -> LengthCounts:
    """Counts pairs of lengths, some pairs at a time: the offsets may lie on the disk.

    Args:
        source_offsets, target_offsets: (N + 1,) int, as of `EncodedPairs`.

    Examples:
        >>> counts = count_lengths(np.array([0, 3, 5, 8]), np.array([0, 1, 5, 6]))
        >>> counts.source.tolist(), counts.target.tolist(), counts.pairs.tolist(), counts.number.tolist()
        ([3, 2], [1, 4], [2, 1], [0, 1, 0])
    """

    def lengths() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(source_offsets) - 1, _PAIRS_AT_ONCE):
            source, target = (np.diff(side[start:][: _PAIRS_AT_ONCE + 1]) for side in (source_offsets, target_offsets))
            yield source.astype(np.int64), target.astype(np.int64)

    longest = np.max([(source.max(), target.max()) for source, target in lengths()], axis=0)
    width, height = map(int, longest + 1)

    def codes() -> Iterator[np.ndarray]:
        return (target * width + source for source, target in lengths())

    number_codes = _with_a_table if width * height <= _LARGEST_TABLE else _with_sorting
    known, pairs, number = number_codes(codes, width * height)
    return LengthCounts(known % width, known // width, pairs, number)


def _with_a_table(codes: Codes, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different codes, how often each comes, and the number of each code; all are below the limit."""
    table = np.zeros(limit, np.int64)
    for some in codes():
        table += np.bincount(some, minlength=limit)
    known = np.flatnonzero(table)
    rank = np.zeros(limit, _type_of(known))
    rank[known] = np.arange(len(known))
    return known, table[known], np.concatenate([rank[some] for some in codes()])


def _with_sorting(codes: Codes, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same in five times the time, but in no more memory if the limit is large."""
    found = [np.unique(some, return_counts=True) for some in codes()]
    known, place = np.unique(np.concatenate([some for some, _ in found]), return_inverse=True)
    pairs = np.bincount(place, weights=np.concatenate([counts for _, counts in found])).astype(np.int64)
    return known, pairs, np.concatenate([np.searchsorted(known, some).astype(_type_of(known)) for some in codes()])


def _type_of(known: np.ndarray) -> np.dtype:
    return np.dtype(np.uint16 if len(known) <= 1 << 16 else np.uint32)


def choose_buckets(
    source: np.ndarray,
    target: np.ndarray,
    tokens_per_batch: int,
    max_buckets: int = FEW_BUCKETS,
    pairs: np.ndarray | None = None,
) -> list[Bucket]:
    """The fewest buckets that keep the padding to `GOAL`, or `max_buckets` buckets with little padding.

    First the pairs are divided by their target lengths. Then the pairs of each target length are divided by their
    source lengths. Every bucket has enough pairs for a batch of `tokens_per_batch`, unless there are too few pairs.

    Args:
        source: (L,) int, lengths of sources.
        target: (L,) int, the lengths of their targets.
        tokens_per_batch: the limit of a batch's rows times the longer side.
        max_buckets: the largest number of buckets, at least 1.
        pairs: (L,) int, how many pairs have these lengths; None: one each.

    Returns:
        Buckets, sorted by target length and then by source length. A pair belongs to the first that is long enough.
    """
    counts = np.ones(len(source), np.int64) if pairs is None else pairs
    plans = []
    cuts = _cuts(_Lengths(target, counts), tokens_per_batch, 1, min(max_buckets, TARGET_LENGTHS[-1]))
    tokens = int((source + target) @ counts)
    for targets in (cuts[number - 1] for number in TARGET_LENGTHS if number <= len(cuts)):
        padding, buckets = _with_source_cuts(source, _Lengths(target, counts), targets, tokens_per_batch, max_buckets)
        plans.append((max(padding / (padding + tokens), GOAL), len(buckets), buckets))
    return min(plans)[2]


class _Lengths(NamedTuple):
    """Lengths of sequences, and how many have each."""

    lengths: np.ndarray  # (L,) int
    counts: np.ndarray  # (L,) int

    def padding(self, cuts: list[int]) -> int:
        """The padding, if each sequence is padded to the shortest cut that is long enough."""
        return int((np.array(cuts)[np.searchsorted(cuts, self.lengths)] - self.lengths) @ self.counts)


def _with_source_cuts(
    source: np.ndarray, target: _Lengths, targets: list[int], tokens_per_batch: int, max_buckets: int
) -> tuple[int, list[Bucket]]:
    """The number of padded positions, and the buckets, for given target lengths.

    Source lengths are added one by one, each where it saves most padding, until `GOAL` is reached.
    """
    groups = np.searchsorted(targets, target.lengths)
    members = [_Lengths(source[groups == number], target.counts[groups == number]) for number in range(len(targets))]
    padding = target.padding(targets)
    choices = [
        _cuts(lengths, tokens_per_batch, longest, max_buckets)
        for lengths, longest in zip(members, targets, strict=True)
    ]
    costs = [[lengths.padding(cuts) for cuts in group] for lengths, group in zip(members, choices, strict=True)]
    chosen = [0] * len(targets)
    real = int((source + target.lengths) @ target.counts)
    while len(targets) + sum(chosen) < max_buckets:
        total = padding + sum(cost[number] for cost, number in zip(costs, chosen, strict=True))
        gains = [
            cost[number] - cost[number + 1] if number + 1 < len(cost) else 0
            for cost, number in zip(costs, chosen, strict=True)
        ]
        if total <= GOAL * (total + real) or max(gains) <= 0:
            break
        chosen[int(np.argmax(gains))] += 1
    buckets = [
        (cut, longest) for group, number, longest in zip(choices, chosen, targets, strict=True) for cut in group[number]
    ]
    return int(padding + sum(cost[number] for cost, number in zip(costs, chosen, strict=True))), buckets


def _cuts(sequences: _Lengths, tokens_per_batch: int, other_side: int, most: int) -> list[list[int]]:
    """For each k = 1, 2, ... up to `most`, the k lengths that leave least padding if sequences are padded to them.

    The list ends before `most` if k lengths would not all get enough pairs for a batch. The method is dynamic
    programming over candidate lengths: the best k lengths up to candidate j consist of j and of the best k - 1 lengths
    up to some candidate below j.
    """
    lengths, counts = sequences
    ends = _candidates(int(lengths.max()))  # (C,)
    place = np.searchsorted(ends, lengths)
    count = np.concatenate([[0], np.cumsum(np.bincount(place, weights=counts, minlength=len(ends)))])  # (C + 1,)
    total = np.concatenate([[0], np.cumsum(np.bincount(place, weights=lengths * counts, minlength=len(ends)))])
    held = count[None, 1:] - count[:-1, None]  # (C, C): the number of pairs of candidates i to j
    cost = ends * held - (total[None, 1:] - total[:-1, None])
    rows = np.maximum(1, tokens_per_batch // np.maximum(ends, other_side))
    cost = np.where(held >= rows, cost, np.inf)  # infinite where j < i, too
    best, came_from = cost[0], []
    found = [[int(ends[-1])]]
    for _ in range(most - 1):
        through = best[:-1, None] + cost[1:]  # (C - 1, C)
        came_from.append(np.argmin(through, axis=0))
        best = through.min(axis=0)
        if not np.isfinite(best[-1]):
            break
        places = [len(ends) - 1]
        for previous in reversed(came_from):
            places.append(int(previous[places[-1]]))
        found.append([int(ends[number]) for number in reversed(places)])
    return found


def _candidates(longest: int) -> np.ndarray:
    """1, 2, ..., 32, 34, ..., 64, 68, ... up to `longest`: above 32 the steps are about a sixteenth of the length."""
    ends, length = [], 1
    while length < longest:
        ends.append(length)
        length += max(1, 2 ** (length.bit_length() - 5))
    return np.array([*ends, longest])
