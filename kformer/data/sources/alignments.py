"""Word alignments of pairs, as word aligners write them: the Pharaoh form, such as `0-0 1-2 2-1`."""

import itertools
import pathlib
import re
from collections.abc import Iterator

from kformer.data.pairs import AlignedPair, Links, Pair
from kformer.data.sources.lines import FilePairs, TextLines
from kformer.wording import count

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


class AlignedFile(FilePairs):
    r"""The pairs of a file or of two parallel files, with the word alignments that stand in another file.

    Line n of that file belongs to pair n. It has the links of the pair, with white space between them: the number of a
    source word, a hyphen, and the number of the target word that translates it, both counted from 0. Words are what
    stands between white space in the texts as they are. A line without links is a pair without an alignment. Such files
    are written by fast_align, eflomal and awesome-align.

    Args:
        pairs: The pairs, such as `TsvFile` or `ParallelFiles`.
        path: The file of the alignments, which may be compressed.

    Raises:
        FileNotFoundError: One of the files does not exist.
        ValueError: A line has another form, or names a word that the pair does not have; there are more or fewer lines
            than pairs; or bad lines of `pairs` are left out, so that lines and pairs would not belong together.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("pairs.align").write_text("0-0 1-1\n0-0\n")
        >>> [pair.links for pair in AlignedFile(TsvFile("pairs.tsv"), "pairs.align")]
        [((0, 0), (1, 1)), ((0, 0),)]
    """

    _lines: TextLines

    def __init__(self, pairs: FilePairs, path: str | pathlib.Path) -> None:
        if pairs.skip_bad_lines:
            raise ValueError("Pairs with alignments must all be read. Received: skip_bad_lines=True. Leave it out.")
        self.pairs = pairs
        self.path = path
        self._lines = TextLines(path)

    @property
    def files(self) -> tuple[pathlib.Path, ...]:
        return (*self.pairs.files, pathlib.Path(self.path))

    @property
    def reading(self) -> tuple[str, ...]:
        return (type(self).__name__, *self.pairs.reading)

    def __iter__(self) -> Iterator[Pair]:
        pairs = lines = 0
        with self._lines.open() as numbered:
            for pair, numbered_line in itertools.zip_longest(self.pairs, numbered):
                pairs += pair is not None
                lines += numbered_line is not None
                if pair is not None and numbered_line is not None:
                    yield AlignedPair(pair[0], pair[1], self._links(pair, *numbered_line))
        if pairs != lines:
            names = " and ".join(map(str, self.pairs.files))
            raise ValueError(
                f"There must be a line of alignments for each pair. Received: {self.path} with {count(lines, 'line')}, "
                f"for {names} with {count(pairs, 'pair')}. Align the same lines again."
            )

    def _links(self, pair: Pair, number: int, line: str | None) -> Links:
        """The links of a line.

        Raises:
            ValueError: It has none of this form, or one that is beyond the words of the pair.
        """
        written = (line or "").split()
        found = [_LINK.fullmatch(link) for link in written]
        links = tuple((int(link[1]), int(link[2])) for link in found if link is not None)
        if len(links) < len(written):
            wrong = written[found.index(None)]
            raise ValueError(
                f"{self.path}, line {number}: {wrong[:40]!r} is no link. Expected links such as 0-0 1-2, with white "
                "space between them: source word - target word, counted from 0."
            )
        words = [len(text.split()) for text in pair]
        for link in links:
            if link[0] >= words[0] or link[1] >= words[1]:
                raise ValueError(
                    f"{self.path}, line {number}: the link {link[0]}-{link[1]} names a word that is not there. "
                    f"Words are counted from 0, and the pair has {count(words[0], 'source word')} and "
                    f"{count(words[1], 'target word')} between its blanks. Align the texts as they stand in the files, "
                    "in this direction: source word - target word."
                )
        return links
