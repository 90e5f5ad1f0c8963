"""Answers any number of texts by a function that answers batches: translations, labels, continued texts."""

import concurrent.futures
import functools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

BATCH_SIZE = 64  # texts; 128 were measured to be slower
PADDED_BYTES = 64 * 256  # number of texts x length of the longest, at most: long texts make smaller batches


class Hypothesis(NamedTuple):
    """One answer to one text: a translation, labels, a continued text.

    Attributes:
        text: The answer.
        score: The model's score; of a given answer its log probability, see `kformer.text.given_answers`.
        alignment: Pairs of words, see `kformer.text.word_alignment`; "" if nobody has asked for them.
        tokens: How many tokens the log probability of a given answer counts.
    """

    text: str
    score: float
    alignment: str = ""
    tokens: int = 0


class RefusedTextError(ValueError):
    """A text of a batch gets no answer.

    Args:
        message: Why.
        text: The text.
    """

    def __init__(self, message: str, text: bytes) -> None:
        super().__init__(message)
        self.text = text


# From a batch of texts to the hypotheses of each text, best first.
AnswerBatch = Callable[[Sequence[bytes]], list[list[Hypothesis]]]


class AnswerDrawn(Protocol):
    """The same, and it may be told the seed of a batch whose answers are drawn at random."""

    def __call__(self, texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]: ...


def hypotheses(translations: np.ndarray, scores: np.ndarray) -> list[list[Hypothesis]]:
    """The hypotheses of each text, from a model's outputs.

    Args:
        translations: (B, N) or, if N is 1, (B,); `bytes` objects.
        scores: The same shape, float32.
    """
    if translations.ndim == 1:
        translations, scores = translations[:, np.newaxis], scores[:, np.newaxis]
    rows = zip(translations, scores, strict=True)
    return [[Hypothesis(text.decode("utf-8"), float(score)) for text, score in zip(*row, strict=True)] for row in rows]


class BatchSeeds:
    """Seeds for batches that are drawn one after the other, so that equal texts of two batches are drawn differently.

    Args:
        seed: The seed of the first batch, from -2**63 to 2**63 - 1.

    Examples:
        The upper 32 bits count the texts of the batches before:

        >>> seeds = BatchSeeds(7)
        >>> [seeds.next(64), seeds.next(64) - 7 == 64 << 32]
        [7, True]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def next(self, texts: int) -> int:
        """The seed of the next batch, which has so many texts."""
        seed = self._seed
        self._seed = batch_seed(seed, texts)
        return seed


def batch_seed(seed: int, texts: int) -> int:
    """The seed of a batch that has so many texts before it, where that of the first batch is `seed`.

    Examples:
        >>> batch_seed(7, 0), batch_seed(7, 64) - 7 == 64 << 32
        (7, True)
    """
    return (seed + (texts << 32) + 2**63) % 2**64 - 2**63


def with_tag(function: AnswerDrawn, tag: str) -> AnswerDrawn:
    """The same function for texts that have a tag before them. Alignments are of the texts without it."""

    def answer(texts: Sequence[bytes], seed: int | None = None) -> list[list[Hypothesis]]:
        given = tagged(texts, tag)
        ask = function if seed is None else functools.partial(function, seed=seed)
        try:
            return [
                [one._replace(alignment=_of_the_rest(one.alignment)) for one in found] if text.strip() else found
                for text, found in zip(texts, ask(given), strict=True)
            ]
        except RefusedTextError as error:
            raise RefusedTextError(str(error), texts[given.index(error.text)]) from error

    return answer


def _of_the_rest(alignment: str) -> str:
    """The alignment of the words behind the first one, which is the tag."""
    pairs = [pair.split("-") for pair in alignment.split()]
    return " ".join(f"{int(source) - 1}-{target}" for source, target in pairs if source != "0")


def tagged(texts: Sequence[bytes], tag: str) -> list[bytes]:
    """The texts, with a tag before each that is not blank.

    Examples:
        >>> tagged([b"one", b" "], "<2es>")
        [b'<2es> one', b' ']
    """
    return [tag.encode() + b" " + text if text.strip() else text for text in texts]


def answer_all(
    answer: AnswerBatch,
    texts: Sequence[bytes],
    batch_size: int = BATCH_SIZE,
    on_batch: Callable[[int], None] = lambda done: None,
    at_once: int | None = None,
) -> list[list[Hypothesis]]:
    """Answers any number of texts in batches of texts of similar length; the results keep the order of the texts.

    Args:
        answer: A `kformer.inference.Model`, or from `kformer.client.batches.answer_batch`.
        texts: UTF-8.
        batch_size: Largest number of texts in a batch; fewer if texts are long, see `PADDED_BYTES`.
        on_batch: Called after each batch with the number of texts in it.
        at_once: Number of batches answered at the same time. None: the number of cores, because the small operations
            of one batch do not use all cores.
    """
    batches = batches_of([len(text) for text in texts], batch_size)
    results: list[list[Hypothesis]] = [[] for _ in texts]
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=at_once or os.cpu_count())

    def of_batch(batch: list[int]) -> list[list[Hypothesis]]:
        return answer([texts[index] for index in batch])

    # A single batch is answered in this thread: TensorFlow prepares its operations again for every thread.
    answers = map(of_batch, batches) if len(batches) == 1 else pool.map(of_batch, batches)
    try:
        for batch, found in zip(batches, answers, strict=True):
            for index, of_text in zip(batch, found, strict=True):
                results[index] = of_text
            on_batch(len(batch))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, no further batch begins
    return results


def batches_of(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """The indices of the texts of each batch, longest first.

    Args:
        lengths: Of the texts, in bytes.
        batch_size: As of `answer_all`.

    Examples:
        >>> batches_of([3, 9, 5], batch_size=2)
        [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    batches = []
    start = 0
    while start < len(order):
        size = min(batch_size, max(1, PADDED_BYTES // max(1, lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches
