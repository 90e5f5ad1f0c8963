"""Chooses buckets: pairs of a source and a target length to which batches are padded.

More buckets leave less padding, but make more batch shapes. How many rows a batch has: see `BatchPlan` in `batching`.

Shapes: N pairs, C candidate lengths.
"""

import numpy as np

FEW_BUCKETS = 24  # if XLA compiles a step for each bucket
MANY_BUCKETS = 96  # if no step is compiled
GOAL = 0.05  # the share of positions that may be padding
TARGET_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # the numbers of different target lengths that are tried

Bucket = tuple[int, int]  # the lengths of the longest source and of the longest target


def choose_buckets(
    source: np.ndarray, target: np.ndarray, tokens_per_batch: int, max_buckets: int = FEW_BUCKETS
) -> list[Bucket]:
    """The fewest buckets that keep the padding to `GOAL`, or `max_buckets` buckets with little padding.

    First the pairs are divided by their target lengths. Then the pairs of each target length are divided by their
    source lengths. Every bucket has enough pairs for a batch of `tokens_per_batch`, unless there are too few pairs.

    Args:
        source: (N,) int, the lengths of the sources.
        target: (N,) int, the lengths of the targets.
        tokens_per_batch: the limit of a batch's rows times the longer side.
        max_buckets: the largest number of buckets, at least 1.

    Returns:
        Buckets, sorted by target length and then by source length. A pair belongs to the first that is long enough.
    """
    plans = []
    cuts = _cuts(target, tokens_per_batch, 1, min(max_buckets, TARGET_LENGTHS[-1]))
    for targets in (cuts[number - 1] for number in TARGET_LENGTHS if number <= len(cuts)):
        padding, buckets = _with_source_cuts(source, target, targets, tokens_per_batch, max_buckets)
        share = padding / (padding + source.sum() + target.sum())
        plans.append((max(share, GOAL), len(buckets), buckets))
    return min(plans)[2]


def _with_source_cuts(
    source: np.ndarray, target: np.ndarray, targets: list[int], tokens_per_batch: int, max_buckets: int
) -> tuple[int, list[Bucket]]:
    """The number of padded positions, and the buckets, for given target lengths.

    Source lengths are added one by one, each where it saves most padding, until `GOAL` is reached.
    """
    groups = np.searchsorted(targets, target)
    members = [source[groups == number] for number in range(len(targets))]
    padding = np.array(targets)[groups].sum() - target.sum()
    choices = [
        _cuts(lengths, tokens_per_batch, longest, max_buckets)
        for lengths, longest in zip(members, targets, strict=True)
    ]
    costs = [[_padding(lengths, cuts) for cuts in group] for lengths, group in zip(members, choices, strict=True)]
    chosen = [0] * len(targets)
    real = source.sum() + target.sum()
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


def _padding(lengths: np.ndarray, cuts: list[int]) -> int:
    return int(np.array(cuts)[np.searchsorted(cuts, lengths)].sum() - lengths.sum())


def _cuts(lengths: np.ndarray, tokens_per_batch: int, other_side: int, most: int) -> list[list[int]]:
    """For each k = 1, 2, ... up to `most`, the k lengths that leave least padding if sequences are padded to them.

    The list ends before `most` if k lengths would not all get enough pairs for a batch. The method is dynamic
    programming over candidate lengths: the best k lengths up to candidate j consist of j and of the best k - 1 lengths
    up to some candidate below j.
    """
    ends = _candidates(int(lengths.max()))  # (C,)
    place = np.searchsorted(ends, lengths)
    count = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(ends)))])  # (C + 1,)
    total = np.concatenate([[0], np.cumsum(np.bincount(place, weights=lengths, minlength=len(ends)))])
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
