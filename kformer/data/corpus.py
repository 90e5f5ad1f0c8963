"""What a corpus is: pairs of texts in three parts."""

import contextlib
import dataclasses
import hashlib
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING

from kformer.data.corpus_facts import CorpusFacts
from kformer.data.pairs import Pair, Pairs, SelectedPairs, as_read, check_pairs
from kformer.data.tags import has_tag, is_mixed, without_tag

if TYPE_CHECKING:
    from kformer.config import TrainingConfig
    from kformer.data.encoded_ids import IdStore
    from kformer.tokenizers import Tokenizer

_HELD_OUT_SHARE = 50  # one source in 50 is held out for each missing part, but
_FEWEST_HELD_OUT = 20  # at least 20, because a few pairs say by chance which weights are the best,
_LARGEST_SHARE = 10  # as long as they are at most one source in 10;
_MOST_HELD_OUT = 5000  # and at most so many, because each validation reads them all


@dataclasses.dataclass(frozen=True)
class CorpusPart:
    """One of several corpora that are joined.

    Attributes:
        name: Such as the name of its file.
        tag: What stands before each of its sources; "" for nothing.
        train, valid: How many pairs of the training and of the validation part are its own. The pairs of one corpus
            follow those of another.
    """

    name: str
    tag: str
    train: int
    valid: int


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Pairs of source and target texts.

    Attributes:
        name: the name by which the corpus was loaded.
        train, valid, test: (source, target) pairs: lists, or other parts that can be read again and again, see `Pairs`.
        symbols: True if both sides are symbols separated by blanks, for a `SymbolTokenizer`.
        valid_name: what messages call the validation pairs, if they are from a file of their own; None: as the corpus.
        task: the task that the pairs were made for, one of `kformer.config.TASKS`; None: any.
        parts: the corpora that it was joined of, see `join_corpora`; none if it is one corpus.
        labels: what `found_labels` has found, by task and lengths of the parts.

    Raises:
        ValueError: A part can be read only once.

    Examples:
        >>> corpus = Corpus("numbers", train=[("one", "uno"), ("two", "dos")], valid=[("three", "tres")], test=[])
        >>> corpus.valid
        [('three', 'tres')]
    """

    name: str
    train: Pairs
    valid: Pairs
    test: Pairs
    symbols: bool = False
    valid_name: str | None = None
    task: str | None = None
    parts: tuple[CorpusPart, ...] = ()
    labels: dict[tuple[str, int, int], tuple[set[str], set[str]]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            part = getattr(self, name)
            check_pairs(part)
            if isinstance(part, Iterator) or not isinstance(part, Sized):
                raise ValueError(
                    f"The part {name} of a corpus must have a length, and give its pairs again and again. Received: a "
                    f"{type(part).__name__}. Pass a list, or an object with the methods of kformer.data.Pairs."
                )

    def facts(self) -> CorpusFacts:
        """Numbers of the training and the validation part, which are read for it."""
        return CorpusFacts.of(self.train, self.valid, self.tags)

    @property
    def tags(self) -> tuple[str, ...]:
        """The different tags of its parts, in their order."""
        return tuple(dict.fromkeys(part.tag for part in self.parts if part.tag))

    @property
    def untagged(self) -> bool:
        """Whether some of its parts have a tag, and others none."""
        return is_mixed([part.tag for part in self.parts])

    def found_labels(self, task: str, find: Callable[[], tuple[set[str], set[str]]]) -> tuple[set[str], set[str]]:
        """The labels of the training and of the validation part, as `find` gives them when they are first asked for."""
        key = task, len(self.train), len(self.valid)  # lists may have grown
        if key not in self.labels:
            self.labels[key] = find()
        return self.labels[key]

    def learned_tokenizers(
        self, task: str, training: "TrainingConfig", learn: Callable[[], "tuple[Tokenizer, Tokenizer]"]
    ) -> "tuple[Tokenizer, Tokenizer]":
        """The tokenizers of a run that learns a task: those that `learn` makes of the training part."""
        return learn()

    def kept_ids(
        self, task: str, training: "TrainingConfig", tokenizers: "tuple[Tokenizer, Tokenizer]"
    ) -> "contextlib.AbstractContextManager[IdStore]":
        """Gives what keeps the ids of the training part, with their alignments if these are learned."""
        return contextlib.nullcontext(self.held_ids("train", training.guided_alignment > 0))

    def held_ids(self, part: str, aligned: bool = False) -> "IdStore":
        """What holds the ids of the part "train" or "valid" in memory, and counts those of each joined corpus."""
        from kformer.data.encoded_ids import MemoryIds

        return MemoryIds([getattr(one, part) for one in self.parts], aligned)

    def name_of(self, part: str) -> str:
        """What messages call the part "train", "valid" or "test".

        Examples:
            >>> Corpus("pairs.tsv", train=[], valid=[], test=[], valid_name="dev.tsv").name_of("valid")
            'dev.tsv'
        """
        return self.valid_name or self.name if part == "valid" else self.name


def part_names(parts: Sequence[CorpusPart]) -> list[str]:
    """A name for each of joined corpora: its own, or where several have it, with its tag or its number.

    Examples:
        >>> part_names([CorpusPart("a", "<2es>", 1, 1), CorpusPart("a", "<2en>", 1, 1), CorpusPart("b", "", 1, 1)])
        ['<2es> a', '<2en> a', 'b']
    """
    for named in (
        [part.name for part in parts],
        [f"{part.tag} {part.name}".strip() if _is_twice(part.name, parts) else part.name for part in parts],
    ):
        if len({*named}) == len(named):
            return named
    return [f"{number} {name}" for number, name in enumerate(named, 1)]


def _is_twice(name: str, parts: Sequence[CorpusPart]) -> bool:
    return sum(part.name == name for part in parts) > 1


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
    sources = list(dict.fromkeys(source for source, _ in pairs if source.strip()))
    return sources[:: max(1, len(sources) // number)][:number]


def corpus_from_pairs(name: str, train: Pairs, valid: Pairs | None = None, valid_name: str | None = None) -> Corpus:
    """A corpus of a user's own pairs, without a test part.

    Args:
        name: the name of the corpus in error messages and in the run folder.
        train, valid: (source, target) pairs: lists or other parts. Without `valid`, one source in 50 or more is held
            out of `train`: the same ones every time, see `hold_out`.
        valid_name: what messages call `valid`, such as the name of its file; by default `name`.

    Examples:
        >>> corpus = corpus_from_pairs("numbers", read_tsv("pairs.tsv"))
        >>> len(corpus.train), len(corpus.valid), len(corpus.test)
        (1, 1, 0)
    """
    if valid is None:
        check_pairs(train)
        train, valid = hold_out(name, train)
    return Corpus(name=name, train=train, valid=valid, test=[], valid_name=valid_name)


def hold_out(name: str, pairs: Pairs, tags: Collection[str] = ()) -> tuple[list[Pair] | SelectedPairs, list[Pair]]:
    """Splits pairs in two: those to train on, a list if `pairs` is one, and the held-out ones.

    Of the different sources, one in 50 is held out with all its pairs. Of fewer than 1,000 sources it is 20, or one in
    10 where these are fewer, but at least one; of more than 250,000 sources it is 5,000. The sources with the smallest
    SHA-256 hashes are taken. So the choice depends on the texts alone, not on their order. Sources that differ only in
    white space or in their Unicode form are one source, because tokenizers read them alike. A source is never held out
    if it is blank or has blank targets only, unless all targets are blank, as in plain text.

    Args:
        name: What messages call the pairs.
        pairs: They.
        tags: Of joined corpora; "" among them if some corpora have none. A tag does not belong to the source that is
            held out: with it go the pairs of all corpora that have it as their source, or as their target, as those of
            the other direction do. Where some corpora have a tag and others none, pairs without a tag alone are held
            out. Those with a tag may be synthetic: of them, what has a side in common with a held-out pair is in
            neither part.

    Raises:
        ValueError: There are fewer than two different sources that could be held out.

    Examples:
        >>> train, held_out = hold_out("numbers", [(f"source {n}", f"target {n}") for n in range(300)])
        >>> len(train), len(held_out)
        (280, 20)
    """
    held_out = _sources_to_hold_out(name, pairs, tags)
    learned = bytes(
        not (_key(without_tag(source, tags)) in held_out or (tags and _key(target) in held_out))
        for source, target in pairs
    )
    others = [pair for pair, is_learned in zip(pairs, learned, strict=True) if not is_learned]
    if is_mixed(tags):
        others = [pair for pair in others if not has_tag(pair[0], tags)]
        targets = {_key(target) for _, target in others if target.strip()}
        learned = bytes(
            is_learned and not (has_tag(source, tags) and _key(target) in targets)
            for is_learned, (source, target) in zip(learned, pairs, strict=True)
        )
    if isinstance(pairs, list):
        return list(itertools.compress(pairs, learned)), others
    return SelectedPairs(pairs, learned), others


def _sources_to_hold_out(name: str, pairs: Iterable[Pair], tags: Collection[str]) -> set[bytes]:
    """The keys of the sources to hold out. Of very many sources, not all keys are held in memory to find them."""
    with_target, plain, mixed = _LeastKeys(), _LeastKeys(), is_mixed(tags)
    for source, target in pairs:
        if mixed and has_tag(source, tags):
            continue
        if key := _key(without_tag(source, tags)):
            (with_target if target.strip() else plain).add(key)
    sources = with_target if with_target.number else plain
    if sources.number < 2:
        raise ValueError(
            f"To hold out pairs of {name}, it must have at least two different sources, with targets that are not "
            f"blank. Received: {sources.number}. Add pairs, or give validation (and test) pairs of their own (--valid)."
        )
    share = max(sources.number // _HELD_OUT_SHARE, min(_FEWEST_HELD_OUT, sources.number // _LARGEST_SHARE), 1)
    return sources.least(min(share, _MOST_HELD_OUT))


class _LeastKeys:
    """The different keys of a corpus; of very many, those that are the least."""

    most = _MOST_HELD_OUT * _HELD_OUT_SHARE

    def __init__(self) -> None:
        self._keys: set[bytes] = set()
        self._limit: bytes | None = None  # keys above it are no longer held

    @property
    def number(self) -> int:
        """How many there are; of very many, `most`."""
        return len(self._keys) if self._limit is None else self.most

    def add(self, key: bytes) -> None:
        if self._limit is not None and key > self._limit:
            return
        self._keys.add(key)
        if len(self._keys) > 2 * self.most:
            self._keys = set(heapq.nsmallest(self.most, self._keys))
            self._limit = max(self._keys)

    def least(self, number: int) -> set[bytes]:
        """So many of the least keys."""
        return set(heapq.nsmallest(number, self._keys))


def _key(source: str) -> bytes:
    """The SHA-256 hash of a source as tokenizers read it; of a blank source, nothing."""
    read = as_read(source)
    return hashlib.sha256(read.encode("utf-8")).digest() if read else b""
