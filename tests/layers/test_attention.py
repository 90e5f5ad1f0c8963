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

from kformer.layers import Band, MultiHeadAttention, causal_mask, scaled_dot_product, scaled_dot_product_attention
from kformer.process.hardware import cpu_multiplies_bfloat16

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

    def test_a_fused_kernel_gets_a_mask_with_a_row_for_each_query(self, monkeypatch):
        # As cuDNN's flash attention wants it. With a mask (B, 1, 1, S), Keras falls back to a slower kernel on a GPU.
        monkeypatch.setattr(scaled_dot_product, "FUSED_DTYPES", {keras.backend.backend(): ("float32",)})
        fused, shapes = keras.ops.dot_product_attention, []

        def as_cudnn(query, key, value, mask):
            shapes.append(tuple(mask.shape[2:]))
            return fused(query, key, value, mask=mask)

        monkeypatch.setattr(keras.ops, "dot_product_attention", as_cudnn)
        query, key, value = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, K, seed=2)
        scaled_dot_product_attention(query, key, value, random_mask(B, 1, 1, S))
        assert shapes == [(T, S)]

    @pytest.mark.parametrize("mask_shape", [None, (B, 1, 1, S), (1, 1, T, S), (B, 1, T, S), (B, H, T, S)])
    def test_equals_the_loops(self, mask_shape):
        query, key, value = normal(B, H, T, K), normal(B, H, S, K, seed=1), normal(B, H, S, K, seed=2)
        mask = None if mask_shape is None else random_mask(*mask_shape)
        expected = oracles.attention(query, key, value, mask)
        np.testing.assert_allclose(scaled_dot_product_attention(query, key, value, mask), expected, atol=1e-5)
        weights = scaled_dot_product.attention_weights(query, key, mask)
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
        weights = to_numpy(scaled_dot_product.attention_weights(query, key, mask))
        assert (weights[0, :, 3] == 0).all()
        np.testing.assert_allclose(weights.sum(-1)[:, 0][others], 1.0, atol=0.02)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
    def test_a_masked_key_has_exactly_no_influence(self, dtype, fused, monkeypatch):
        monkeypatch.setattr(scaled_dot_product, "FUSED_DTYPES", {keras.backend.backend(): (dtype,) if fused else ()})
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
    # A processor without arithmetic in bfloat16 may round to the next step, which is 0.03125 between 4 and 8.
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.02 if cpu_multiplies_bfloat16() else 0.032)]
    )
    def test_the_fused_path_equals_the_plain_path(self, mask_shape, dtype, tolerance, monkeypatch):
        query, key, value = query_key_value(dtype)
        mask = None if mask_shape is None else random_mask(*mask_shape)
        if mask is not None:
            mask[-1, :, -1] = False
        outputs = []
        for fused_dtypes in ((), (dtype,)):
            monkeypatch.setattr(scaled_dot_product, "FUSED_DTYPES", {keras.backend.backend(): fused_dtypes})
            outputs.append(to_numpy(scaled_dot_product_attention(query, key, value, mask)))
        np.testing.assert_allclose(outputs[1], outputs[0], atol=tolerance)

    def test_large_scores_stay_finite_in_half_precision(self):
        # Each score is 32 x 32 x 11 / sqrt(11) = 3396, and e^3396 is beyond every float.
        query = ops.full((1, 1, 2, K), 32.0, dtype="float16")
        output = to_numpy(scaled_dot_product_attention(query, query, query))
        np.testing.assert_array_equal(output, np.full((1, 1, 2, K), 32.0))

    @pytest.mark.parametrize("mask_shape", [None, (B, 1, T, S)])
    def test_a_bias_is_added_to_the_scores(self, mask_shape):
        query, key, value = query_key_value()
        mask = None if mask_shape is None else random_mask(*mask_shape)
        # With one more feature, 1 in the queries and the bias times sqrt(K + 1) in the keys, the product adds it.
        bias = normal(1, 1, 1, S, seed=4)
        longer_query = np.concatenate([normal(B, H, T, K) * math.sqrt((K + 1) / K), np.ones((B, H, T, 1))], axis=-1)
        column = np.broadcast_to(np.moveaxis(bias, 3, 2) * math.sqrt(K + 1), (B, H, S, 1))
        longer_key = np.concatenate([normal(B, H, S, K, seed=1), column], axis=-1)
        expected = oracles.attention_weights(longer_query, longer_key, mask)
        np.testing.assert_allclose(scaled_dot_product.attention_weights(query, key, mask, bias), expected, atol=1e-6)
        output = scaled_dot_product_attention(query, key, value, mask, bias)
        np.testing.assert_allclose(output, expected @ normal(B, H, S, K, seed=2), atol=1e-5)


class TestMultiHeadAttention:
    def test_contract(self):
        mask = random_mask(B, 1, T, S)
        inputs = {"query": normal(B, T, D), "key": normal(B, S, D, seed=1), "attention_mask": mask}
        kwargs = {"d_model": D, "num_heads": H, "dropout_rate": 0.3}
        assert_layer_contract(MultiHeadAttention, kwargs, inputs, num_parameters=4 * (D * D + D))
        assert_layer_contract(MultiHeadAttention, {**kwargs, "use_bias": False}, inputs, num_parameters=4 * D * D)

    def test_heads_of_a_chosen_size(self):
        # 3 heads of 5 features: all heads together are narrower than the model. d_model need not be divisible.
        width, sizes = 16, {"d_model": 16, "num_heads": H, "head_dim": 5}
        query, key, mask = normal(B, T, width), normal(B, S, width, seed=1), random_mask(B, 1, T, S)
        inputs = {"query": query, "key": key, "attention_mask": mask}
        parameters = 3 * (16 * 15 + 15) + 15 * 16 + 16
        assert_layer_contract(MultiHeadAttention, sizes, inputs, num_parameters=parameters)
        layer, theirs = MultiHeadAttention(**sizes), keras.layers.MultiHeadAttention(H, key_dim=5)
        layer.build(query.shape)
        theirs.build(query.shape, key.shape)
        oracles.randomize(layer)
        copy_attention(layer, theirs)
        expected = oracles.multi_head_attention(oracles.weights_of(layer), H, query, key, mask)
        np.testing.assert_allclose(layer(query, key, attention_mask=mask), expected, atol=1e-4)
        expected = theirs(query, key, attention_mask=mask[:, 0])
        np.testing.assert_allclose(layer(query, key, attention_mask=mask), expected, atol=1e-5)

    def test_d_model_must_be_divisible(self):
        expected = r"divisible by num_heads. Received: d_model=34, num_heads=3. Choose a d_model .* multiple of 3"
        with pytest.raises(ValueError, match=expected):
            MultiHeadAttention(34, 3)

    def test_equals_the_loops(self, layer):
        query, key, mask = normal(B, T, D), normal(B, S, D, seed=1), random_mask(B, 1, T, S)
        expected = oracles.multi_head_attention(oracles.weights_of(layer), H, query, key, mask)
        np.testing.assert_allclose(layer(query, key=key, attention_mask=mask), expected, atol=1e-4)

    def test_key_and_value_default_to_each_other_and_to_the_query(self, layer):
        query, key, value = normal(B, T, D), normal(B, S, D, seed=1), normal(B, S, D, seed=2)
        np.testing.assert_array_equal(layer(query), layer(query, key=query, value=query))
        np.testing.assert_array_equal(layer(query, key=key), layer(query, key=key, value=key))
        assert np.abs(to_numpy(layer(query, key=key, value=value)) - to_numpy(layer(query, key=key))).max() > 0.1
        np.testing.assert_array_equal(layer(query, value=value), layer(query, key=value))

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
        options = {"attention_mask": mask, "use_causal_mask": case == "causal"}
        outputs = layer(query, key=key, value=value, **options)
        np.testing.assert_allclose(outputs, expected, atol=1e-5)
        again, scores = layer(query, key=key, value=value, **options, return_attention_scores=True)
        np.testing.assert_array_equal(again, outputs)
        assert scores.shape == (B, H, T, key.shape[1])
        np.testing.assert_allclose(scores, expected_scores, atol=1e-6)
        if case != "causal":
            np.testing.assert_array_equal(layer.attention_scores(query, key, mask), scores)

    def test_a_causal_mask_joins_the_others(self, layer):
        ids = np.array([[3, 1, 2, 0, 0], [1, 1, 1, 1, 1]], "int32")
        embedded = keras.layers.Embedding(4, D, mask_zero=True)(ids)
        both = causal_mask(T) & (ids != 0)[:, None, None, :]
        expected = layer(embedded, attention_mask=both)
        np.testing.assert_allclose(layer(embedded, use_causal_mask=True), expected, atol=1e-6)
        keys = (ids != 0)[:, None, :]
        for mask in (keys, keys.astype("int32")):
            outputs = layer(embedded, attention_mask=mask, use_causal_mask=True)
            np.testing.assert_allclose(outputs, expected, atol=1e-6)
        band = Band(T, keys=(ids != 0)[:, None, None, :])
        outputs, scores = layer(embedded, attention_mask=band, use_causal_mask=True, return_attention_scores=True)
        np.testing.assert_allclose(outputs, expected, atol=1e-5)
        np.testing.assert_allclose(scores, layer.attention_scores(embedded, attention_mask=both), atol=1e-6)

    def test_a_causal_mask_of_other_keys(self, layer):
        query, key = normal(B, T, D), normal(B, S, D, seed=1)
        expected = layer(query, key, attention_mask=causal_mask(T, S))
        np.testing.assert_allclose(layer(query, key, use_causal_mask=True), expected, atol=1e-6)

    def test_the_mask_of_the_value_hides_padding_too(self, layer):
        ids = np.array([[3, 1, 2, 0, 0], [1, 1, 1, 1, 1]], "int32")
        embedded, query = keras.layers.Embedding(4, D, mask_zero=True)(ids), normal(B, S, D)
        expected = layer(query, embedded, attention_mask=(ids != 0)[:, None, :])
        np.testing.assert_allclose(layer(query, value=embedded), expected, atol=1e-6)

    def test_the_second_and_third_tensor_are_not_swapped_in_silence(self, layer):
        query, key, value = normal(B, T, D), normal(B, S, D, seed=1), normal(B, S, D, seed=2)
        with pytest.raises(TypeError, match="positional"):  # Keras's own layer has the order query, value, key
            layer(query, value, key)

    def test_scores_in_a_functional_model(self, layer):
        inputs = keras.Input((None, D))
        outputs, scores = layer(inputs, return_attention_scores=True, use_causal_mask=True)
        assert (outputs.shape, scores.shape) == ((None, None, D), (None, H, None, None))
        model = keras.Model(inputs, [outputs, scores])
        query = normal(B, T, D)
        np.testing.assert_allclose(model(query)[1], layer.attention_scores(query, query, causal_mask(T)), atol=1e-6)
        for name in ("key", "value"):
            _, scores = layer(inputs, **{name: keras.Input((S, D))}, return_attention_scores=True)
            assert scores.shape == (None, H, None, S)

    @pytest.mark.parametrize("shape", [(T, D), (B, 1, T, D)], ids=str)
    def test_inputs_of_another_rank_are_refused(self, layer, shape):
        with pytest.raises(ValueError, match=rf"expected ndim=3, found ndim={len(shape)}"):
            layer(normal(*shape))

    def test_dropout_works_on_the_weights_in_training_only(self, layer):
        query = normal(B, T, D)
        dropping = MultiHeadAttention(D, H, dropout_rate=0.5)
        dropping.build(query.shape)
        dropping.set_weights(layer.get_weights())
        np.testing.assert_array_equal(dropping(query), layer(query))
        np.testing.assert_array_equal(layer(query, training=True), layer(query))
        assert np.abs(to_numpy(dropping(query, training=True)) - to_numpy(layer(query))).max() > 0.1

    def test_an_implicit_mask_of_the_keys_counts_where_none_is_given(self, layer):
        ids = np.array([[3, 1, 2, 0, 0], [1, 1, 1, 1, 1]], "int32")
        embedded = keras.layers.Embedding(4, D, mask_zero=True)(ids)
        plain = ops.convert_to_tensor(to_numpy(embedded))  # without the implicit mask
        visible = (ids != 0)[:, None, None, :]
        np.testing.assert_allclose(layer(embedded), layer(plain, attention_mask=visible), atol=1e-6)
        query = normal(B, T, D)
        np.testing.assert_allclose(layer(query, embedded), layer(query, plain, attention_mask=visible), atol=1e-6)
        everything = np.ones((1, 1, 1, T), bool)
        np.testing.assert_allclose(layer(embedded, attention_mask=everything), layer(plain), atol=1e-6)
        assert np.abs(to_numpy(layer(plain)) - to_numpy(layer(embedded)))[0].max() > 1e-3

    @pytest.mark.parametrize("second", ["score_bias", "key and value"])
    def test_an_implicit_mask_counts_beside_a_second_tensor_too(self, layer, second):
        ids = np.array([[3, 1, 2, 0, 0], [1, 1, 1, 1, 1]], "int32")
        embedded = keras.layers.Embedding(4, D, mask_zero=True)(ids)
        plain = ops.convert_to_tensor(to_numpy(embedded))
        visible = (ids != 0)[:, None, None, :]
        bias, value = {"score_bias": normal(1, H, T, T, seed=1)}, {"value": normal(B, T, D, seed=1)}
        masked, others = (
            (bias, bias) if second == "score_bias" else ({"key": embedded, **value}, {"key": plain, **value})
        )
        expected = layer(plain, attention_mask=visible, **others)
        np.testing.assert_allclose(layer(embedded, **masked), expected, atol=1e-6)
        everything = np.ones((1, 1, 1, T), bool)
        unmasked = layer(embedded, attention_mask=everything, **masked)
        np.testing.assert_allclose(unmasked, layer(plain, **others), atol=1e-6)
        assert np.abs(to_numpy(unmasked) - to_numpy(expected))[0].max() > 1e-3

    def test_the_implicit_mask_of_the_queries_hides_no_keys_of_others(self, layer):
        embedded = keras.layers.Embedding(4, D, mask_zero=True)(np.array([[3, 1, 2, 0, 0], [1, 1, 1, 1, 1]], "int32"))
        plain, key = ops.convert_to_tensor(to_numpy(embedded)), normal(B, T, D, seed=1)
        np.testing.assert_array_equal(layer(embedded, key), layer(plain, key))

    def test_a_rotation_is_applied_to_queries_and_keys_and_not_to_values(self, layer):
        query, key = normal(B, T, D), normal(B, S, D, seed=1)
        keys, values = (to_numpy(part) for part in layer.keys_values(key))
        queries = to_numpy(layer.keys_values(query).key)  # as the query projection is made the key projection below
        layer.query_projection.set_weights(layer.key_projection.get_weights())
        weights = oracles.attention_weights(2.0 * queries, 2.0 * keys)

        def double(heads):
            return 2.0 * heads

        np.testing.assert_allclose(layer.attention_scores(query, key, rotation=double), weights, atol=1e-5)
        heads = (weights @ values).swapaxes(1, 2).reshape(B, T, D).astype("float32")
        np.testing.assert_allclose(layer(query, key, rotation=double), layer.output_projection(heads), atol=1e-4)
