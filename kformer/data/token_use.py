"""How well a vocabulary suits texts: how many tokens they have, and what it lacks."""

import dataclasses
import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np

from kformer.tokenizers.base import Tokenizer

_TEXTS_PER_CALL = 2000
_SHOWN = 10  # of what the vocabulary lacks


@dataclasses.dataclass
class TokenUse:
    """Numbers of texts that were divided into tokens.

    Attributes:
        texts, tokens, words, characters: How many there are. Words are what stands between blanks.
        incomplete: How many texts have a token that stands for the unknown, or for a single byte.
        lacking: What these stand for, and how often: characters if the tokenizer writes them as bytes, or else words.
    """

    texts: int = 0
    tokens: int = 0
    words: int = 0
    characters: int = 0
    incomplete: int = 0
    lacking: Counter[str] = dataclasses.field(default_factory=Counter)

    def line(self) -> str:
        """The numbers in words."""
        numbers = (
            f"{self.tokens:,} tokens, {self.tokens / max(1, self.words):.2f} for each word and "
            f"{self.tokens / max(1, self.characters):.2f} for each character"
        )
        lacking = ", ".join(f"{part} {number:,}" for part, number in self.lacking.most_common(_SHOWN))
        share = f"{self.incomplete / max(1, self.texts):.1%} of the texts have what the vocabulary lacks"
        return f"{numbers}; {share}" + (f": {lacking}" if lacking else "")


def token_use(texts: Iterable[str], tokenizer: Tokenizer) -> TokenUse:
    """Divides texts into tokens. Only what the vocabulary lacks is held.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["K", "AE", "T"])
        >>> use = token_use(["K AE T", "T UH K"], tokenizer)
        >>> use.tokens, use.incomplete, use.lacking
        (6, 1, Counter({'UH': 1}))
    """
    use, remaining = TokenUse(), iter(texts)
    fallback = tokenizer.fallback_ids()
    split = list if len(fallback) > 1 else str.split  # with bytes, a single character is known or not
    known: dict[str, bool] = {}
    while some := list(itertools.islice(remaining, _TEXTS_PER_CALL)):
        ids, counts = tokenizer.ids_of(some)
        use.texts += len(some)
        use.tokens += len(ids)
        use.words += sum(len(text.split()) for text in some)
        use.characters += sum(map(len, some))
        for place in np.flatnonzero(_lacks(ids, counts, fallback)):
            use.incomplete += 1
            parts = split(unicodedata.normalize("NFC", some[place]))  # as tokenizers read it
            _find({*parts} - known.keys(), tokenizer, fallback, known)
            use.lacking.update(part for part in parts if not known[part])
    return use


def _find(parts: Iterable[str], tokenizer: Tokenizer, fallback: list[int], known: dict[str, bool]) -> None:
    """Notes of each part whether the vocabulary has it."""
    if parts := list(parts):
        known.update(zip(parts, (~_lacks(*tokenizer.ids_of(parts), fallback)).tolist(), strict=True))


def _lacks(ids: np.ndarray, counts: np.ndarray, fallback: list[int]) -> np.ndarray:
    """(B,) booleans: whether a text has one of the ids `fallback`."""
    before = np.concatenate([[0], np.cumsum(np.isin(ids, fallback))])
    ends = np.cumsum(counts)
    return before[ends] > before[ends - counts]
