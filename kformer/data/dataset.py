"""Batches as a `tf.data.Dataset`.

Shapes: B rows, S source length, T target length.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from kformer.data.batching import Batch, BatchPlan

_PREFETCHED_BATCHES = 16


def make_dataset(
    plan: BatchPlan,
    *,
    shuffle_seed: int | None,
    repeat: bool,
    start_step: int = 0,
    batches_per_update: int = 1,
    part: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Batches of `({"source": (B, S), "target_in": (B, T)}, target_out (B, T))`, all int32.

    `target_out` is the target with its end id; `target_in` is the start id and the target without its last id. The
    shapes (B, S, T) are `plan.shapes`.

    The stream is a pure function of (shuffle_seed, step): batch k is the same whether the data set began at 0 or at
    `start_step=k`, and the batches before `start_step` are not computed.

    Args:
        plan: which pairs share a batch.
        shuffle_seed: 0 or more; None: buckets in order, pairs in the order given.
        repeat: `BatchPlan.endless`; False: `BatchPlan.once`.
        start_step: batches to skip.
        batches_per_update: with gradient accumulation, the micro-batches that make an update. Each batch then has a
            third part, (B,) float32: its share of their tokens, times their number. Weighed by it, the mean of the
            micro-batches' losses is the mean over all their tokens.
        part: (number, count): of every batch the rows of one of `count` equal parts only, for a process that shares the
            batches with others. Which pairs make a batch, and its weights, do not depend on it.

    Raises:
        ValueError: `shuffle_seed` or `start_step` is negative, `start_step` lies past the only epoch, or the rows of
            the plan's batches cannot be divided into the parts that `part` asks for.
    """
    rows = sorted({rows for rows, _, _ in plan.shapes})
    if not 0 <= part[0] < part[1] or any(number % part[1] for number in rows):
        raise ValueError(
            "part must be (number, count) with a number from 0 up and below the count, and the count must divide "
            f"the rows of every batch. Received: part={part}, and batches of {', '.join(map(str, rows))} rows. "
            "Make the BatchPlan with row_multiple=count."
        )
    if shuffle_seed is not None and shuffle_seed < 0:
        raise ValueError(f"shuffle_seed must be 0 or more, or None. Received: shuffle_seed={shuffle_seed}.")
    if start_step < 0 or (not repeat and start_step > plan.steps_once):
        raise ValueError(
            f"start_step must be at least 0 and, with repeat=False, at most the {plan.steps_once} steps of the "
            f"epoch. Received: start_step={start_step}."
        )
    stream = plan.endless if repeat else plan.once
    ids = tf.TensorSpec([None, None], tf.int32)
    signature: tuple = ({"source": ids, "target_in": ids}, ids)

    def whole_batches() -> Iterator:
        if batches_per_update == 1:
            return stream(shuffle_seed, start_step)
        done = start_step % batches_per_update  # of the first update
        whole = stream(shuffle_seed, start_step - done)
        return itertools.islice(_weighed(whole, batches_per_update, plan.encoded.target_pad_id), done, None)

    def batches() -> Iterator:
        return (tf.nest.map_structure(lambda array: _part(array, part), batch) for batch in whole_batches())

    if batches_per_update > 1:
        signature = (*signature, tf.TensorSpec([None], tf.float32))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    steps = tf.data.INFINITE_CARDINALITY if repeat else plan.steps_once - start_step
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(_PREFETCHED_BATCHES)
    return without_autotuning(dataset)


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The data set, without the thread in which tf.data looks for the best settings of its own.

    Whoever ends an iterator waits for that thread, which may sleep through the call to end: for 37 s, seen with
    TensorFlow 2.21. Here nothing is left to it to set.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _weighed(batches: Iterator[Batch], number: int, pad_id: int) -> Iterator[tuple]:
    while group := list(itertools.islice(batches, number)):
        tokens = [int(np.sum(target_out != pad_id)) for _, target_out in group]
        for (inputs, target_out), count in zip(group, tokens, strict=True):
            yield inputs, target_out, np.full(len(target_out), number * count / sum(tokens), np.float32)


def _part(rows: np.ndarray, part: tuple[int, int]) -> np.ndarray:
    number, count = part
    size = len(rows) // count
    return rows[number * size : (number + 1) * size]
