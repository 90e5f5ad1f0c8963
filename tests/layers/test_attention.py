"""Shape letters: B batch, T queries, S keys, H heads, K size of a head, D model size; all different primes."""

import math
from functools import partial

import keras
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops
from weight_copies import copy_attention

from kformer.layers import MultiHeadAttention, attention, causal_mask, row_order, scaled_dot_product_attention
from kformer.layers.attention import cache_indices

B, T, S, H, K = 2, 5, 7, 3, 11
D = H * K


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def query_key_value(dtype: str = "float32") -> tuple:
    """(B, H, T, K), (B, H, S, K), (B, H, S, K)."""
    arrays = (normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, K, seed=2))
    return tuple(ops.cast(array, dtype) for array in arrays)


def random_mask(*shape: int) -> np.ndarray:
    """Booleans, with at least the first key left to every query."""
    mask = np.random.default_rng(9).random(shape) < 0.5
    mask[..., 0] = True
    assert not mask.all()
    return mask


def to_numpy(tensor) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


@pytest.fixture
def layer() -> MultiHeadAttention:
    layer = MultiHeadAttention(D, H)
    layer.build((B, T, D))
    oracles.randomize(layer)
    return layer


class TestScaledDotProductAttention:
    def test_two_keys_share_by_the_logistic_function(self):
        # Scores are 1 and 0 after the division by sqrt(d_k) = 2, so the weights are s = 1 / (1 + e^-1) and 1 - s.
        query = np.array([[[[2.0, 0.0, 0.0, 0.0]]]], "float32")
        key = np.array([[[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]], "float32")
        value = np.array([[[[1.0, 0.0, 10.0, 0.0], [0.0, 1.0, 20.0, 0.0]]]], "float32")
        share = math.e / (1 + math.e)
        expected = [share, 1 / (1 + math.e), 10 * share + 20 * (1 - share), 0.0]
        output = scaled_dot_product_attention(query, key, value)
        np.testing.assert_allclose(output[0, 0, 0], expected, rtol=1e-6)

    def test_equal_scores_average_the_values(self):
        value = np.array([[[[1.0, 2.0], [3.0, 6.0]]]], "float32")
        output = scaled_dot_product_attention(np.zeros((1, 1, 1, 2), "float32"), value, value)
        np.testing.assert_allclose(output[0, 0, 0], [2.0, 4.0], rtol=1e-6)

    @pytest.mark.parametrize("mask_shape", [None, (B, 1, 1, S), (1, 1, T, S), (B, 1, T, S), (B, H, T, S)])
    def test_equals_the_loops(self, mask_shape):
        query, key, value = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, K, seed=2)
        mask = None if mask_shape is None else random_mask(*mask_shape)
        expected = oracles.attention(query, key, value, mask)
        np.testing.assert_allclose(scaled_dot_product_attention(query, key, value, mask), expected, atol=1e-5)
        weights = attention.attention_weights(query, key, mask)
        np.testing.assert_allclose(weights, oracles.attention_weights(query, key, mask), atol=1e-6)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_a_query_with_nothing_to_attend_to_gets_exact_zeros(self, dtype):
        query, key, value = query_key_value(dtype)
        mask = random_mask(B, 1, T, S)
        mask[0, 0, 3] = False
        output = scaled_dot_product_attention(query, key, value, mask)
        assert keras.backend.standardize_dtype(output.dtype) == dtype
        output = to_numpy(output)
        assert (output[0, :, 3] == 0).all()
        assert np.isfinite(output).all()
        others = np.ones((B, T), bool)
        others[0, 3] = False
        assert (output.swapaxes(1, 2)[others] != 0).all()
        weights = to_numpy(attention.attention_weights(query, key, mask))
        assert (weights[0, :, 3] == 0).all()
        np.testing.assert_allclose(weights.sum(-1)[:, 0][others], 1.0, atol=0.02)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
    def test_a_masked_key_has_exactly_no_influence(self, dtype, fused, monkeypatch):
        monkeypatch.setattr(attention, "FUSED_DTYPES", {keras.backend.backend(): (dtype,) if fused else ()})
        mask = np.ones((B, 1, 1, S), bool)
        mask[:, :, :, 4] = False
        query, key, value = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, K, seed=2)
        cast = partial(ops.cast, dtype=dtype)
        before = to_numpy(scaled_dot_product_attention(cast(query), cast(key), cast(value), mask))
        key[:, :, 4] = 30.0  # would take most of the softmax
        value[:, :, 4] = -1000.0
        after = to_numpy(scaled_dot_product_attention(cast(query), cast(key), cast(value), mask))
        np.testing.assert_array_equal(after, before)
        seen = to_numpy(scaled_dot_product_attention(cast(query), cast(key), cast(value)))
        assert np.abs(seen - before).max() > 1

    @pytest.mark.parametrize("mask_shape", [None, (B, 1, 1, S), (1, 1, T, S), (B, 1, T, S)])
    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.02)])
    def test_the_fused_path_equals_the_plain_path(self, mask_shape, dtype, tolerance, monkeypatch):
        query, key, value = query_key_value(dtype)
        mask = None if mask_shape is None else random_mask(*mask_shape)
        if mask is not None:
            mask[-1, :, -1] = False
        outputs = []
        for fused_dtypes in ((), (dtype,)):
            monkeypatch.setattr(attention, "FUSED_DTYPES", {keras.backend.backend(): fused_dtypes})
            outputs.append(to_numpy(scaled_dot_product_attention(query, key, value, mask)))
        np.testing.assert_allclose(outputs[1], outputs[0], atol=tolerance)

    def test_large_scores_stay_finite_in_half_precision(self):
        # Each score is 32 x 32 x 11 / sqrt(11) = 3396, and e^3396 is beyond every float.
        query = ops.full((1, 1, 2, K), 32.0, dtype="float16")
        output = to_numpy(scaled_dot_product_attention(query, query, query))
        np.testing.assert_array_equal(output, np.full((1, 1, 2, K), 32.0))


class TestMultiHeadAttention:
    def test_contract(self):
        mask = random_mask(B, 1, T, S)
        inputs = {"query": normal(B, T, D), "key": normal(B, S, D, seed=1), "attention_mask": mask}
        kwargs = {"d_model": D, "num_heads": H, "dropout_rate": 0.3}
        assert_layer_contract(MultiHeadAttention, kwargs, inputs, num_parameters=4 * (D * D + D))
        assert_layer_contract(MultiHeadAttention, {**kwargs, "use_bias": False}, inputs, num_parameters=4 * D * D)

    def test_d_model_must_be_divisible(self):
        expected = r"divisible by num_heads. Received: d_model=34, num_heads=3. Choose a d_model .* multiple of 3"
        with pytest.raises(ValueError, match=expected):
            MultiHeadAttention(34, 3)

    def test_equals_the_loops(self, layer):
        query, key, mask = normal(B, T, D), normal(B, S, D, seed=1), random_mask(B, 1, T, S)
        expected = oracles.multi_head_attention(oracles.weights_of(layer), H, query, key, mask)
        np.testing.assert_allclose(layer(query, key=key, attention_mask=mask), expected, atol=1e-4)

    def test_key_and_value_default_to_what_stands_before_them(self, layer):
        query, key, value = normal(B, T, D), normal(B, S, D, seed=1), normal(B, S, D, seed=2)
        np.testing.assert_array_equal(layer(query), layer(query, key=query, value=query))
        np.testing.assert_array_equal(layer(query, key=key), layer(query, key=key, value=key))
        assert np.abs(to_numpy(layer(query, key=key, value=value)) - to_numpy(layer(query, key=key))).max() > 0.1

    @pytest.mark.parametrize("case", ["self", "self_masked", "causal", "cross", "cross_masked", "three_inputs"])
    def test_parity_with_keras(self, layer, case):
        query, key, value = normal(B, T, D), normal(B, S, D, seed=1), normal(B, S, D, seed=2)
        if case in ("self", "self_masked", "causal"):
            key = value = query
        elif case != "three_inputs":
            value = key
        mask = random_mask(B, T, key.shape[1]) if case.endswith("masked") else None
        theirs = keras.layers.MultiHeadAttention(H, K)
        theirs.build(query.shape, value.shape, key.shape)
        copy_attention(layer, theirs)
        expected, expected_scores = theirs(
            query,
            value=value,
            key=key,
            attention_mask=mask,
            use_causal_mask=case == "causal",
            return_attention_scores=True,
        )
        ours_mask = causal_mask(T) if case == "causal" else None if mask is None else mask[:, None]
        outputs = layer(query, key=key, value=value, attention_mask=ours_mask)
        np.testing.assert_allclose(outputs, expected, atol=1e-5)
        scores = layer.attention_scores(query, key, ours_mask)
        assert scores.shape == (B, H, T, key.shape[1])
        np.testing.assert_allclose(scores, expected_scores, atol=1e-6)

    def test_steps_with_a_cache_equal_the_causal_call_at_every_position(self, layer):
        inputs = normal(B, T, D)
        expected = layer(inputs, attention_mask=causal_mask(T))
        order = row_order(B, H, rows=1)
        cache = layer.init_cache(B, T)
        for position in range(T):
            cache = layer.write_cache(inputs[:, position], cache, cache_indices(order, position, T))
            keys_values = layer.read_cache(cache, (B, H, T, D // H))
            output = layer.step(inputs[:, position], keys_values, causal_mask(T)[:, :, position : position + 1], order)
            np.testing.assert_allclose(output, expected[:, position], atol=1e-5)
        np.testing.assert_allclose(keys_values.key, layer.keys_values(inputs).key, atol=1e-5)
        np.testing.assert_allclose(keys_values.value, layer.keys_values(inputs).value, atol=1e-5)

    def test_rows_of_a_sentence_share_a_cache_position_by_position(self, layer):
        rows = 3
        inputs = normal(B * rows, T, D)
        order = row_order(B, H, rows)
        cache = layer.init_cache(B, T, rows)
        for position in range(T):
            cache = layer.write_cache(inputs[:, position], cache, cache_indices(order, position, T))
        keys = to_numpy(cache.key).reshape(B, H, T, rows, -1).transpose(0, 3, 1, 2, 4)  # (B, R, H, T, K)
        np.testing.assert_allclose(keys.reshape(B * rows, H, T, -1), layer.keys_values(inputs).key, atol=1e-5)

    def test_a_write_leaves_the_cache_that_it_was_given_alone(self, layer):
        cache = layer.init_cache(B, T)
        written = layer.write_cache(normal(B, D), cache, cache_indices(row_order(B, H, rows=1), 2, T))
        assert not to_numpy(cache.key).any()
        filled = to_numpy(written.key).reshape(B, H, T, -1).any(axis=(0, 1, 3))
        np.testing.assert_array_equal(filled, [False, False, True, False, False])

    def test_dropout_works_on_the_weights_in_training_only(self, layer):
        query = normal(B, T, D)
        dropping = MultiHeadAttention(D, H, dropout_rate=0.5)
        dropping.build(query.shape)
        dropping.set_weights(layer.get_weights())
        np.testing.assert_array_equal(dropping(query), layer(query))
        np.testing.assert_array_equal(layer(query, training=True), layer(query))
        assert np.abs(to_numpy(dropping(query, training=True)) - to_numpy(layer(query))).max() > 0.1
