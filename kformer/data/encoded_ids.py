"""Where the ids of a corpus are kept while they are made, and afterwards.

Shapes: B pairs of a chunk, N pairs and I ids in all.
"""

import array
import collections.abc
from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np


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
    """

    source: Sequences
    target: Sequences
    counts: Counter[str]


class KeptIds(NamedTuple):
    """The ids of all pairs; the fields are those of `kformer.data.EncodedPairs`, and the counts of all chunks."""

    source_ids: np.ndarray
    source_offsets: np.ndarray
    target_ids: np.ndarray
    target_offsets: np.ndarray
    counts: Counter[str]


class IdStore(Protocol):
    """Takes the ids of a part of a corpus, chunk by chunk in the order of the pairs.

    Attributes:
        sizes: How many pairs each of several corpora has, one after another; nothing for one corpus.
    """

    sizes: collections.abc.Sequence[int]

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


class MemoryIds:
    """Keeps ids in memory, in arrays that grow at their end without a second copy.

    Args:
        sizes: As of `IdStore`.
    """

    def __init__(self, sizes: collections.abc.Sequence[int] = ()) -> None:
        self.sizes = sizes

    def open(self, source_vocab_size: int, target_vocab_size: int) -> int:
        self._ids = [array.array(id_type(size).char) for size in (source_vocab_size, target_vocab_size)]
        self._offsets = [array.array("q", [0]) for _ in self._ids]
        self._counts: Counter[str] = Counter()
        return 0

    def add(self, chunk: EncodedChunk) -> None:
        for ids, offsets, sequences in zip(self._ids, self._offsets, chunk[:2], strict=True):
            ids.frombytes(sequences.ids.tobytes())
            offsets.frombytes((offsets[-1] + np.cumsum(sequences.counts)).astype(np.int64).tobytes())
        self._counts += chunk.counts

    def close(self) -> KeptIds:
        (source, target), (source_offsets, target_offsets) = (
            [np.asarray(one) for one in side] for side in (self._ids, self._offsets)
        )
        return KeptIds(source, source_offsets, target, target_offsets, self._counts)
