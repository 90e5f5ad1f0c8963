"""Many texts through one function that translates batches."""

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

BATCH_SIZE = 32


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
        batch_size: Texts a batch.
        on_batch: Called after each batch with the number of texts in it.
    """
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    results: list[list[Hypothesis]] = [[] for _ in texts]
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for batch, found in zip(
            batches, pool.map(lambda batch: translate([texts[index] for index in batch]), batches), strict=True
        ):
            for index, hypotheses in zip(batch, found, strict=True):
                results[index] = hypotheses
            on_batch(len(batch))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: no more than the batches under way
    return results
