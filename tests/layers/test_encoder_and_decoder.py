"""Shape letters: B batch, T target length, S source length, H heads, K size of a head, D model size, F inner
size of the feed-forward network.
"""

import keras_nlp
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops
from weight_copies import copy_decoder_layer, copy_encoder_layer

from kformer.layers import Decoder, DecoderLayer, Encoder, EncoderLayer, causal_mask, padding_mask

B, T, S, H, K, F = 2, 5, 7, 3, 11, 13
D = H * K
SIZES = {"d_model": D, "num_heads": H, "d_ff": F, "dropout_rate": 0.2, "attention_dropout_rate": 0.1}
ATTENTION = 4 * (D * D + D)
FEED_FORWARD = D * F + F + F * D + D
NORM = 2 * D
SOURCE_IDS = np.array([[5, 4, 3, 9, 8, 7, 6], [5, 4, 3, 0, 0, 0, 0]], "int32")
BOTH_ORDERS = pytest.mark.parametrize("norm_first", [False, True], ids=["norm_last", "norm_first"])


@pytest.fixture
def source() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def target() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def source_mask() -> np.ndarray:
    return ops.convert_to_numpy(padding_mask(SOURCE_IDS))


def self_mask() -> np.ndarray:
    return np.repeat(ops.convert_to_numpy(causal_mask(T)), B, axis=0)


class TestEncoderLayer:
    @BOTH_ORDERS
    def test_contract(self, source, source_mask, norm_first):
        inputs = {"inputs": source, "attention_mask": source_mask}
        assert_layer_contract(
            EncoderLayer, {**SIZES, "norm_first": norm_first}, inputs, ATTENTION + FEED_FORWARD + 2 * NORM
        )

    @BOTH_ORDERS
    def test_equals_the_loops(self, source, source_mask, norm_first):
        layer = EncoderLayer(D, H, F, norm_first=norm_first)
        layer.build(source.shape)
        oracles.randomize(layer)
        expected = oracles.encoder_layer(oracles.weights_of(layer), H, source, source_mask, norm_first)
        np.testing.assert_allclose(layer(source, attention_mask=source_mask), expected, atol=2e-4, rtol=1e-4)

    @BOTH_ORDERS
    def test_parity_with_keras_nlp(self, source, source_mask, norm_first):
        layer = EncoderLayer(D, H, F, norm_first=norm_first)
        layer.build(source.shape)
        theirs = keras_nlp.layers.TransformerEncoder(F, H, layer_norm_epsilon=1e-6, normalize_first=norm_first)
        theirs.build(source.shape)
        randomize_mildly(layer)
        copy_encoder_layer(layer, theirs)
        expected = theirs(source, padding_mask=(SOURCE_IDS != 0).astype("int32"))
        np.testing.assert_allclose(layer(source, attention_mask=source_mask), expected, atol=1e-5)


class TestDecoderLayer:
    @BOTH_ORDERS
    def test_contract(self, source, target, source_mask, norm_first):
        inputs = {
            "inputs": target,
            "encoder_output": source,
            "self_mask": self_mask(),
            "cross_mask": source_mask,
        }
        assert_layer_contract(
            DecoderLayer, {**SIZES, "norm_first": norm_first}, inputs, 2 * ATTENTION + FEED_FORWARD + 3 * NORM
        )

    @BOTH_ORDERS
    def test_equals_the_loops(self, source, target, source_mask, norm_first):
        layer = DecoderLayer(D, H, F, norm_first=norm_first)
        layer.build(target.shape, source.shape)
        oracles.randomize(layer)
        expected = oracles.decoder_layer(
            oracles.weights_of(layer), H, target, source, self_mask(), source_mask, norm_first
        )
        output = layer(target, source, self_mask=self_mask(), cross_mask=source_mask)
        np.testing.assert_allclose(output, expected, atol=2e-4, rtol=1e-4)

    @BOTH_ORDERS
    def test_parity_with_keras_nlp(self, source, target, source_mask, norm_first):
        layer = DecoderLayer(D, H, F, norm_first=norm_first)
        layer.build(target.shape, source.shape)
        theirs = keras_nlp.layers.TransformerDecoder(F, H, layer_norm_epsilon=1e-6, normalize_first=norm_first)
        theirs.build(target.shape, source.shape)
        randomize_mildly(layer)
        copy_decoder_layer(layer, theirs)
        expected = theirs(target, source, encoder_padding_mask=(SOURCE_IDS != 0).astype("int32"))
        output = layer(target, source, self_mask=causal_mask(T), cross_mask=source_mask)
        np.testing.assert_allclose(output, expected, atol=1e-5)


def randomize_mildly(layer) -> None:
    """Keeps the numbers near 1, so that a tolerance of 1e-5 is more than float32's rounding."""
    generator = np.random.default_rng(5)
    for weight in layer.weights:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(generator.normal(centre, 0.1, weight.shape))


class TestStacks:
    @BOTH_ORDERS
    def test_encoder_contract(self, source, source_mask, norm_first):
        kwargs = {"num_layers": 2, **SIZES, "norm_first": norm_first}
        parameters = 2 * (ATTENTION + FEED_FORWARD + 2 * NORM) + norm_first * NORM
        assert_layer_contract(Encoder, kwargs, {"inputs": source, "attention_mask": source_mask}, parameters)

    @BOTH_ORDERS
    def test_decoder_contract(self, source, target, source_mask, norm_first):
        kwargs = {"num_layers": 2, **SIZES, "norm_first": norm_first}
        parameters = 2 * (2 * ATTENTION + FEED_FORWARD + 3 * NORM) + norm_first * NORM
        inputs = {"inputs": target, "encoder_output": source, "cross_mask": source_mask}
        assert_layer_contract(Decoder, kwargs, inputs, parameters)

    @BOTH_ORDERS
    def test_an_encoder_is_its_layers_in_order(self, source, source_mask, norm_first):
        stack = Encoder(2, D, H, F, norm_first=norm_first)
        stack.build(source.shape)
        oracles.randomize(stack)
        weights = oracles.weights_of(stack)
        expected = source
        for name in ("layer_0", "layer_1"):
            expected = oracles.encoder_layer(oracles.below(weights, name), H, expected, source_mask, norm_first)
        if norm_first:
            expected = oracles.layer_norm(oracles.below(weights, "final_norm"), expected)
        np.testing.assert_allclose(stack(source, attention_mask=source_mask), expected, atol=5e-4, rtol=1e-4)

    @BOTH_ORDERS
    def test_a_decoder_is_its_layers_in_order_and_causal(self, source, target, source_mask, norm_first):
        stack = Decoder(2, D, H, F, norm_first=norm_first)
        stack.build(target.shape, source.shape)
        oracles.randomize(stack)
        weights = oracles.weights_of(stack)
        expected = target
        for name in ("layer_0", "layer_1"):
            expected = oracles.decoder_layer(
                oracles.below(weights, name), H, expected, source, self_mask(), source_mask, norm_first
            )
        if norm_first:
            expected = oracles.layer_norm(oracles.below(weights, "final_norm"), expected)
        np.testing.assert_allclose(stack(target, source, cross_mask=source_mask), expected, atol=5e-4, rtol=1e-4)

    def test_dropout_falls_on_the_embeddings_first(self, source):
        # Without any other dropout or layer, all that a stack does is drop half of its inputs and double the rest.
        stack = Encoder(0, D, H, F, dropout_rate=0.5)
        output = ops.convert_to_numpy(stack(np.ones_like(source), training=True))
        assert set(np.unique(output)) == {0.0, 2.0}
        np.testing.assert_array_equal(stack(source), source)

    def test_attention_dropout_reaches_the_attention(self, source):
        stack = Encoder(1, D, H, F, dropout_rate=0.0, attention_dropout_rate=0.5)
        difference = ops.convert_to_numpy(stack(source, training=True)) - ops.convert_to_numpy(stack(source))
        assert np.abs(difference).max() > 0.01
