"""What a corpus is: pairs of texts in three parts."""

import dataclasses
import hashlib
from collections.abc import Iterable

Pair = tuple[str, str]  # (source, target)

_HELD_OUT_SHARE = 50  # one source in 50 is held out for each missing part


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Pairs of source and target texts.

    Attributes:
        name: the name by which the corpus was loaded.
        train, valid, test: (source, target) pairs.
        symbols: True if both sides are symbols separated by blanks, for a `SymbolTokenizer`.

    Examples:
        >>> corpus = Corpus("numbers", train=[("one", "uno"), ("two", "dos")], valid=[("three", "tres")], test=[])
        >>> corpus.valid
        [('three', 'tres')]
    """

    name: str
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    symbols: bool = False


def references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Every source with all its targets. Sources and targets are in the order of the pairs.

    Examples:
        >>> references([("r e a d", "R IY D"), ("c a t", "K AE T"), ("r e a d", "R EH D")])
        {'r e a d': ['R IY D', 'R EH D'], 'c a t': ['K AE T']}
    """
    grouped: dict[str, list[str]] = {}
    for source, target in pairs:
        grouped.setdefault(source, []).append(target)
    return grouped


def sample_sources(pairs: Iterable[Pair], number: int) -> list[str]:
    """At most `number` different sources that are not blank, spread evenly over the pairs."""
    sources = [source for source in references(pairs) if source.strip()]
    return sources[:: max(1, len(sources) // number)][:number]


def corpus_from_pairs(name: str, train: list[Pair], valid: list[Pair] | None = None) -> Corpus:
    """A corpus of a user's own pairs, without a test part.

    Args:
        name: the name of the corpus in error messages and in the run folder.
        train, valid: (source, target) pairs. Without `valid`, one source in 50 is held out of `train`: the same ones
            every time, see `hold_out`.

    Examples:
        >>> corpus = corpus_from_pairs("numbers", read_tsv("pairs.tsv"))
        >>> len(corpus.train), len(corpus.valid), len(corpus.test)
        (1, 1, 0)
    """
    if valid is None:
        train, valid = hold_out(name, train)
    return Corpus(name=name, train=train, valid=valid, test=[])


def hold_out(name: str, pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Splits pairs in two: those to train on, and the held-out ones.

    One in 50 of the different sources, but at least one, is held out with all its pairs: the sources with the smallest
    SHA-256 hashes. So the choice depends on the texts alone, not on their order. A blank source is never held out.

    Raises:
        ValueError: There are fewer than two different sources that are not blank.

    Examples:
        >>> train, held_out = hold_out("numbers", [(f"source {n}", f"target {n}") for n in range(100)])
        >>> len(train), len(held_out)
        (98, 2)
    """
    sources = sorted(
        {source for source, _ in pairs if source.strip()},
        key=lambda source: (hashlib.sha256(source.encode("utf-8")).digest(), source),
    )
    if len(sources) < 2:
        raise ValueError(
            f"To hold out pairs of {name}, it must have at least two different sources. Received: {len(sources)}. "
            "Add pairs, or give validation (and test) pairs of their own."
        )
    held_out = set(sources[: max(1, len(sources) // _HELD_OUT_SHARE)])
    return [pair for pair in pairs if pair[0] not in held_out], [pair for pair in pairs if pair[0] in held_out]
