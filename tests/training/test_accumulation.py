"""Gradient accumulation: k micro-batches are one big batch."""

import keras
import numpy as np

from kformer.config import TrainingConfig
from kformer.layers import TokenEmbedding
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.training.optimizers import build_optimizer

# Three micro-batches of 2 rows with 9, 3 and 5 tokens; 0 is padding.
LABELS = np.array(
    [
        [[1, 2, 3, 4, 5], [6, 5, 4, 3, 0]],
        [[2, 0, 0, 0, 0], [1, 6, 0, 0, 0]],
        [[3, 3, 3, 0, 0], [4, 1, 0, 0, 0]],
    ],
    "int32",
)


def trained(accumulation, batches):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((None,), dtype="int32"), TokenEmbedding(7, 5), keras.layers.Dense(7)]
    model = keras.Sequential(layers)
    config = TrainingConfig(warmup_steps=5, gradient_accumulation_steps=accumulation)
    model.compile(build_optimizer(5, config), LabelSmoothedCrossEntropy())
    model.fit((batch for batch in batches), steps_per_epoch=len(batches), shuffle=False, verbose=0)
    return [keras.ops.convert_to_numpy(variable) for variable in model.variables]


def test_weighed_micro_batches_make_the_update_of_one_big_batch():
    tokens = (LABELS > 0).sum(axis=(1, 2))
    weights = [np.full(2, 3 * count / tokens.sum(), "float32") for count in tokens]
    micro = [(labels, labels, weight) for labels, weight in zip(LABELS, weights, strict=True)]
    big = LABELS.reshape(6, 5)
    whole = trained(1, [(big, big)] * 2)
    for ours, theirs in zip(trained(3, micro * 2), whole, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    unweighed = trained(3, [(labels, labels) for labels in LABELS] * 2)
    assert max(np.abs(ours - theirs).max() for ours, theirs in zip(unweighed, whole, strict=True)) > 1e-3
