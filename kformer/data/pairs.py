"""Pairs of texts that can be read again and again: the parts of a corpus.

A list of pairs is such a part. Other parts need not hold their texts: they read them from files each time, or make them
of the pairs of another part.
"""

import hashlib
import itertools
import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol, Self

from kformer.data.tags import tagged, without_tag

Pair = tuple[str, str]  # (source, target)
Links = tuple[tuple[int, int], ...]  # pairs of a source word and a target word, both counted from 0


class Pairs(Protocol):
    """A part of a corpus. Each iteration begins anew, and gives the same pairs in the same order.

    Training holds the ids of a part, but not its texts. So a class of your own may read texts where they are stored,
    although there is no memory for all of them.

    Examples:
        >>> class Numbers:
        ...     def __iter__(self):
        ...         return ((str(number), str(number + 1)) for number in range(1000))
        ...
        ...     def __len__(self):
        ...         return 1000
        >>> corpus = corpus_from_pairs("next numbers", Numbers())
        >>> len(corpus.train), next(iter(corpus.train))
        (980, ('0', '1'))
    """

    def __iter__(self) -> Iterator[Pair]: ...

    def __len__(self) -> int: ...


class AlignedPair(tuple[str, str]):
    """A pair of texts of which it is known which word translates which. Everywhere else it is a pair like any other.

    Attributes:
        links: (source word, target word), counted from 0. Words are what stands between white space.

    Examples:
        >>> pair = AlignedPair("white houses", "casas blancas", [(0, 1), (1, 0)])
        >>> source, target = pair
        >>> source, pair.links
        ('white houses', ((0, 1), (1, 0)))
    """

    links: Links

    def __new__(cls, source: str, target: str, links: Iterable[tuple[int, int]]) -> Self:
        pair = super().__new__(cls, (source, target))
        pair.links = tuple(links)
        return pair

    def __getnewargs__(self) -> tuple:  # for copies and pickles
        return (*self, self.links)


def with_tag(pair: Pair, tag: str) -> Pair:
    """The pair with a tag before its source, which is then the first word.

    Examples:
        >>> with_tag(("one", "uno"), "<2es>"), with_tag(AlignedPair("one", "uno", [(0, 0)]), "<2es>").links
        (('<2es> one', 'uno'), ((1, 0),))
    """
    source, target = pair
    text = tagged(source, tag)
    if not isinstance(pair, AlignedPair):
        return text, target
    more = len(text.split()) - len(source.split())
    return AlignedPair(text, target, ((first + more, second) for first, second in pair.links))


def pair_without_tag(pair: Pair, tags: Collection[str]) -> Pair:
    """The pair without the one of the tags with which its source begins.

    Examples:
        >>> pair_without_tag(("<2es> one", "uno"), ["<2es>"])
        ('one', 'uno')
        >>> pair_without_tag(AlignedPair("<2es> one", "uno", [(1, 0)]), ["<2es>"]).links
        ((0, 0),)
    """
    source, target = pair
    text = without_tag(source, tags)
    if not isinstance(pair, AlignedPair):
        return text, target
    more = len(source.split()) - len(text.split())
    return AlignedPair(text, target, ((first - more, second) for first, second in pair.links))


def check_pairs(pairs: object) -> None:
    """Refuses what is easily taken for pairs: the path of a file, one text, or a list with something else in it.

    Raises:
        ValueError: It is one.
    """
    if isinstance(pairs, str | bytes | os.PathLike):
        raise ValueError(
            f"Expected pairs of texts, such as [(source, target)]. Received: {pairs!r}. Read the pairs of a file by "
            "kformer.data.open_pairs(PATH) or kformer.data.read_tsv(PATH)."
        )
    for number, pair in enumerate(pairs if isinstance(pairs, list) else ()):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise ValueError(
                f"A pair is a source and a target, both of the type str. Received: {pair!r:.200}, the pair {number}. "
                "Leave it out, or write its texts as str: what is missing in a table of pandas is a float (NaN)."
            )


class MappedPairs:
    """The pairs of a part, each changed by a function.

    Args:
        change: from a pair to a pair.
        pairs: the part.
    """

    def __init__(self, change: Callable[[Pair], Pair], pairs: Pairs) -> None:
        self.change = change
        self.pairs = pairs

    def __iter__(self) -> Iterator[Pair]:
        return map(self.change, self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


class SelectedPairs:
    """Some of the pairs of a part.

    Args:
        pairs: the part.
        chosen: a byte for each pair, 1 if it is chosen, or else 0.
    """

    def __init__(self, pairs: Pairs, chosen: bytes) -> None:
        self.pairs = pairs
        self.chosen = chosen

    def __iter__(self) -> Iterator[Pair]:
        return itertools.compress(self.pairs, self.chosen)

    def __len__(self) -> int:
        return self.chosen.count(1)


def as_read(text: str) -> str:
    """The text as tokenizers read it: in the form NFC, with one blank for each run of white space."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def hash_of(source: str, target: str) -> int:
    """A hash of 64 bits, by which the same pairs are found. White space and the Unicode form do not count.

    Examples:
        >>> hash_of("one  two", "uno") == hash_of(" one two", "uno"), hash_of("one", "") == hash_of("", "one")
        (True, False)
    """
    text = f"{as_read(source)}\t{as_read(target)}"
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def source_only(pair: Pair) -> Pair:
    """The source on both sides, for what learns from single texts."""
    return pair[0], pair[0]
