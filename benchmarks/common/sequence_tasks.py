"""Sequences of ids that follow a rule: batches of them, training, and what is then right.

Shape letters: B batch, S source length, T target length.
"""

from collections.abc import Iterable, Sequence

import keras
import numpy as np

from kformer.config import TrainingConfig, TransformerConfig
from kformer.models import build_transformer
from kformer.training.compile import compile_model

PAD, START, END = 0, 1, 2
FIRST = 3  # the first id that is no special one

Pair = tuple[Sequence[int], Sequence[int]]  # ids of a source and of its target, without special ones
Batch = tuple[dict[str, np.ndarray], np.ndarray]  # model inputs (B, S) and (B, T), and labels (B, T)


def batch_of(pairs: Sequence[Pair], source_length: int, target_length: int) -> Batch:
    """A batch of the shape (B, source_length) and (B, target_length); both have room for the end."""
    source, target = (np.full((len(pairs), length), PAD, "int32") for length in (source_length, target_length))
    for row, pair in enumerate(pairs):
        for ids, part in zip((source, target), pair, strict=True):
            ids[row, : len(part) + 1] = [*part, END]
    target_in = np.concatenate([np.full((len(pairs), 1), START, "int32"), target[:, :-1]], axis=1)
    target_in[target_in == END] = PAD
    return {"source": source, "target_in": target_in}, target


def train(
    config: TransformerConfig, batches: Iterable[Batch], updates: int, seed: int, schedule: dict[str, float]
) -> keras.Model:
    """A new model after so many updates in float32, without label smoothing.

    Args:
        config: The model.
        batches: Endless. All have one shape, so that the step is traced once.
        updates: Number of batches.
        seed: Of the first weights and of dropout.
        schedule: `warmup_steps` and `learning_rate_scale` of `TrainingConfig`.
    """
    keras.utils.set_random_seed(seed)
    model = build_transformer(config)
    compile_model(model, config, TrainingConfig(**schedule, label_smoothing=0.0, precision="float32"))
    model.fit(batches, steps_per_epoch=updates, epochs=1, shuffle=False, verbose=0)
    return model


def hits(model: keras.Model, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens are the most probable ones behind the right tokens, and which are no padding: (B, T) booleans.

    A greedy search finds a target exactly if all its tokens are hits.
    """
    inputs, labels = batch
    return np.argmax(model.predict_on_batch(inputs), axis=-1) == labels, labels != PAD
