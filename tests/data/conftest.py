"""A readable tokenizer for the pipeline's tests."""

import numpy as np
import pytest

from kformer.data import EncodedPairs
from kformer.tokenizers import SymbolTokenizer


@pytest.fixture(scope="session")
def letters() -> SymbolTokenizer:
    """Ids: a 4, b 5, ... z 29; pad 0, start 1, end 2."""
    return SymbolTokenizer([chr(code) for code in range(ord("a"), ord("z") + 1)])


@pytest.fixture
def make_encoded():
    """EncodedPairs with the given (source, target) lengths, ends included; every id but the end is unique."""

    def make(lengths: list[tuple[int, int]], max_length: int = 64) -> EncodedPairs:
        arrays = []
        first = 10
        for counts in zip(*lengths, strict=True):
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            ids = np.arange(first, first + offsets[-1], dtype=np.int32)
            ids[offsets[1:] - 1] = 2
            first += int(offsets[-1])
            arrays += [ids, offsets]
        return EncodedPairs(
            *arrays,
            source_pad_id=0,
            target_pad_id=0,
            start_id=1,
            max_length=max_length,
            skipped_blank=0,
            skipped_long=0,
        )

    return make
