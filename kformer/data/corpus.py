"""What a corpus is: pairs of texts in three parts."""

import dataclasses
import hashlib
import unicodedata
from collections.abc import Iterable

Pair = tuple[str, str]  # (source, target)

_HELD_OUT_SHARE = 50  # one source in 50 is held out for each missing part, but
_FEWEST_HELD_OUT = 20  # at least 20, because a few pairs say by chance which weights are the best,
_LARGEST_SHARE = 10  # as long as they are at most one source in 10


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Pairs of source and target texts.

    Attributes:
        name: the name by which the corpus was loaded.
        train, valid, test: (source, target) pairs.
        symbols: True if both sides are symbols separated by blanks, for a `SymbolTokenizer`.
        valid_name: what messages call the validation pairs, if they are from a file of their own; None: as the corpus.
        task: the task that the pairs were made for, one of `kformer.config.TASKS`; None: any.

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
    valid_name: str | None = None
    task: str | None = None

    def name_of(self, part: str) -> str:
        """What messages call the part "train", "valid" or "test".

        Examples:
            >>> Corpus("pairs.tsv", train=[], valid=[], test=[], valid_name="dev.tsv").name_of("valid")
            'dev.tsv'
        """
        return self.valid_name or self.name if part == "valid" else self.name


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


def corpus_from_pairs(
    name: str, train: list[Pair], valid: list[Pair] | None = None, valid_name: str | None = None
) -> Corpus:
    """A corpus of a user's own pairs, without a test part.

    Args:
        name: the name of the corpus in error messages and in the run folder.
        train, valid: (source, target) pairs. Without `valid`, one source in 50 or more is held out of `train`: the same
            ones every time, see `hold_out`.
        valid_name: what messages call `valid`, such as the name of its file; by default `name`.

    Examples:
        >>> corpus = corpus_from_pairs("numbers", read_tsv("pairs.tsv"))
        >>> len(corpus.train), len(corpus.valid), len(corpus.test)
        (1, 1, 0)
    """
    if valid is None:
        train, valid = hold_out(name, train)
    return Corpus(name=name, train=train, valid=valid, test=[], valid_name=valid_name)


def hold_out(name: str, pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Splits pairs in two: those to train on, and the held-out ones.

    Of the different sources, one in 50 is held out with all its pairs. Of fewer than 1,000 sources it is 20, or one in
    10 where these are fewer, but at least one. The sources with the smallest SHA-256 hashes are taken. So the choice
    depends on the texts alone, not on their order. Sources that differ only in white space or in their Unicode form are
    one source, because tokenizers read them alike. A blank source is never held out.

    Raises:
        ValueError: There are fewer than two different sources that are not blank.

    Examples:
        >>> train, held_out = hold_out("numbers", [(f"source {n}", f"target {n}") for n in range(300)])
        >>> len(train), len(held_out)
        (280, 20)
    """
    read = [_as_read(source) for source, _ in pairs]
    sources = sorted(
        {source for source in read if source},
        key=lambda source: (hashlib.sha256(source.encode("utf-8")).digest(), source),
    )
    if len(sources) < 2:
        raise ValueError(
            f"To hold out pairs of {name}, it must have at least two different sources. Received: {len(sources)}. "
            "Add pairs, or give validation (and test) pairs of their own."
        )
    number = max(len(sources) // _HELD_OUT_SHARE, min(_FEWEST_HELD_OUT, len(sources) // _LARGEST_SHARE), 1)
    held_out = set(sources[:number])
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for pair, source in zip(pairs, read, strict=True):
        parts[source in held_out].append(pair)
    return parts


def _as_read(text: str) -> str:
    """The text as tokenizers read it: in the form NFC, with one blank for each run of white space."""
    return unicodedata.normalize("NFC", " ".join(text.split()))
