"""What a run must know of its corpus, found in one reading."""

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Self

from kformer.data.pairs import AlignedPair, Pair, as_read
from kformer.data.tags import without_tag

# Fewer than 1 in 1,000 training pairs have a shorter target for their source.
_SHORT = 0.001


@dataclasses.dataclass(frozen=True)
class CorpusFacts:
    """Numbers of the training and the validation part.

    Attributes:
        train, valid: How many pairs they have.
        tabs_in_sources: Whether a source of the training part has a tab, between two texts for a classifier.
        short_ratio: A target is seldom shorter: the characters of a target, in those of its source, of which fewer
            than 1 in 1,000 training pairs have less; to three decimals. None: each pair has a blank side.
        overlap: How many training pairs have the source of a validation pair, which the model has then seen before.
        sha256: A hash of all pairs in their order, with their alignments, in hexadecimal digits.
        aligned: How many training pairs have word alignments.
    """

    train: int
    valid: int
    tabs_in_sources: bool
    short_ratio: float | None
    overlap: int
    sha256: str
    aligned: int = 0

    @classmethod
    def of(cls, train: Iterable[Pair], valid: Iterable[Pair], tags: Collection[str] = ()) -> Self:
        """Reads the two parts; the validation part twice. The `tags` before sources do not count for their lengths.

        Examples:
            >>> facts = CorpusFacts.of([("one", "uno"), ("four", "cuatro")], [("two", "dos")])
            >>> facts.train, facts.valid, facts.short_ratio
            (2, 1, 1.0)
        """
        digest, numbers, tabs, ratios = hashlib.sha256(), [0, 0], False, Counter[float]()
        validated, overlap, aligned = {as_read(source) for source, _ in valid if source.strip()}, 0, 0
        for part, pairs in enumerate((train, valid)):
            for pair in pairs:
                source, target = pair
                digest.update(f"{source}\t{target}\n".encode())
                if isinstance(pair, AlignedPair):
                    digest.update(f"{pair.links}\n".encode())
                    aligned += part == 0
                numbers[part] += 1
                if part == 0:
                    tabs = tabs or "\t" in source
                    overlap += as_read(source) in validated
                    length = len(without_tag(source.strip(), tags))
                    if length and (written := len(target.strip())):
                        ratios[round(written / length, 4)] += 1
            digest.update(b"\x00")
        return cls(numbers[0], numbers[1], tabs, _shortest_but_few(ratios), overlap, digest.hexdigest(), aligned)


def _shortest_but_few(ratios: Counter[float]) -> float | None:
    """The ratio below which 1 in 1,000 lie, between two of them where it falls there, to three decimals."""
    place, below = _SHORT * (ratios.total() - 1), 0
    ordered = sorted(ratios)
    for ratio, following in itertools.zip_longest(ordered, ordered[1:]):
        below += ratios[ratio]
        if place < below:
            share = max(0.0, place - (below - 1))  # of the way from the last of these ratios to the next one
            return round(ratio + share * (following - ratio) if share else ratio, 3)
    return None
