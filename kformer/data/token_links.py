"""Which token translates which, of pairs of which it is known for their words.

Tokens and words meet in the bytes of a text: a word is what stands between white space, and a tokenizer tells the bytes
of each of its tokens.

Shapes: B texts or pairs, W words and K tokens of all texts, P links of words, L links of tokens.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kformer.data.encoded_ids import Sequences
from kformer.data.pairs import AlignedPair, Pair
from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.text_ops import string_tensor

_WORD = re.compile(r"\S+")


def token_links(pairs: Sequence[Pair], source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> Sequences:
    """The links of the tokens of pairs: each word's are those of all tokens that have a part of it.

    Args:
        pairs: B pairs; those that are no `AlignedPair` have no links.
        source_tokenizer, target_tokenizer: Give the tokens, and tell their bytes.

    Returns:
        The places of a source and of a target token in turn, (2 L,) int64, and how many numbers each pair has.

    Raises:
        ValueError: A tokenizer cannot tell the bytes of its tokens.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])
        >>> links = token_links([("a", "b"), AlignedPair("a b", "b a", [(0, 1), (1, 0)])], tokenizer, tokenizer)
        >>> links.ids.tolist(), links.counts.tolist()
        ([0, 1, 1, 0], [0, 4])
    """
    of_pairs = [pair.links if isinstance(pair, AlignedPair) else () for pair in pairs]
    numbers = np.array([len(links) for links in of_pairs])
    if not numbers.any():
        return Sequences(np.empty(0, np.int64), np.zeros(len(pairs), np.int64))
    words = np.array(list(itertools.chain.from_iterable(of_pairs)), np.int64)  # (P, 2)
    pair = np.repeat(np.arange(len(pairs)), numbers)
    sides = [
        _WordTokens.of([one[side] for one in pairs], tokenizer)
        for side, tokenizer in ((0, source_tokenizer), (1, target_tokenizer))
    ]
    (source, source_counts), (target, target_counts) = (
        side.tokens_of(pair, words[:, number]) for number, side in enumerate(sides)
    )
    each = source_counts * target_counts  # (P,) links of tokens for a link of words
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    widths = np.repeat(target_counts, each)
    found = np.empty((int(each.sum()), 2), np.int64)
    found[:, 0] = sides[0].places[np.repeat(source, each) + within // np.maximum(widths, 1)]
    found[:, 1] = sides[1].places[np.repeat(target, each) + within % np.maximum(widths, 1)]
    return Sequences(found.reshape(-1), 2 * np.bincount(pair, weights=each, minlength=len(pairs)).astype(np.int64))


class _WordTokens(NamedTuple):
    """The tokens of each word of some texts."""

    places: np.ndarray  # the tokens' places in their texts, word by word
    starts: np.ndarray  # (W,) where those of each word begin
    counts: np.ndarray  # (W,) how many there are
    first_words: np.ndarray  # (B,) the number of each text's first word

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer) -> "_WordTokens":
        word_start, word_end, first_words = _words(texts)
        spans = tokenizer.tokenize_with_offsets(string_tensor(texts))
        counts = spans.ids.row_lengths().numpy()
        text = np.repeat(np.arange(len(texts)), counts)  # (K,)
        begins = _begins(texts)[text]
        first, last = _words_of(
            spans.start.flat_values.numpy() + begins, spans.end.flat_values.numpy() + begins, word_start, word_end
        )
        # A token of blanks behind the last word of a text belongs to that word, not to the next text's.
        ends = np.append(first_words[1:], len(word_start))[text]
        first, last = np.minimum(first, ends - 1), np.minimum(last, ends - 1)
        place = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)
        hidden = tokenizer.special_ids() - {tokenizer.unknown_id}  # such as the name of a language: no words
        number = np.where(np.isin(spans.ids.flat_values.numpy(), list(hidden)), 0, last - first + 1)
        within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        word = np.repeat(first, number) + within
        order = np.argsort(word, kind="stable")
        of_word = np.bincount(word, minlength=len(word_start))
        return cls(np.repeat(place, number)[order], np.cumsum(of_word) - of_word, of_word, first_words)

    def tokens_of(self, text: np.ndarray, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where in `places` the tokens of some words begin, and how many there are: (P,) each.

        Args:
            text, word: (P,) the number of the text, and of the word in it.
        """
        number = self.first_words[text] + word
        return self.starts[number], self.counts[number]


def _words_of(
    start: np.ndarray, end: np.ndarray, word_start: np.ndarray, word_end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last word of each token, (K,) each, by the bytes of both.

    A token of a blank alone belongs to the word behind it. A token without bytes, as of a character that several tokens
    stand for, belongs to the word where it stands.
    """
    behind, at = (np.searchsorted(word_end, start, side) for side in ("right", "left"))
    first = np.where(end > start, behind, at)
    return first, np.maximum(np.searchsorted(word_start, end, "left") - 1, first)


def _begins(texts: Sequence[str]) -> np.ndarray:
    """(B,) int64: where each text begins in all texts, joined by one byte, in bytes of UTF-8."""
    lengths = np.array([len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts], np.int64)
    return np.cumsum(lengths) - lengths


def _words(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where words begin and end in the joined texts, (W,) bytes; and the number of each text's first word, (B,)."""
    joined = "\n".join(texts)
    spans = np.array([match.span() for match in _WORD.finditer(joined)], np.int64).reshape(-1, 2)
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    widths = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
    places = np.concatenate([[0], np.cumsum(widths)])  # of each character, and of the end
    start, end = places[spans[:, 0]], places[spans[:, 1]]
    return start, end, np.searchsorted(start, _begins(texts), "left")
