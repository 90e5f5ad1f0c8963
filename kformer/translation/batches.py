"""Many texts through one function that translates batches."""

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

BATCH_SIZE = 64  # texts; 128 were measured to be slower
BATCH_BYTES = 64 * 256  # of a batch whose texts are all as long as its longest: long texts make smaller batches


class Hypothesis(NamedTuple):
    """One translation of one text."""

    text: str
    score: float


# A batch of texts to the hypotheses of each, best first.
TranslateBatch = Callable[[Sequence[bytes]], list[list[Hypothesis]]]


def translate_all(
    translate: TranslateBatch,
    texts: Sequence[bytes],
    batch_size: int = BATCH_SIZE,
    on_batch: Callable[[int], None] = lambda done: None,
) -> list[list[Hypothesis]]:
    """Translates any number of texts, those of about the same length together; the order is kept.

    As many batches are under way at once as there are cores: the small operations of one batch do not fill them.

    Args:
        translate: From `kformer.inference.load.load_model`.
        texts: UTF-8.
        batch_size: Texts a batch, at most; fewer where texts are long, see `BATCH_BYTES`.
        on_batch: Called after each batch with the number of texts in it.
    """
    batches = _batches([len(text) for text in texts], batch_size)
    results: list[list[Hypothesis]] = [[] for _ in texts]
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count())

    def answer(batch: list[int]) -> list[list[Hypothesis]]:
        return translate([texts[index] for index in batch])

    # One batch stays in this thread: TensorFlow prepares its operations anew for every thread.
    answers = map(answer, batches) if len(batches) == 1 else pool.map(answer, batches)
    try:
        for batch, found in zip(batches, answers, strict=True):
            for index, hypotheses in zip(batch, found, strict=True):
                results[index] = hypotheses
            on_batch(len(batch))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: no more than the batches under way
    return results


def _batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """The indices of the texts of each batch, longest first."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    batches = []
    start = 0
    while start < len(order):
        size = min(batch_size, max(1, BATCH_BYTES // max(1, lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches
