"""The ids of very many texts, from the ids of their words."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_MOST_CHARACTERS = 1 << 21  # some 250,000 words, which take 50 MB
_ID_BYTES = 4

# From B texts to their ids, (I,) int32, one text after another, and the number of ids of each, (B,) int64.
IdsOf = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]


class _Words(NamedTuple):
    """What is remembered.

    Attributes:
        ids: The ids of each word.
        silent: The words without ids. Some have ids in a text of more words, such as a joiner between blanks.
    """

    ids: dict[str, bytes]
    silent: set[str]


class WordIds:
    """Remembers the ids of words, for a tokenizer that gives a text the ids of its words, one word after another.

    A word is what stands between blanks. A few words make up most of a corpus, so that nearly all texts consist of
    words that were there before. Several threads may use it at the same time.

    Args:
        ids_of: Gives the ids of any texts.
        most_characters: Of the words that are remembered. With more, all are forgotten.

    Examples:
        >>> def ids_of(texts):
        ...     print(sorted(texts))
        ...     return np.array([*map(ord, "".join(texts))], np.int32), np.array([*map(len, texts)])
        >>> words = WordIds(ids_of)
        >>> [ids.tolist() for ids in words.ids_of(["b b b"])]
        ['b']
        [[98, 98, 98], [3]]
        >>> [ids.tolist() for ids in words.ids_of(["a", "b a"])]
        ['a']
        [[97, 98, 97], [1, 2]]
    """

    def __init__(self, ids_of: IdsOf, most_characters: int = _MOST_CHARACTERS) -> None:
        self._ids_of = ids_of
        self._most_characters = most_characters
        self._forget()

    def ids_of(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of B texts, (I,) int32, one text after another, and the number of ids of each, (B,) int64."""
        words = [text.split(" ") for text in texts]
        known = self._with(set(itertools.chain.from_iterable(words)))
        rows = [b"".join(map(known.ids.__getitem__, of_text)) for of_text in words]
        if known.silent:
            whole = [place for place, of_text in enumerate(words) if not known.silent.isdisjoint(of_text)]
            for place, row in zip(whole, self._rows([texts[place] for place in whole]), strict=True):
                rows[place] = row
        counts = np.fromiter(map(len, rows), np.int64, len(rows)) // _ID_BYTES
        return np.frombuffer(b"".join(rows), np.int32), counts

    def _with(self, words: set[str]) -> _Words:
        """What is remembered of these words and of others. Other threads may add to it, or begin anew."""
        known = self._known
        if new := [word for word in words if word not in known.ids]:
            found = dict(zip(new, self._rows(new), strict=True))
            known.silent.update(word for word, ids in found.items() if word and not ids)
            known.ids.update(found)
            self._characters += sum(map(len, new))
            if self._characters > self._most_characters:
                self._forget()
        return known

    def _forget(self) -> None:
        self._known, self._characters = _Words({}, set()), 0

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text."""
        if not texts:
            return []
        ids, counts = self._ids_of(texts)
        content, ends = ids.astype(np.int32).tobytes(), np.cumsum(counts) * _ID_BYTES
        return [
            content[end - size : end] for end, size in zip(ends.tolist(), (counts * _ID_BYTES).tolist(), strict=True)
        ]
