"""Where the ids of a corpus are kept while they are made, and afterwards.

If the pairs are aligned, their links are kept, too: which source token and which target token translate each other.
They are sequences of numbers like the ids: the places of the two tokens, link by link.

Shapes: B pairs of a chunk, N pairs and I ids in all, L links in all.
"""

import array
import collections.abc
from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np

LARGEST_PLACE = (1 << 16) - 1  # of a token in a text whose links are kept
PLACE_TYPE = np.dtype(np.uint16)


class Sequences(NamedTuple):
    """B sequences of ids, one after another."""

    ids: np.ndarray  # (I,) integers
    counts: np.ndarray  # (B,) int64


class EncodedChunk(NamedTuple):
    """The ids of pairs that were read one after another.

    Attributes:
        source, target: Those of the pairs that are kept, with ids of `id_type`.
        counts: How many pairs were read, how many of them left out as "blank" and as "long", and how many sequences
            there are of one of several corpora, as "part 0", "part 1" and so on.
        links: Those of the pairs that are kept, of `PLACE_TYPE`; None if the pairs are not aligned.
    """

    source: Sequences
    target: Sequences
    counts: Counter[str]
    links: Sequences | None = None

    @property
    def sides(self) -> tuple[Sequences, ...]:
        """All sequences, in the order of the sides of a store."""
        return (self.source, self.target) if self.links is None else (self.source, self.target, self.links)


class KeptIds(NamedTuple):
    """The ids of all pairs, as `kformer.data.EncodedPairs` has them, and the counts of all chunks.

    Attributes:
        sides: Of the source, of the target and, if pairs are aligned, of the links: all numbers (I,), and (N + 1,)
            int64, where those of each pair begin and end.
        counts: As of `EncodedChunk`.
    """

    sides: list[tuple[np.ndarray, np.ndarray]]
    counts: Counter[str]


class IdStore(Protocol):
    """Takes the ids of a part of a corpus, chunk by chunk in the order of the pairs.

    Attributes:
        sizes: How many pairs each of several corpora has, one after another; nothing for one corpus.
        aligned: Whether it keeps links, too.
    """

    sizes: collections.abc.Sequence[int]
    aligned: bool

    def open(self, source_vocab_size: int, target_vocab_size: int) -> int | None:
        """How many pairs from the first one on it has the ids of already; None: all, so that no more come."""

    def add(self, chunk: EncodedChunk) -> None:
        """Takes the ids of the next pairs."""

    def close(self) -> KeptIds:
        """The ids of all pairs, when the last chunk has been added."""


def id_type(vocab_size: int) -> np.dtype:
    """The type of the ids of a vocabulary: two bytes where they suffice.

    Examples:
        >>> id_type(65_536), id_type(65_537)
        (dtype('uint16'), dtype('int32'))
    """
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def side_types(source_vocab_size: int, target_vocab_size: int, aligned: bool) -> dict[str, np.dtype]:
    """The sides of a store, and the type of the numbers of each.

    Examples:
        >>> [(side, str(dtype)) for side, dtype in side_types(100, 100_000, aligned=True).items()]
        [('source', 'uint16'), ('target', 'int32'), ('links', 'uint16')]
    """
    types = {"source": id_type(source_vocab_size), "target": id_type(target_vocab_size)}
    return {**types, "links": PLACE_TYPE} if aligned else types


class MemoryIds:
    """Keeps ids in memory, in arrays that grow at their end without a second copy.

    Args:
        sizes, aligned: As of `IdStore`.
    """

    def __init__(self, sizes: collections.abc.Sequence[int] = (), aligned: bool = False) -> None:
        self.sizes = sizes
        self.aligned = aligned

    def open(self, source_vocab_size: int, target_vocab_size: int) -> int:
        types = side_types(source_vocab_size, target_vocab_size, self.aligned)
        self._ids = [array.array(dtype.char) for dtype in types.values()]
        self._offsets = [array.array("q", [0]) for _ in self._ids]
        self._counts: Counter[str] = Counter()
        return 0

    def add(self, chunk: EncodedChunk) -> None:
        for ids, offsets, sequences in zip(self._ids, self._offsets, chunk.sides, strict=True):
            ids.frombytes(sequences.ids.tobytes())
            offsets.frombytes((offsets[-1] + np.cumsum(sequences.counts)).astype(np.int64).tobytes())
        self._counts += chunk.counts

    def close(self) -> KeptIds:
        sides = [(np.asarray(ids), np.asarray(offsets)) for ids, offsets in zip(self._ids, self._offsets, strict=True)]
        return KeptIds(sides, self._counts)
