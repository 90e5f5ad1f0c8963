"""Divides texts into subwords anew, at random: BPE-dropout and the sampling of a unigram language model.

A text comes as the ids of its usual subwords, and goes as other ids that spell the same text. Everything is a function
of the ids and of the random numbers. SentencePiece's own sampling is not: it has a generator for each thread. Both ways
act on words, because no subword reaches over the end of a word.

Shapes: B sequences, I ids, W words, V vocabulary.
"""

import abc
import bisect
import dataclasses
import functools
import heapq
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from kformer.tokenizers.sentencepiece_proto import MARK_OF_BLANK

_LATTICES_KEPT = 1 << 15  # words, of some 1.5 KB each
_NUMBERS_AT_ONCE = 1 << 12


@dataclasses.dataclass(frozen=True)
class Subwords:
    """The subwords of a vocabulary.

    Attributes:
        kind: How texts are divided into them: "bpe" or "unigram", or another way that knows no sampling.
        texts: (V,) the text of each id, with SentencePiece's mark in place of blanks; "" for an id that always stays as
            it is: a special one, a byte, a symbol of the user's.
        scores: (V,) as of `kformer.tokenizers.sentencepiece_proto.ModelPieces`.
    """

    kind: str
    texts: tuple[str, ...]
    scores: tuple[float, ...]


class Words(NamedTuple):
    """The words of sequences. An id that always stays as it is, is a word of its own."""

    ids: np.ndarray  # (I,) int
    starts: np.ndarray  # (W,) int64, the place of each word's first id
    sizes: np.ndarray  # (W,) int64, how many ids it has
    sequence: np.ndarray  # (W,) int64, the number of its sequence


class Divided(NamedTuple):
    """Words that have been divided anew."""

    numbers: np.ndarray  # (C,) int64, which of the W words, in ascending order
    ids: list[list[int]]  # C lists: the new ids of each


class SubwordSampler(abc.ABC):
    """Divides texts into subwords anew, at random.

    Args:
        subwords: The vocabulary.
    """

    def __init__(self, subwords: Subwords) -> None:
        texts = subwords.texts
        self._texts = texts
        self._ids = {text: number for number, text in enumerate(texts) if text}
        self._lengths = np.array([len(text) for text in texts])
        self._begins = np.array([text.startswith(MARK_OF_BLANK) for text in texts])
        self._ends = np.array([text.endswith(MARK_OF_BLANK) for text in texts])
        # A model may have subwords of several words. Then a whole text is treated as one word.
        self._has_words = not any(re.search(f"[^{MARK_OF_BLANK}]{MARK_OF_BLANK}", text) for text in texts)

    def sample(
        self, ids: np.ndarray, counts: np.ndarray, longest: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """New ids of sequences, and how many each of them has.

        Args:
            ids: (I,) int, the usual ids of B sequences, end to end.
            counts: (B,) int, how many each of them has.
            longest: A sequence that would have more new ids than this keeps its usual ones.
            random: Makes the random numbers.
        """
        words = self._words(ids, counts)
        divided = self._divided(words, random)
        sizes = words.sizes.copy()
        sizes[divided.numbers] = [len(new) for new in divided.ids]
        totals = np.bincount(words.sequence, weights=sizes, minlength=len(counts)).astype(np.int64)
        fits = (totals <= longest)[words.sequence[divided.numbers]]  # (C,)
        is_new = np.zeros(len(sizes), bool)
        is_new[divided.numbers] = fits
        sizes = np.where(is_new, sizes, words.sizes)
        from_new = np.repeat(is_new, sizes)
        found = np.empty(len(from_new), np.int32)
        found[~from_new] = ids[np.repeat(~is_new, words.sizes)]
        found[from_new] = [*itertools.chain.from_iterable(itertools.compress(divided.ids, fits))]
        return found, np.where(totals <= longest, totals, counts)

    def _words(self, ids: np.ndarray, counts: np.ndarray) -> Words:
        sequence = np.repeat(np.arange(len(counts)), counts)  # (I,)
        begins = np.ones(len(ids), bool)
        if self._has_words:
            begins[1:] = self._begins[ids[1:]] & ~self._ends[ids[:-1]]
        else:
            begins[1:] = False
        stays = self._lengths[ids] == 0
        begins[1:] |= stays[1:] | stays[:-1] | (np.diff(sequence) > 0)
        starts = np.flatnonzero(begins)
        return Words(ids, starts, np.diff(starts, append=len(ids)), sequence[starts])

    @abc.abstractmethod
    def _divided(self, words: Words, random: np.random.Generator) -> Divided:
        """Those words that are divided in another way, or some of which may be."""


class BPEDropout(SubwordSampler):
    """Byte pair encoding that leaves out merges: BPE-dropout (Provilkov et al. 2020, section 3).

    It draws as SentencePiece does: a merge that is left out does not come again in this word. (Algorithm 1 of the paper
    draws for every possible merge again after each merge.)

    Args:
        subwords: A vocabulary of byte pair encoding.
        dropout: The probability that a merge is left out, p of the paper, from 0 to below 1.

    Examples:
        >>> low = Subwords("bpe", ("▁", "l", "o", "w", "▁l", "ow", "▁low"), (-9, -9, -9, -9, -1, -2, -3))
        >>> ids, counts = BPEDropout(low, 0.5).sample(np.array([6, 6, 6]), np.array([3]), 9, np.random.default_rng(720))
        >>> ids.tolist(), counts.tolist()  # ▁l ow, ▁low, ▁l o w
        ([4, 5, 6, 4, 2, 3], [6])
    """

    def __init__(self, subwords: Subwords, dropout: float) -> None:
        # What is left when merges are left out are characters. A subword with one that is none itself cannot change.
        known = {text for text in subwords.texts if len(text) == 1}
        texts = tuple(text if known.issuperset(text) else "" for text in subwords.texts)
        super().__init__(dataclasses.replace(subwords, texts=texts))
        self._ranks = {text: -score for text, score in zip(texts, subwords.scores, strict=True) if text}
        self.dropout = dropout

    def _divided(self, words: Words, random: np.random.Generator) -> Divided:
        # A subword of n characters comes of n - 1 merges. A word changes where the first of its merges is left out.
        merges = np.add.reduceat(np.maximum(self._lengths[words.ids] - 1, 0), words.starts)  # (W,)
        all_done = (1 - self.dropout) ** np.arange(merges.max() + 1)  # the probability that so many are done
        drawn = random.random(len(merges))
        numbers = np.flatnonzero(drawn >= all_done[merges])
        done = np.searchsorted(-all_done, -drawn[numbers]) - 1  # how many are done before it
        later = (number < self.dropout for number in _numbers(random))
        ids, found = words.ids.tolist(), []
        ends = words.starts + words.sizes
        for start, end, before in zip(
            words.starts[numbers].tolist(), ends[numbers].tolist(), done.tolist(), strict=True
        ):
            text = "".join([self._texts[number] for number in ids[start:end]])
            found.append(self.divide(text, itertools.chain(itertools.repeat(False, before), (True,), later)))
        return Divided(numbers, found)

    def divide(self, word: str, left_out: Iterator[bool]) -> list[int]:
        """The ids of a word, if some merges are left out.

        Args:
            word: Consists of characters that are subwords.
            left_out: Says of each merge, in their order, whether it is left out.
        """
        pieces, end = [*word], len(word)
        following, previous = [*range(1, end + 1)], [*range(-1, end - 1)]
        ranks = self._ranks
        waiting = [
            (ranks[pair], left, pair) for left in range(end - 1) if (pair := word[left : left + 2]) in ranks
        ]  # of merges that come at the same time, the leftmost is the first
        heapq.heapify(waiting)
        while waiting:
            _, left, joined = heapq.heappop(waiting)
            right = following[left]
            if not pieces[left] or right == end or len(pieces[left]) + len(pieces[right]) != len(joined):
                continue  # another merge has taken one of the two
            if next(left_out):
                continue
            pieces[left], pieces[right] = joined, ""
            following[left] = after = following[right]
            if after < end:
                previous[after] = left
                if (pair := joined + pieces[after]) in ranks:
                    heapq.heappush(waiting, (ranks[pair], left, pair))
            if (before := previous[left]) >= 0 and (pair := pieces[before] + joined) in ranks:
                heapq.heappush(waiting, (ranks[pair], before, pair))
        return [self._ids[piece] for piece in pieces if piece]


class _Ending(NamedTuple):
    """The subwords that may end at a place in a word."""

    up_to: tuple[float, ...]  # the probability of each or one before it, without the last one
    starts: tuple[int, ...]  # where each begins
    ids: tuple[int, ...]


class UnigramSampling(SubwordSampler):
    """Draws from all divisions of a word by a unigram language model (Kudo 2018, section 3.2).

    A division has a probability in proportion to the product of its subwords' probabilities, to the power of alpha
    (equation 9, with l = infinity). From the beginning to the end of a word the sums over all divisions are found
    (forward filtering), and then from its end to its beginning subwords are drawn (backward sampling).

    Args:
        subwords: A vocabulary of a unigram language model.
        alpha: Above 0. Small: all divisions have nearly the same probability; 1: that of the language model; large: the
            best one is drawn nearly always.

    Examples:
        >>> low = Subwords("unigram", ("▁", "l", "o", "w", "ow", "▁low"), (-4.0, -5.0, -5.0, -5.0, -5.0, -6.0))
        >>> sampler = UnigramSampling(low, alpha=0.1)
        >>> ids, counts = sampler.sample(np.array([5, 5, 5]), np.array([3]), 16, np.random.default_rng(5))
        >>> ids.tolist(), counts.tolist()  # ▁ l ow, ▁low, ▁low
        ([0, 1, 4, 5, 5], [5])
    """

    def __init__(self, subwords: Subwords, alpha: float) -> None:
        super().__init__(subwords)
        entries = zip(subwords.texts, range(len(subwords.texts)), subwords.scores, strict=True)
        self._powers = {text: (number, alpha * score) for text, number, score in entries if text}
        self._longest = int(self._lengths.max())
        self._lattice_of = functools.lru_cache(_LATTICES_KEPT)(self._lattice)
        self.alpha = alpha

    def _divided(self, words: Words, random: np.random.Generator) -> Divided:
        characters = np.add.reduceat(self._lengths[words.ids], words.starts)  # (W,)
        numbers = np.flatnonzero(characters > 1)
        drawn = _numbers(random)
        ids, found = words.ids.tolist(), []
        starts, ends = words.starts[numbers], words.starts[numbers] + words.sizes[numbers]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            lattice, new = self._lattice_of(tuple(ids[start:end])), []
            place = len(lattice) - 1
            while place:
                up_to, begins, last = lattice[place]
                choice = bisect.bisect(up_to, next(drawn))
                new.append(last[choice])
                place = begins[choice]
            new.reverse()
            found.append(new)
        return Divided(numbers, found)

    def _lattice(self, ids: tuple[int, ...]) -> list[_Ending]:
        """What may end at each place of a word, from its beginning, where nothing does, to its end."""
        word = "".join([self._texts[number] for number in ids])
        powers, longest = self._powers, self._longest
        sums, lattice = [0.0], [_Ending((), (), ())]  # the first are logarithms
        for end in range(1, len(word) + 1):
            starts, numbers, found = [], [], []
            for start in range(max(0, end - longest), end):
                known = powers.get(word[start:end])
                if known is not None and sums[start] > -math.inf:
                    starts.append(start)
                    numbers.append(known[0])
                    found.append(sums[start] + known[1])
            highest = max(found, default=-math.inf)
            up_to = [*itertools.accumulate([math.exp(power - highest) for power in found])]
            sums.append(highest + math.log(up_to[-1]) if up_to else -math.inf)
            shares = [some / up_to[-1] for some in up_to[:-1]]
            lattice.append(_Ending(tuple(shares), tuple(starts), tuple(numbers)))
        return lattice


# By the kind of the subwords: how they are divided anew, with which strength.
SAMPLERS: dict[str, Callable[[Subwords, float], SubwordSampler]] = {"bpe": BPEDropout, "unigram": UnigramSampling}


def _numbers(random: np.random.Generator) -> Iterator[float]:
    """Uniform random numbers in [0, 1) without an end."""
    while True:
        yield from random.random(_NUMBERS_AT_ONCE).tolist()
