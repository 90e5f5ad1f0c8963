"""How often each of several corpora is seen: the pairs of an epoch are those of each corpus, some times over.

Shapes: P corpora, R rows of an epoch, G stretches of rows.
"""

import math
from collections.abc import Sequence

import numpy as np

_MOST_ROWS = 1 << 30  # of an epoch: they take a byte or two each
_MOST_PASSES = 20  # over the corpus that is seen least, in one epoch
_CLOSE_ENOUGH = 0.01


def passes_of(sizes: Sequence[int], weights: Sequence[float] = (), temperature: float = 1.0) -> list[int]:
    """How many times an epoch has the pairs of each corpus.

    They are whole numbers as small as possible, of which the ratios are right within 1 in 100, or as near as an epoch
    of 20 passes over the corpus that is seen least allows.

    Args:
        sizes: (P,) pairs of each; nothing if there is one corpus.
        weights: (P,) above 0: a pair of weight 2 is seen twice as often as one of weight 1. By default all are 1.
        temperature: At least 1. A corpus of n pairs gets a share of the rows in proportion to n ** (1 / temperature),
            times its weight. With 1 every pair is seen equally often; the higher, the more often those of small
            corpora: Arivazhagan et al. (2019), "Massively Multilingual Neural Machine Translation in the Wild",
            section 4.2.

    Raises:
        ValueError: There are not as many weights as corpora, or an epoch would be too long.

    Examples:
        >>> passes_of([1000, 10], weights=[1, 3]), passes_of([1000, 10], temperature=2), passes_of([10, 10], [2, 3])
        ([1, 3], [1, 10], [2, 3])
    """
    if not sizes and len(weights) < 2:
        return [1]
    weights = list(weights) or [1.0] * len(sizes)
    if len(weights) != len(sizes):
        raise ValueError(
            "corpus_weights must have a number for each of several corpora. Received: "
            f"{len(weights)} for {max(1, len(sizes))}."
        )
    has_pairs = np.array(sizes) > 0  # of the others, no number of passes changes anything
    if not has_pairs.any():
        return [1] * len(sizes)
    wanted = np.array(weights)[has_pairs] * np.array(sizes, float)[has_pairs] ** (1 / temperature - 1)
    wanted /= wanted.min()
    best, error = np.ones(len(sizes), int), math.inf
    for least in range(1, _MOST_PASSES + 1):
        found = np.rint(wanted * least)
        off = float(np.max(np.abs(found / (wanted * least) - 1)))
        if off < error - 1e-12:
            best[has_pairs], error = found.astype(int), off
        if error <= _CLOSE_ENOUGH:
            break
    rows = int(np.dot(best, sizes))
    if rows > _MOST_ROWS:
        raise ValueError(
            f"With these weights, an epoch would have {rows:,} pairs: a corpus is seen {best.max():,} times in it. "
            f"An epoch has at most {_MOST_ROWS:,}. Give weights that are nearer to each other, or a lower temperature."
        )
    return best.tolist()


class Mixture:
    """The rows of an epoch, and which pair each is. Every stretch of rows has about the same share of each corpus.

    Args:
        sizes: (P,) pairs of each corpus. The pairs of one corpus follow those of another.
        passes: (P,) at least 1, how many times an epoch has them.
        stretch: About how many rows have each corpus once.

    Examples:
        >>> Mixture([4, 1], [1, 2], stretch=3).pairs_of(np.arange(6)).tolist()
        [0, 1, 4, 2, 3, 4]
    """

    def __init__(self, sizes: Sequence[int], passes: Sequence[int], stretch: int) -> None:
        totals = [size * times for size, times in zip(sizes, passes, strict=True)]
        self._rows = sum(totals)
        begins = np.cumsum([0, *sizes])[:-1]
        stretches = max(1, -(-self._rows // stretch))
        found: list[tuple[int, int]] = []  # the first pair and the number of pairs of each stretch of a corpus
        for number in range(stretches):
            for begin, size, total in zip(begins, sizes, totals, strict=True):
                row, end = number * total // stretches, (number + 1) * total // stretches
                while row < end:
                    count = min(end - row, size - row % size)
                    found.append((int(begin) + row % size, count))
                    row += count
        self._firsts, self._counts = (np.array(side, np.int64) for side in zip(*found, strict=True))
        self._starts = np.cumsum(self._counts) - self._counts  # (G,)

    def __len__(self) -> int:
        return self._rows

    def pairs_of(self, rows: np.ndarray) -> np.ndarray:
        """(R,) int64: the pairs that some rows are."""
        place = np.searchsorted(self._starts, rows, side="right") - 1
        return self._firsts[place] + rows - self._starts[place]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """(R,): of each row, the value that its pair has in `values` (N,)."""
        stretches = zip(self._firsts.tolist(), self._counts.tolist(), strict=True)
        return np.concatenate([values[first : first + count] for first, count in stretches])
