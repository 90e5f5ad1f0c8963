"""A further kind of positions is one class and its name: two kinds that kformer does not have, in a whole model.

Shape letters: B batch, T length, S keys, H heads, K size of a head.
"""

import keras
import numpy as np
import pytest
from keras import ops
from small_models import SOURCE, TARGET_IN, B, T, logits_of, small_transformer
from test_start_decoding import all_at_once, histories, stepwise

from kformer import config
from kformer.layers import Positions, positional_encoding
from kformer.models import start_decoding


class Rotary(Positions):
    """Su et al. (2021), equation 34: pairs of features turn by an angle that grows with the position."""

    def __init__(self, head_dim: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.head_dim = head_dim

    @classmethod
    def from_sizes(cls, d_model, num_heads, max_length, dtype=None):
        return cls(d_model // num_heads, dtype=dtype, name="positions")

    def table(self, length, offset=0):
        angles = positional_encoding.sinusoids(ops.arange(length) + offset, self.head_dim)  # (T, K), interleaved
        return ops.repeat(ops.reshape(angles, (-1, self.head_dim // 2, 2)), 2, axis=1)  # (T, K, 2): sine, cosine

    def rotate(self, heads, rows):
        sine, cosine = rows[..., 0], rows[..., 1]
        pairs = ops.reshape(heads, (*ops.shape(heads)[:-1], self.head_dim // 2, 2))
        turned = ops.reshape(ops.stack([-pairs[..., 1], pairs[..., 0]], axis=-1), ops.shape(heads))
        return heads * cosine + turned * sine


class LinearBias(Positions):
    """ALiBi (Press et al. 2022): scores fall with the distance, in each head by another slope."""

    def __init__(self, num_heads: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads

    @classmethod
    def from_sizes(cls, d_model, num_heads, max_length, dtype=None):
        return cls(num_heads, dtype=dtype, name="positions")

    def table(self, length, offset=0):
        return ops.cast(ops.arange(length) + offset, "float32")

    def score_bias(self, query_rows, key_rows):
        slopes = 2.0 ** (-8.0 * np.arange(1, self.num_heads + 1) / self.num_heads)
        distance = ops.abs(ops.expand_dims(query_rows, 1) - ops.expand_dims(key_rows, 0))  # (T, S)
        return -slopes.astype("float32")[:, None, None] * distance  # (H, T, S)


@pytest.fixture(params=[Rotary, LinearBias], ids=["rotary", "linear_bias"])
def model(request, monkeypatch):
    """Named in the two tables that hold the kinds; nothing else knows of it."""
    monkeypatch.setitem(config.POSITIONAL_ENCODINGS, "further", False)
    monkeypatch.setitem(positional_encoding.POSITIONS, "further", request.param)
    return small_transformer(positional_encoding="further")


def test_the_model_tells_positions_apart(model):
    logits = logits_of(model, SOURCE, TARGET_IN)
    other_order = SOURCE.copy()
    other_order[0, [1, 2]] = SOURCE[0, [2, 1]]
    assert np.abs(logits_of(model, other_order, TARGET_IN) - logits)[0].max() > 1e-4


@pytest.mark.parametrize("rows_per_source", [1, 3])
def test_steps_equal_the_whole_at_every_position(model, rows_per_source):
    tokens = histories(rows_per_source)
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T, rows_per_source=rows_per_source), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=2e-5)


def test_a_distance_counts_and_not_the_place(model):
    # Four positions further on, queries and keys attend to each other as they did.
    positions = model.get_layer("encoder").positions
    heads = [np.random.default_rng(seed).normal(size=(B, 3, 5, 4)).astype("float32") for seed in (0, 1)]

    def scores(offset):
        rows = positions.table(5, offset)
        query, key = (positions.rotate(tensor, rows) for tensor in heads)
        bias = positions.score_bias(rows, rows)
        return ops.matmul(query, ops.swapaxes(key, -1, -2)) + (0.0 if bias is None else bias)

    np.testing.assert_allclose(scores(0), scores(4), atol=1e-5)
    assert (
        np.abs(keras.ops.convert_to_numpy(scores(0) - ops.matmul(heads[0], ops.swapaxes(heads[1], -1, -2)))).max() > 0.1
    )
