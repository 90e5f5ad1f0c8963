"""The layers in models that a user of Keras writes, beside Keras's own layers."""

import keras
import numpy as np
import pytest
from keras import ops

from kformer import TransformerConfig
from kformer.layers import (
    AdaptiveDepth,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LearnedPositionalEncoding,
    PositionalEncoding,
    ProjectedTokenEmbedding,
    SegmentEmbedding,
    SharedDepth,
    TokenEmbedding,
)
from kformer.layers.normalization import LayerNormalization, RMSNormalization
from kformer.models import build_classifier, build_tagger, build_transformer

V, D, H, F = 20, 8, 2, 16
IDS = np.array([[5, 6, 7, 0, 0], [8, 9, 3, 4, 2]], "int32")  # the first text has three tokens


def parts() -> list:
    encoder = Encoder([EncoderLayer(D, H, F) for _ in range(2)], PositionalEncoding())
    return [TokenEmbedding(V, D, mask_zero=True), encoder, keras.layers.GlobalAveragePooling1D()]


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = parts()

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


def functional() -> keras.Model:
    inputs = outputs = keras.Input((None,), dtype="int32")
    for part in parts():
        outputs = part(outputs)
    return keras.Model(inputs, outputs)


def assert_padding_does_not_count(model: keras.Model, atol: float = 1e-5) -> None:
    padded, short = model(IDS)[:1], model(IDS[:1, :3])
    np.testing.assert_allclose(padded, short, atol=atol)


class TestPadding:
    @pytest.mark.parametrize("make", [lambda: keras.Sequential(parts()), functional, Subclassed])
    def test_mask_zero_reaches_attention_and_pooling(self, make):
        assert_padding_does_not_count(make())

    def test_a_recurrent_layer_ignores_padding_behind_the_encoder(self):
        assert_padding_does_not_count(keras.Sequential([*parts()[:2], keras.layers.LSTM(3)]))

    def test_the_masking_layer(self):
        inputs = np.random.default_rng(0).normal(size=(1, 5, D)).astype("float32")
        inputs[0, 3:] = 0.0
        model = keras.Sequential([keras.layers.Masking(), EncoderLayer(D, H, F), keras.layers.GlobalAveragePooling1D()])
        np.testing.assert_allclose(model(inputs), model(inputs[:, :3]), atol=1e-5)

    def test_a_mask_of_the_tokens_is_passed_on(self):
        encoder, pooling = Encoder([EncoderLayer(D, H, F)]), keras.layers.GlobalAveragePooling1D()
        embedded = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
        pooled = pooling(encoder(embedded, mask=ops.convert_to_tensor(IDS != 0)))
        np.testing.assert_allclose(pooled[:1], pooling(encoder(embedded[:1, :3])), atol=1e-5)

    def test_the_mask_counts_beside_what_counts_in_the_ponder_cost(self):
        embedded, encoder = TokenEmbedding(V, D, mask_zero=True)(IDS), Encoder([EncoderLayer(D, H, F)])
        counted = ops.convert_to_tensor(np.ones((2, 1, 1, 5), bool))
        np.testing.assert_array_equal(encoder(embedded, counted=counted), encoder(embedded))

    @pytest.mark.parametrize("kind", ["tied", "projected"])
    def test_logits_carry_the_mask_of_the_vectors(self, kind):
        embedding = (
            TokenEmbedding(V, D, mask_zero=True)
            if kind == "tied"
            else ProjectedTokenEmbedding(V, 3, d_model=D, mask_zero=True)
        )
        model = keras.Sequential([embedding, EncoderLayer(D, H, F)])
        vectors = model(IDS)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        both = loss(IDS, embedding(vectors, reverse=True))
        short = loss(IDS[:1, :3], embedding(model(IDS[:1, :3]), reverse=True))
        other = loss(IDS[1:], embedding(model(IDS[1:]), reverse=True))
        np.testing.assert_allclose(both, short + other, rtol=1e-4)


class TestTrainedEncoders:
    """Cut out of kformer's own models, an encoder tells the next layer what is padding."""

    @pytest.mark.parametrize("build", [build_transformer, build_classifier, build_tagger])
    @pytest.mark.parametrize("pad_id", [0, 5])
    def test_pooling_ignores_padding(self, build, pad_id):
        config = TransformerConfig(
            V, V, 2, 2, d_model=D, d_ff=F, num_heads=H, pad_id=pad_id, start_id=18, end_id=19, embedding_tying="none"
        )
        model = build(config)
        source, features = model.input["source"], model.get_layer("encoder").output
        inside = keras.Model(source, keras.layers.GlobalAveragePooling1D()(features))
        behind = keras.Sequential([keras.Model(source, features), keras.layers.GlobalAveragePooling1D()])
        ids = np.array([[6, 7, 8, pad_id, pad_id]], "int32")
        for pooled in (inside, behind):
            np.testing.assert_allclose(pooled(ids), pooled(ids[:, :3]), atol=1e-5)


class TestWidths:
    """A layer that adds to its input takes the width from it."""

    @pytest.mark.parametrize(
        "make",
        [
            PositionalEncoding,
            lambda **width: LearnedPositionalEncoding(9, **width),
            SegmentEmbedding,
            lambda **width: SharedDepth(2, **width),
            lambda **width: AdaptiveDepth(2, **width),
        ],
        ids=["sinusoids", "learned", "segments", "shared", "adaptive"],
    )
    def test_it_is_that_of_the_inputs(self, make):
        layer, given = make(), make(d_model=D)
        assert layer.get_config()["d_model"] is None
        layer.build((None, None, D))
        given.build((None, None, D))
        assert [weight.shape for weight in layer.weights] == [weight.shape for weight in given.weights]
        assert type(layer).from_config(layer.get_config()).d_model == D

    def test_the_positions_are_the_same(self):
        inputs = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
        np.testing.assert_array_equal(PositionalEncoding()(inputs), PositionalEncoding(D)(inputs))

    def test_an_odd_width_is_refused(self):
        with pytest.raises(ValueError, match="d_model must be even: each sine needs a cosine. Received: d_model=7"):
            PositionalEncoding()(np.zeros((1, 2, 7)))

    def test_an_unknown_width_is_refused(self):
        with pytest.raises(ValueError, match="Pass d_model to the layer, or build it first"):
            PositionalEncoding().table(3)
        message = r"takes its d_model from the width of its inputs. Received: inputs of shape \(None, None, None\)"
        with pytest.raises(ValueError, match=message):
            PositionalEncoding().build((None, None, None))

    @pytest.mark.parametrize("kind", ["layer", "stack", "positions"])
    def test_ids_in_place_of_vectors_are_refused(self, kind):
        if kind == "positions":
            layer = PositionalEncoding(D)
        else:
            layer = EncoderLayer(D, H, F) if kind == "layer" else Encoder([EncoderLayer(D, H, F)])
        with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
            layer(IDS)


def test_a_layer_of_the_decoder_alone_is_causal():
    layer, memory = DecoderLayer(D, H, F), np.ones((1, 3, D), "float32")
    target = np.random.default_rng(0).normal(size=(1, 5, D)).astype("float32")
    longer, shorter = layer(target, memory), layer(target[:, :2], memory)
    np.testing.assert_allclose(longer[:, :2], shorter, atol=1e-5)
    outputs, (weights, _) = layer.call_with_scores(target, memory)
    np.testing.assert_allclose(outputs, longer, atol=1e-5)
    assert (ops.convert_to_numpy(weights)[0, 0] > 0).tolist() == np.tri(5, dtype=bool).tolist()


def test_one_layer_several_times_is_refused():
    """Its weights would be shared, and a saved model could not be loaded."""
    with pytest.raises(ValueError, match="Received: one layer several times. Make each layer anew"):
        Encoder([EncoderLayer(D, H, F)] * 2)


@pytest.mark.parametrize("kind", ["layer", "stack"])
def test_weights_of_the_cross_attention_are_outputs_of_a_functional_model(kind):
    layer = DecoderLayer(D, H, F) if kind == "layer" else Decoder([DecoderLayer(D, H, F)], PositionalEncoding())
    inputs, memory = keras.Input((None, D)), keras.Input((3, D))
    outputs, weights = layer(inputs, memory, return_attention_scores=True)
    assert outputs.shape == (None, None, D)
    assert weights.shape == (None, H, None, 3)
    given = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32"), np.ones((2, 3, D), "float32")
    found = keras.Model([inputs, memory], [outputs, weights])(given)
    for one, expected in zip(found, layer(*given, return_attention_scores=True), strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-5)
    assert layer(inputs, memory).shape == (None, None, D)


@pytest.mark.parametrize("norm", [LayerNormalization, RMSNormalization])
def test_a_norm_keeps_the_mask_for_the_layers_behind_it(norm, recwarn):
    ids = keras.Input((None,), dtype="int32")
    vectors = norm()(TokenEmbedding(V, D, mask_zero=True)(ids))
    model = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(vectors))
    np.testing.assert_allclose(model(np.array([[6, 7, 0]], "int32")), model(np.array([[6, 7]], "int32")), atol=1e-6)
    assert not [str(one.message) for one in recwarn if "mask" in str(one.message)]


def test_a_batch_without_rows_and_a_memory_without_positions_are_no_error():
    """A loop of one's own may filter rows until none is left."""
    inputs = np.ones((2, 5, D), "float32")
    encoder = Encoder([EncoderLayer(D, H, F)], PositionalEncoding())
    assert encoder(inputs[:0], mask=np.ones((0, 5), bool)).shape == (0, 5, D)
    outputs = DecoderLayer(D, H, F)(inputs, inputs[:, :0], cross_mask=np.ones((2, 1, 0), bool))
    assert np.isfinite(ops.convert_to_numpy(outputs)).all()
