"""Pairs that a model must not see in its training, because it will be tested on them."""

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Self

from kformer.data.pairs import Pair, hash_of


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Finds the pairs of a file, such as a test set, among those of a corpus. It holds hashes of 64 bits, no texts.

    Attributes:
        name: What messages call the file.
        sources, pairs: The hashes of its sources, and of its pairs. White space does not count; blank sources are none.

    Examples:
        >>> unseen = Unseen.of("test.tsv", [("one", "uno"), ("two", "dos")])
        >>> unseen.reason("one", "uno"), unseen.reason(" two", "2"), unseen.reason("three", "tres")
        ('the pair is also in test.tsv', 'the source is also in test.tsv', None)
    """

    name: str
    sources: frozenset[int]
    pairs: frozenset[int]

    @classmethod
    def of(cls, name: str, pairs: Iterable[Pair]) -> Self:
        """Reads pairs once."""
        sources, whole = set(), set()
        for source, target in pairs:
            if source.strip():
                sources.add(hash_of(source, ""))
                whole.add(hash_of(source, target))
        return cls(name, frozenset(sources), frozenset(whole))

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides which pairs are found, and what they are called."""
        content = repr((self.name, sorted(self.sources), sorted(self.pairs)))
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def reason(self, source: str, target: str) -> str | None:
        """Why a pair is left out of the training; None: the model may see it."""
        if hash_of(source, "") not in self.sources:
            return None
        what = "pair" if hash_of(source, target) in self.pairs else "source"
        return f"the {what} is also in {self.name}"
