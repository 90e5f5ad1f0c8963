"""Several corpora as one: their pairs follow one another, each source with the tag of its corpus.

A tag is a word before the source that says what is wanted of the model, such as the language of the target: Johnson et
al. (2017), "Google's Multilingual Neural Machine Translation System", section 3.
"""

import collections
import itertools
import pathlib
from collections.abc import Iterator, Sequence

from kformer.data.corpus import Corpus, CorpusPart
from kformer.data.pairs import Pair, Pairs, with_tag
from kformer.data.sources.lines import FilePairs
from kformer.data.tags import check_tags


class JoinedPairs:
    """The pairs of several parts of corpora, one part after another.

    Args:
        parts: Each can be read again and again.
        tags: What stands before each source of each part, such as "<2es>"; "" for nothing. None: no part has a tag.

    Raises:
        ValueError: There are not as many tags as parts, or a tag is none.

    Examples:
        >>> both = JoinedPairs([[("one", "uno")], [("uno", "one"), ("dos", "two")]], tags=["<2es>", "<2en>"])
        >>> list(both), both.sizes
        ([('<2es> one', 'uno'), ('<2en> uno', 'one'), ('<2en> dos', 'two')], (1, 2))
    """

    def __init__(self, parts: Sequence[Pairs], tags: Sequence[str] | None = None) -> None:
        self.parts = list(parts)
        self.tags = [""] * len(self.parts) if tags is None else list(tags)
        check_tags(self.tags)
        if len(self.tags) != len(self.parts):
            raise ValueError(
                f"There must be a tag for each corpus. Received: {len(self.tags)} tags for {len(self.parts)} corpora. "
                'Give "" for a corpus without a tag.'
            )
        self._sizes: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many pairs each part has."""
        if not self._sizes:
            collections.deque(self, maxlen=0)  # reads all
        return self._sizes

    def __iter__(self) -> Iterator[Pair]:
        sizes = []
        for part, tag in zip(self.parts, self.tags, strict=True):
            number = 0
            for pair in part:
                yield with_tag(pair, tag)
                number += 1
            sizes.append(number)
        self._sizes = tuple(sizes)

    def __len__(self) -> int:
        return sum(self.sizes)


class JoinedFiles(JoinedPairs, FilePairs):
    """The pairs of several files, one file after another. Arguments and errors are those of `JoinedPairs`.

    Examples:
        >>> both = JoinedFiles([TsvFile("pairs.tsv"), TsvFile("pairs.tsv", ("target", "source"))], ["<2es>", "<2en>"])
        >>> list(both)
        [('<2es> one two', 'uno dos'), ('<2es> three', 'tres'), ('<2en> uno dos', 'one two'), ('<2en> tres', 'three')]
    """

    parts: list[FilePairs]  # type: ignore[assignment]

    @property
    def files(self) -> tuple[pathlib.Path, ...]:
        return tuple(itertools.chain.from_iterable(part.files for part in self.parts))

    def estimate(self) -> int | None:
        known = [number for part in self.parts if (number := part.estimate()) is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def reading(self) -> tuple[str, ...]:
        of_parts = ((str(len(part.files)), *part.reading, tag) for part, tag in zip(self.parts, self.tags, strict=True))
        return (type(self).__name__, *itertools.chain.from_iterable(of_parts))


def join_corpora(corpora: Sequence[Corpus], tags: Sequence[str] | None = None, name: str | None = None) -> Corpus:
    """One corpus of several.

    How often each is seen in training is up to `TrainingConfig.corpus_weights` and `corpus_temperature`. Validations
    score each apart.

    Args:
        corpora: At least one, all of symbols, or none.
        tags: What stands before each source of each corpus. None: no corpus has a tag.
        name: By default the names of the corpora, with a plus between them.

    Raises:
        ValueError: There are not as many tags as corpora, a tag is none, or the corpora do not suit each other.

    Examples:
        >>> there = Corpus("there", train=[("one", "uno")], valid=[("two", "dos")], test=[])
        >>> back = Corpus("back", train=[("uno", "one")], valid=[("dos", "two")], test=[])
        >>> both = join_corpora([there, back], tags=["<2es>", "<2en>"])
        >>> both.name, list(both.train)
        ('there + back', [('<2es> one', 'uno'), ('<2en> uno', 'one')])
    """
    if not corpora or len({(corpus.symbols, corpus.task) for corpus in corpora}) > 1:
        kinds = ", ".join(f"{corpus.name} (symbols={corpus.symbols}, task={corpus.task})" for corpus in corpora)
        raise ValueError(f"Corpora that are joined must be of one kind. Received: {kinds or 'none'}.")
    train, valid, test = (
        JoinedPairs([getattr(corpus, part) for corpus in corpora], tags) for part in ("train", "valid", "test")
    )
    parts = tuple(map(CorpusPart, (corpus.name for corpus in corpora), train.tags, train.sizes, valid.sizes))
    first, joined = corpora[0], name or " + ".join(corpus.name for corpus in corpora)
    return Corpus(joined, train, valid, test, first.symbols, task=first.task, parts=parts)
