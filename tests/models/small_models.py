"""Transformers small enough to build in a test, with weights that leave no term idle.

Shape letters: B batch, S source length, T target length, D model size, V vocabulary.
"""

from typing import Any

import keras
import numpy as np
import oracles
import pytest

from kformer.config import TransformerConfig
from kformer.models import build_transformer

B, S, T, V = 2, 7, 5, 23
PAD, START = 0, 1
SIZES = {
    "source_vocab_size": V,
    "target_vocab_size": V,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "d_model": 12,
    "d_ff": 17,
    "num_heads": 3,
    "max_length": 11,
}

# Four tokens of padding end the second source.
SOURCE = np.array([[5, 9, 13, 4, 21, 8, 6], [7, 18, 11, PAD, PAD, PAD, PAD]], "int32")
TARGET_IN = np.array([[START, 14, 6, 20, 9], [START, 3, 17, 12, 22]], "int32")

FORMS = [  # norm_first, positional_encoding, embedding_tying: every two values of two of them meet in one form
    (False, "sinusoidal", "all"),
    (True, "learned", "all"),
    (False, "learned", "target"),
    (True, "sinusoidal", "target"),
    (False, "sinusoidal", "none"),
    (True, "learned", "none"),
]
every_form = pytest.mark.parametrize(
    "form",
    [
        pytest.param(
            dict(zip(("norm_first", "positional_encoding", "embedding_tying"), form, strict=True)),
            id="-".join(map(str, form)),
        )
        for form in FORMS
    ],
)
both_orders = pytest.mark.parametrize("norm_first", [False, True], ids=["norm_last", "norm_first"])


def small_config(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**{**SIZES, **changes})


def small_transformer(**changes: Any) -> keras.Model:
    model = build_transformer(small_config(**changes))
    oracles.randomize(model)
    return model


def move_embedding(layer: keras.layers.Embedding, token: int) -> None:
    """Changes one row of a matrix, not by a constant: that is what layer norms take away."""
    values = keras.ops.convert_to_numpy(layer.embeddings).copy()
    values[token] += np.random.default_rng(token).normal(size=values.shape[1])
    layer.embeddings.assign(values)


def logits_of(model: keras.Model, source: np.ndarray, target_in: np.ndarray) -> np.ndarray:
    """(B, T, V) logits of all positions at once."""
    return keras.ops.convert_to_numpy(model({"source": source, "target_in": target_in}))
