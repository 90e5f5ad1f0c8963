"""Batches as a `tf.data.Dataset`.

Shapes: B rows, S source length, T target length.
"""

from collections.abc import Sequence

import tensorflow as tf

from kformer.data.batching import BatchPlan
from kformer.data.encoding import EncodedPairs

_PREFETCHED_BATCHES = 16


def make_dataset(
    encoded: EncodedPairs,
    *,
    tokens_per_batch: int,
    shuffle_seed: int | None,
    repeat: bool,
    start_step: int = 0,
    bucket_lengths: Sequence[int] | None = None,
) -> tf.data.Dataset:
    """Batches of `({"source": (B, S), "target_in": (B, T)}, target_out (B, T))`, all int32.

    `target_out` is the target with its end id; `target_in` is the start id and the target without its last id. The
    shapes are those of `BatchPlan(encoded, tokens_per_batch, bucket_lengths)`; an epoch holds every pair once.

    The stream is a pure function of (shuffle_seed, step): batch k is the same whether the data set began at 0 or at
    `start_step=k`, and the batches before `start_step` are not computed. Epoch e is ordered by
    `np.random.default_rng((shuffle_seed, e))`.

    Args:
        encoded: the pairs.
        tokens_per_batch: rows times length of a batch, at most.
        shuffle_seed: 0 or more; None: buckets in order, pairs in the order given.
        repeat: epoch after epoch without end; False: one epoch.
        start_step: batches to skip.
        bucket_lengths: see `BatchPlan`.

    Raises:
        ValueError: `shuffle_seed` or `start_step` is negative, or `start_step` lies past the only epoch.
    """
    plan = BatchPlan(encoded, tokens_per_batch, bucket_lengths)
    if shuffle_seed is not None and shuffle_seed < 0:
        raise ValueError(f"shuffle_seed must be 0 or more, or None. Received: shuffle_seed={shuffle_seed}.")
    if start_step < 0 or (not repeat and start_step > plan.steps_per_epoch):
        raise ValueError(
            f"start_step must be at least 0 and, with repeat=False, at most the {plan.steps_per_epoch} steps of the "
            f"epoch. Received: start_step={start_step}."
        )
    ids = tf.TensorSpec([None, None], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        lambda: plan.batches(shuffle_seed, repeat, start_step),
        output_signature=({"source": ids, "target_in": ids}, ids),
    )
    steps = tf.data.INFINITE_CARDINALITY if repeat else plan.steps_per_epoch - start_step
    return dataset.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(_PREFETCHED_BATCHES)
