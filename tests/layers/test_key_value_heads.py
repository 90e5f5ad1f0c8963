"""Fewer heads for keys and values: as attention whose heads of keys and values are copies of each other.

Shape letters: B batch, T queries, S keys, H heads, G heads of keys and values, K size of a head, D model size.
"""

import keras
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import Cache, DecoderLayer, MultiHeadAttention, causal_mask, head_order
from kformer.layers.cache import attend_step, self_attention_step

B, T, S, H, K = 2, 5, 7, 6, 3
D = H * K
GROUPS = pytest.mark.parametrize("groups", [1, 2])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(**options) -> MultiHeadAttention:
    layer = MultiHeadAttention(D, H, **options)
    layer.build((B, T, D))
    oracles.randomize(layer)
    return layer


def with_copies(layer: MultiHeadAttention) -> MultiHeadAttention:
    """The layer with H heads of keys and values, each of the G repeated for its H / G heads of queries."""
    full = built(dropout_rate=layer.dropout_rate)
    for name in ("query_projection", "output_projection"):
        getattr(full, name).set_weights(getattr(layer, name).get_weights())
    for name in ("key_projection", "value_projection"):
        few = [weight.reshape(*weight.shape[:-1], -1, K) for weight in getattr(layer, name).get_weights()]
        many = [np.repeat(weight, H // weight.shape[-2], axis=-2) for weight in few]
        getattr(full, name).set_weights([weight.reshape(*weight.shape[:-2], D) for weight in many])
    return full


def test_contract():
    inputs = {"query": normal(B, T, D), "key": normal(B, S, D, seed=1)}
    kwargs = {"d_model": D, "num_heads": H, "num_key_value_heads": 2, "dropout_rate": 0.3}
    # Queries and outputs of D numbers, keys and values of 2 K.
    assert_layer_contract(MultiHeadAttention, kwargs, inputs, num_parameters=2 * (D * D + D) + 2 * (D * 2 * K + 2 * K))


@pytest.mark.parametrize("heads", [4, 7])
def test_the_heads_must_be_divisible(heads):
    expected = f"num_heads must be divisible by num_key_value_heads. Received: num_heads=6, num_key_value_heads={heads}"
    with pytest.raises(ValueError, match=expected):
        MultiHeadAttention(D, H, num_key_value_heads=heads)


@GROUPS
@pytest.mark.parametrize("mask", [None, causal_mask(T), normal(B, 1, 1, T, seed=4) < 0.5, normal(B, H, T, T) < 0.5])
@pytest.mark.parametrize("bias", [None, normal(1, H, T, T, seed=5)], ids=["plain", "bias"])
def test_it_is_full_attention_with_repeated_keys_and_values(groups, mask, bias):
    layer, inputs = built(num_key_value_heads=groups), normal(B, T, D, seed=3)
    full, options = with_copies(layer), {"attention_mask": mask, "score_bias": bias}
    np.testing.assert_allclose(layer(inputs, **options), full(inputs, **options), atol=1e-4)
    scores = layer.attention_scores(inputs, **options)
    assert scores.shape == (B, H, T, T)
    np.testing.assert_allclose(scores, full.attention_scores(inputs, **options), atol=1e-5)


@GROUPS
def test_a_rotation_a_bias_of_queries_and_other_keys(groups):
    layer, query, key = built(num_key_value_heads=groups), normal(B, T, D), normal(B, S, D, seed=1)
    options = {"rotation": lambda heads: 1.5 * heads, "score_bias": lambda queries: queries[..., :1]}
    np.testing.assert_allclose(layer(query, key, **options), with_copies(layer)(query, key, **options), atol=1e-4)


def test_dropout_falls_on_the_weights_of_every_head():
    layer, inputs = built(num_key_value_heads=2, dropout_rate=0.5), normal(B, T, D)
    full = with_copies(layer)
    for one in (layer, full):
        one.dropout.seed_generator.state.assign(np.array([3, 5], "uint32"))
    found = ops.convert_to_numpy(layer(inputs, training=True))
    np.testing.assert_allclose(found, full(inputs, training=True), atol=1e-4)
    assert np.abs(found - ops.convert_to_numpy(layer(inputs))).max() > 0.1


@GROUPS
@pytest.mark.parametrize("rows", [1, 3])
def test_steps_equal_the_call_with_caches_of_few_heads(groups, rows):
    layer, inputs = built(num_key_value_heads=groups), normal(B * rows, T, D)
    expected = layer(inputs, attention_mask=causal_mask(T))
    cache = Cache.empty(T, K, "float32", head_order(B, H, rows, groups))
    assert cache.key.shape == cache.value.shape == (B * groups * T * rows, K)
    own = np.eye(rows, dtype=bool)[None, None, :, None]  # (1, 1, R, 1, R): each row sees what it has written itself
    for position in range(T):
        seen = own & (np.arange(T) <= position)[None, None, None, :, None]
        mask = seen.reshape(1, 1, rows, T * rows)
        output, cache = self_attention_step(layer, inputs[:, position], cache, cache.place(position), mask)
        np.testing.assert_allclose(output, expected[:, position], atol=1e-5)


@GROUPS
def test_a_source_is_kept_with_few_heads(groups):
    rows, source = 3, normal(B, S, D, seed=1)
    layer = built(num_key_value_heads=groups)
    memory = Cache.of_source(layer.keys_values(source), head_order(B, H, rows, groups))
    assert memory.key.shape == memory.value.shape == (B, groups, S, K)
    query = normal(B * rows, T, D)
    expected = layer(query, key=np.repeat(source, rows, axis=0))
    np.testing.assert_allclose(attend_step(layer, query[:, 2], memory), expected[:, 2], atol=1e-5)


def test_the_option_reaches_both_attentions_of_a_layer():
    layer = DecoderLayer(D, H, 11, num_key_value_heads=2)
    layer.build((B, T, D), (B, S, D))
    for attention in (layer.self_attention, layer.cross_attention):
        assert attention.key_projection.units == attention.value_projection.units == 2 * K
    assert (
        keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(layer)
        ).cross_attention.num_key_value_heads
        == 2
    )
