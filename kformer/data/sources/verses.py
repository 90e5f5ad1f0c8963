"""The verses that come with kformer, and corpora for classifiers and taggers that are made of the English ones."""

import itertools
import pathlib
import random
import re
from collections.abc import Callable

from kformer.data.corpus import Corpus
from kformer.data.pairs import Pair
from kformer.data.sources.tsv import read_tsv

_FOLDER = pathlib.Path(__file__).parents[1] / "corpora"
_PARTS = ("train", "valid", "test")
# The groups of books, in the order of the Bible, each with the number of its books.
_GROUPS = {"law": 5, "history": 12, "poetry": 5, "prophets": 17, "gospels": 5, "letters": 22}
_PUNCTUATION = ",.;:?!"


def load_bible() -> Corpus:
    """English verses and their Spanish translations."""
    train, valid, test = (_read(part, ("id", "source", "target")) for part in _PARTS)
    return Corpus("bible-en-es", train, valid, test)


def load_books() -> Corpus:
    """A verse, and the group of books that it is from: law, history, poetry, prophets, gospels (with Acts), letters."""
    verses = {part: _verses(part) for part in _PARTS}
    books = list(dict.fromkeys(_book(number) for _, number in verses["train"]))
    names = [name for name, size in _GROUPS.items() for _ in range(size)]
    group = dict(zip(books, names, strict=True))
    return _corpus(
        "bible-books", "classify", lambda part: [(text, group[_book(number)]) for text, number in verses[part]]
    )


def load_next_verses() -> Corpus:
    """Two verses with a tab between them, and whether the second one follows the first ("next") or not ("other").

    Half of the pairs are consecutive. In the others, the second verse is any verse of the same part.
    """
    return _corpus("bible-next", "classify", lambda part: _followers(_verses(part)))


def load_punctuation() -> Corpus:
    """The words of a verse in lower case without punctuation, and a tag for each word.

    A tag has "a" for a word in lower case, "A" for one that begins with a capital letter, "AA" for one in capital
    letters. The punctuation mark after the word follows, if there is one.
    """
    return _corpus(
        "bible-punctuation", "tag", lambda part: [pair for text, _ in _verses(part) if (pair := _tagged(text))[0]]
    )


def _corpus(name: str, task: str, load: Callable[[str], list[Pair]]) -> Corpus:
    train, valid, test = map(load, _PARTS)
    return Corpus(name, train, valid, test, task=task)


def _verses(part: str) -> list[Pair]:
    """The English verses of a part, each with its id, such as Gen.1.1."""
    return _read(part, ("target", "source", "spanish"))


def _read(part: str, columns: tuple[str, str, str]) -> list[Pair]:
    """A part with names for its columns: ids such as Gen.1.1, English verses, Spanish verses."""
    return read_tsv(_FOLDER / f"bible.en-es.{part}.tsv.xz", columns)


def _book(number: str) -> str:
    return number.split("=")[-1].split(".")[0]


def _followers(verses: list[Pair]) -> list[Pair]:
    draw = random.Random(0)
    pairs = []
    for (first, number), (second, follower) in itertools.pairwise(verses):
        if follower.rsplit(".", 1)[0] != number.rsplit(".", 1)[0]:
            continue  # the second verse is in another chapter
        if draw.random() < 0.5:
            pairs.append((f"{first}\t{second}", "next"))
        else:
            pairs.append((f"{first}\t{draw.choice(verses)[0]}", "other"))
    return pairs


def _tagged(text: str) -> Pair:
    words, tags = [], []
    for found in text.split():
        word = re.sub(r"[^\w'’-]", "", found)
        if not word:
            continue
        case = "AA" if word.isupper() and len(word) > 1 else "A" if word[0].isupper() else "a"
        marks = [letter for letter in found if letter in _PUNCTUATION]
        words.append(word.lower())
        tags.append(case + (marks[-1] if marks else ""))
    return " ".join(words), " ".join(tags)
