"""Provides the batches of a `BatchPlan` as a `tf.data.Dataset`.

Shapes: B rows, S source length, T target length.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from kformer.data.arrangements import Batch
from kformer.data.batching import BatchPlan

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

    These are the batches of translation. For another task, `plan.arrangement` makes other inputs and labels. With
    alignments, the input "alignment" is (B, T, S) uint8.

    `target_out` is the target with its end id. `target_in` is the start id, followed by the target without its last id.
    The shapes (B, S, T) are those in `plan.shapes`.

    Every batch is a pure function of `plan`, `shuffle_seed` and its number: batch k is the same if the data set begins
    with batch 0 or, with `start_step=k`, with batch k. The batches before `start_step` are not computed.

    Args:
        plan: decides which pairs share a batch.
        shuffle_seed: a number of 0 or more. None: nothing is shuffled, neither the batches nor the pairs.
        repeat: True: the endless batches of `BatchPlan.endless`, each epoch in a new order. False: those of
            `BatchPlan.once`, which come in the same order each time that the data set is read. So for several epochs of
            `fit` give True, and `steps_per_epoch=plan.steps_per_epoch`.
        start_step: the number of batches to skip.
        batches_per_update: with gradient accumulation, the number of micro-batches that make an update. If it is above
            1, each batch has a third part, sample weights of (B,) float32: the batch's share of the tokens of all
            micro-batches of the update, times their number. With these weights the mean of the micro-batches' losses
            is the mean over all their tokens.
        part: (number, count), for one of `count` processes that share every batch: its rows are divided into `count`
            equal parts, of which this data set has part `number`. The choice of the pairs of a batch, and its weights,
            do not depend on `part`.

    Raises:
        ValueError: `shuffle_seed` or `start_step` is negative, `start_step` is larger than the number of batches, or
            the rows of a batch cannot be divided into `count` equal parts.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])  # ids 4 and 5; 1 is the start, 2 the end
        >>> plan = BatchPlan(encode_pairs([("a", "a b")], tokenizer, tokenizer, max_length=8), tokens_per_batch=8)
        >>> inputs, target_out = next(iter(make_dataset(plan, shuffle_seed=None, repeat=False)))
        >>> inputs["target_in"].numpy().tolist(), target_out.numpy().tolist()
        ([[1, 4, 5]], [[4, 5, 2]])
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
    matrix = tf.TensorSpec([None, None, None], tf.uint8)
    inputs = {**dict.fromkeys(plan.arrangement.inputs, ids), **dict.fromkeys(plan.arrangement.matrices, matrix)}
    signature: tuple = (inputs, ids)

    def whole_batches() -> Iterator:
        if batches_per_update == 1:
            return stream(shuffle_seed, start_step)
        done = start_step % batches_per_update  # micro-batches of the first update to skip
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
    """The data set, without the thread in which tf.data searches for its best settings.

    Ending an iterator means waiting for that thread, which may notice it late: 37 seconds late in one case, with
    TensorFlow 2.21. There is no setting here that the thread could choose.
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
