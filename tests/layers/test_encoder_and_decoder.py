"""Shape letters: B batch, T target length, S source length, H heads, K size of a head, D model size, F inner
size of the feed-forward network.
"""

import keras
import keras_nlp
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops
from weight_copies import copy_decoder_layer, copy_encoder_layer

from kformer.config.transformer import ACTIVATIONS, NORMALIZATIONS
from kformer.layers import (
    Cache,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LearnedPositionalEncoding,
    PositionalEncoding,
    causal_mask,
    head_order,
    padding_mask,
)

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


@pytest.mark.parametrize(("option", "choices"), [("activation", ACTIVATIONS), ("normalization", NORMALIZATIONS)])
def test_layers_take_every_choice_of_the_configuration(option, choices):
    for choice in choices:
        assert EncoderLayer(D, H, F, **{option: choice}).get_config()[option] == choice
    with pytest.raises(ValueError, match="fancy"):
        EncoderLayer(D, H, F, **{option: "fancy"})


class TestDecoderLayer:
    @BOTH_ORDERS
    def test_contract(self, source, target, source_mask, norm_first):
        inputs = {
            "inputs": target,
            "encoder_output": source,
            "attention_mask": self_mask(),
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
        output = layer(target, source, attention_mask=self_mask(), cross_mask=source_mask)
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
        output = layer(target, source, attention_mask=causal_mask(T), cross_mask=source_mask)
        np.testing.assert_allclose(output, expected, atol=1e-5)


def randomize_mildly(layer) -> None:
    """Keeps the numbers near 1, so that a tolerance of 1e-5 is more than float32's rounding."""
    generator = np.random.default_rng(5)
    for weight in layer.weights:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(generator.normal(centre, 0.1, weight.shape))


def layers(kind: type, number: int = 2, **options) -> list:
    return [kind(D, H, F, **options, name=f"layer_{index}") for index in range(number)]


class TestStacks:
    @BOTH_ORDERS
    def test_encoder_contract(self, source, source_mask, norm_first):
        kwargs = {"layers": layers(EncoderLayer, norm_first=norm_first), "dropout_rate": 0.3}
        parameters = 2 * (ATTENTION + FEED_FORWARD + 2 * NORM) + norm_first * NORM
        assert_layer_contract(Encoder, kwargs, {"inputs": source, "attention_mask": source_mask}, parameters)

    @BOTH_ORDERS
    def test_decoder_contract(self, source, target, source_mask, norm_first):
        positions = LearnedPositionalEncoding(T, D)
        kwargs = {"layers": layers(DecoderLayer, norm_first=norm_first), "positions": positions}
        parameters = 2 * (2 * ATTENTION + FEED_FORWARD + 3 * NORM) + norm_first * NORM + T * D
        inputs = {"inputs": target, "encoder_output": source, "cross_mask": source_mask}
        assert_layer_contract(Decoder, kwargs, inputs, parameters)

    @BOTH_ORDERS
    def test_an_encoder_is_its_layers_in_order(self, source, source_mask, norm_first):
        stack = Encoder(layers(EncoderLayer, norm_first=norm_first))
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
        stack = Decoder(layers(DecoderLayer, norm_first=norm_first))
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

    @pytest.mark.parametrize("kind", ["layer", "stack"])
    def test_an_encoder_output_may_have_another_width(self, kind, source, target, source_mask):
        decoder = (
            DecoderLayer(D, H, F) if kind == "layer" else Decoder(layers(DecoderLayer), LearnedPositionalEncoding(T, D))
        )
        wider = np.concatenate([source, source[:, :, :4]], axis=-1)
        outputs = decoder(target, wider, cross_mask=source_mask)
        assert outputs.shape == (B, T, D)
        for layer in [decoder] if kind == "layer" else decoder.layers:
            assert layer.cross_attention.key_projection.kernel.shape == (D + 4, D)
        again = type(decoder).from_config(decoder.get_config())
        again(target, wider)
        again.set_weights(decoder.get_weights())
        np.testing.assert_array_equal(again(target, wider, cross_mask=source_mask), outputs)

    def test_embeddings_are_normalized_after_their_positions(self, source, source_mask):
        positions = LearnedPositionalEncoding(S, name="positions")
        stack = Encoder(layers(EncoderLayer, 1), positions, normalize_embeddings=True)
        stack = Encoder.from_config(stack.get_config())
        stack.build(source.shape)
        oracles.randomize(stack)
        weights = oracles.weights_of(stack)
        embedded = oracles.layer_norm(
            oracles.below(weights, "embedding_norm"), source + weights["positions/embeddings"]
        )
        expected = oracles.encoder_layer(oracles.below(weights, "layer_0"), H, embedded, source_mask, norm_first=False)
        np.testing.assert_allclose(stack(source, attention_mask=source_mask), expected, atol=5e-4, rtol=1e-4)

    def test_positions_are_added_before_the_first_layer(self, source):
        stack = Encoder([], positions=PositionalEncoding(D + 1))
        inputs = np.concatenate([source, source[:, :, :1]], axis=-1)
        np.testing.assert_allclose(stack(inputs), inputs + oracles.sinusoids(S, D + 1), atol=1e-5)

    @pytest.mark.parametrize("kind", [Encoder, Decoder])
    def test_dropout_falls_on_the_embeddings_first(self, kind, source):
        # Without any other dropout or layer, all that a stack does is drop half of its inputs and double the rest.
        stack = kind([], dropout_rate=0.5)
        output = ops.convert_to_numpy(stack(np.ones_like(source), training=True))
        assert set(np.unique(output)) == {0.0, 2.0}
        np.testing.assert_array_equal(stack(source), source)

    def test_attention_dropout_reaches_the_self_attention(self, source):
        stack = Encoder(layers(EncoderLayer, 1, dropout_rate=0.0, attention_dropout_rate=0.5), dropout_rate=0.0)
        difference = ops.convert_to_numpy(stack(source, training=True)) - ops.convert_to_numpy(stack(source))
        assert np.abs(difference).max() > 0.01

    def test_attention_dropout_reaches_the_cross_attention(self, source):
        # Without the output of the self-attention, the dropout of its weights cannot be seen.
        layer = DecoderLayer(D, H, F, dropout_rate=0.0, attention_dropout_rate=0.5)
        target = source[:, :2]
        layer(target, source)
        layer.self_attention.output_projection.kernel.assign(np.zeros((D, D)))
        difference = ops.convert_to_numpy(layer(target, source, training=True)) - ops.convert_to_numpy(
            layer(target, source)
        )
        assert np.abs(difference).max() > 1e-4

    def test_attention_weights_are_without_dropout_in_a_layer_that_trains(self, source, target):
        # Dropout in the self-attention would change the first layer's weights; in the cross-attention, the second's.
        options = {"dropout_rate": 0.5, "attention_dropout_rate": 0.5}
        decoder = Decoder(layers(DecoderLayer, **options), LearnedPositionalEncoding(T, D), dropout_rate=0.5)
        decoder.build(target.shape, source.shape)
        oracles.randomize(decoder)

        class Watching(keras.layers.Layer):
            def call(self, inputs, training=None):
                return weights(inputs)

        def weights(inputs):
            _, scores = decoder.call_with_scores(inputs, source)
            return ops.concatenate([ops.concatenate(both, -1) for both in scores])

        expected = weights(target)
        np.testing.assert_array_equal(Watching()(target, training=True), expected)


class TestOptions:
    """Each option of a layer reaches the sublayer that it is meant for."""

    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    def test_activation_epsilon_and_bias(self, kind):
        layer = kind(D, H, F, activation="gelu", layer_norm_epsilon=0.25, use_bias=False)
        layer.build((None, None, D))
        assert layer.feed_forward.inner.activation is keras.activations.gelu
        assert layer.feed_forward.outer.activation is keras.activations.linear
        names = [weight.path.split("/", 1)[1] for weight in layer.weights]
        assert not [name for name in names if name.endswith("bias")]
        norms = [part for name, part in vars(layer).items() if name.endswith("_residual")]
        assert len(norms) == (3 if kind is DecoderLayer else 2)
        assert {residual.norm.epsilon for residual in norms} == {0.25}

    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    def test_gate_and_rms_normalization(self, kind):
        layer = kind(D, H, F, activation="swiglu", normalization="rms_norm", norm_first=True)
        assert layer.feed_forward.activation == "swiglu"
        assert layer.feed_forward.gate.units == F
        norms = [part.norm for name, part in vars(layer).items() if name.endswith("_residual")]
        assert {type(norm).__name__ for norm in (*norms, Encoder([layer]).final_norm)} == {"RMSNormalization"}

    def test_the_last_norm_of_a_stack_has_the_epsilon_of_its_layers(self):
        assert Encoder([EncoderLayer(D, H, F, norm_first=True, layer_norm_epsilon=0.25)]).final_norm.epsilon == 0.25

    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    def test_another_width_is_refused_when_the_layer_is_built(self, kind):
        expected = rf"{kind.__name__} takes inputs of width d_model=33. Received: inputs of shape \(2, 5, 7\). Build it"
        with pytest.raises(ValueError, match=expected):
            kind(D, H, F).build((2, 5, 7))


class TestImplicitMasks:
    """Padding marked by `Embedding(mask_zero=True)` changes no real position, as an explicit mask has it."""

    IDS = np.array([[3, 1, 2, 4, 0, 0, 0], [1, 1, 2, 3, 4, 1, 2]], "int32")

    @pytest.fixture
    def embedded(self):
        """With its implicit mask, and without."""
        masked = keras.layers.Embedding(5, D, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)(self.IDS)
        return masked, ops.convert_to_tensor(ops.convert_to_numpy(masked))

    @pytest.mark.parametrize("kind", ["layer", "stack"])
    def test_encoder(self, embedded, kind):
        masked, plain = embedded
        encoder = EncoderLayer(D, H, F) if kind == "layer" else Encoder(layers(EncoderLayer))
        expected = encoder(plain, attention_mask=padding_mask(self.IDS))
        outputs = encoder(masked)
        np.testing.assert_allclose(outputs, expected, atol=1e-6)
        assert np.abs(ops.convert_to_numpy(encoder(plain)) - ops.convert_to_numpy(outputs)).max() > 1e-3
        np.testing.assert_array_equal(outputs._keras_mask, self.IDS != 0)  # handed on to the next layer

    def test_encoder_layer_with_a_second_tensor(self, embedded):
        masked, plain = embedded
        layer, bias = EncoderLayer(D, H, F), np.random.default_rng(2).normal(size=(1, H, S, S)).astype("float32")
        expected = layer(plain, attention_mask=padding_mask(self.IDS), score_bias=bias)
        outputs = layer(masked, score_bias=bias)
        np.testing.assert_allclose(outputs, expected, atol=1e-6)
        unmasked = ops.convert_to_numpy(layer(plain, score_bias=bias))
        assert np.abs(unmasked - ops.convert_to_numpy(outputs)).max() > 1e-3

    @pytest.mark.parametrize("kind", ["layer", "stack"])
    def test_decoder(self, embedded, kind, target):
        masked, plain = embedded
        decoder = DecoderLayer(D, H, F) if kind == "layer" else Decoder(layers(DecoderLayer))
        visible = padding_mask(self.IDS)
        expected = decoder(target, plain, cross_mask=visible)
        np.testing.assert_allclose(decoder(target, masked), expected, atol=1e-6)
        assert np.abs(ops.convert_to_numpy(decoder(target, plain)) - ops.convert_to_numpy(expected)).max() > 1e-3

    def test_padding_of_the_target(self, embedded, source):
        masked, plain = embedded
        layer, stack = DecoderLayer(D, H, F), Decoder(layers(DecoderLayer, 1))
        seen = causal_mask(S) & padding_mask(self.IDS)
        np.testing.assert_allclose(layer(masked, source), layer(plain, source, attention_mask=seen), atol=1e-6)
        stack(masked, source)
        np.testing.assert_allclose(
            stack(masked, source), stack.layers[0](plain, source, attention_mask=seen), atol=1e-6
        )


class TestWithoutTheOtherSide:
    def test_a_decoder_without_a_source_is_causal_encoder_layers(self, target):
        decoder = Decoder(layers(EncoderLayer))
        decoder.build(target.shape)
        oracles.randomize(decoder)
        weights = oracles.weights_of(decoder)
        expected = target
        for name in ("layer_0", "layer_1"):
            expected = oracles.encoder_layer(oracles.below(weights, name), H, expected, self_mask(), False)
        np.testing.assert_allclose(decoder(target), expected, atol=5e-4, rtol=1e-4)

    def test_its_padding_is_hidden_by_an_implicit_mask(self):
        ids = np.array([[3, 0, 2, 4, 1], [1, 1, 2, 3, 4]], "int32")  # later positions would see the padding
        masked = keras.layers.Embedding(5, D, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)(ids)
        plain = ops.convert_to_tensor(ops.convert_to_numpy(masked))
        decoder = Decoder(layers(EncoderLayer, 1))
        outputs = decoder(masked)
        seen = causal_mask(T) & padding_mask(ids)
        np.testing.assert_allclose(outputs, decoder.layers[0](plain, attention_mask=seen), atol=1e-6)
        assert np.abs(ops.convert_to_numpy(decoder(plain)) - ops.convert_to_numpy(outputs)).max() > 1e-3

    def test_it_decodes_step_by_step(self, target):
        decoder = Decoder(layers(EncoderLayer), positions=LearnedPositionalEncoding(T, D), dropout_rate=0.0)
        expected = decoder(target)
        caches = decoder.empty_caches(Cache, T, head_order(B, H, rows=1))
        table = decoder.positions.table(T)
        for position in range(T):
            mask = causal_mask(T)[:, :, position : position + 1]
            output, caches = decoder.step(target[:, position], caches, position, mask, table)
            np.testing.assert_allclose(output, expected[:, position], atol=1e-5)
