"""Small trained tokenizers; each is made once."""

import pytest

from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer

TEXTS = [
    f"{animal} number {n} {verb} over the {place} at {n}:30, señor."
    for n in range(40)
    for animal, verb, place in (("fox", "jumps", "river"), ("dog", "sleeps", "garden"), ("ñandú", "runs", "café"))
]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return TEXTS


@pytest.fixture(scope="session")
def bpe() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(TEXTS, 320, "bpe")


@pytest.fixture(scope="session")
def unigram() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(TEXTS, 300, "unigram")


@pytest.fixture(scope="session")
def symbols() -> SymbolTokenizer:
    return SymbolTokenizer(["K", "AE", "T"])
