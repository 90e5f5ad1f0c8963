"""Positions that count distances, in a whole model: rotary, linear biases, and three kinds of relative ones."""

import keras
import numpy as np
import pytest
from keras import ops
from small_models import SOURCE, TARGET_IN, B, T, logits_of, small_config, small_transformer
from test_start_decoding import all_at_once, histories, stepwise

from kformer.layers.relative_attention import own_bias
from kformer.models import build_language_model, start_decoding

DISTANCES = ("rotary", "alibi", "relative", "relative_values", "relative_buckets")


@pytest.fixture(params=DISTANCES)
def model(request):
    return small_transformer(positional_encoding=request.param)


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
    encoder = model.get_layer("encoder")
    positions = encoder.positions
    heads = [np.random.default_rng(seed).normal(size=(B, 3, 5, 4)).astype("float32") for seed in (0, 1)]

    def scores(offset):
        rows = positions.table(5, offset)
        query, key = (positions.rotate(tensor, rows) for tensor in heads)
        bias = own_bias(positions.score_bias(rows, rows), encoder.layers[0].self_attention.relative)
        bias = bias(query) if callable(bias) else bias
        return ops.matmul(query, ops.swapaxes(key, -1, -2)) + (0.0 if bias is None else bias)

    np.testing.assert_allclose(scores(0), scores(4), atol=1e-5)
    plain = ops.matmul(heads[0], ops.swapaxes(heads[1], -1, -2))
    assert np.abs(keras.ops.convert_to_numpy(scores(0) - plain)).max() > 0.1


def test_a_saved_model_computes_the_same(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(logits_of(loaded, SOURCE, TARGET_IN), logits_of(model, SOURCE, TARGET_IN), atol=1e-6)


def buckets_of(stack):
    """The buckets of the distances from -200 to 200."""
    return set(ops.convert_to_numpy(stack.positions.buckets(np.arange(-200, 201))).tolist())


def test_decoders_have_all_buckets_for_earlier_positions_and_encoders_half_of_them():
    translator = small_transformer(positional_encoding="relative_buckets")
    decoder_only = build_language_model(small_config(num_encoder_layers=0, positional_encoding="relative_buckets"))
    assert buckets_of(translator.get_layer("encoder")) == set(range(32)) - {16}  # 16: none at distance 0 to the right
    for model in (translator, decoder_only):
        decoder = model.get_layer("decoder")
        assert buckets_of(decoder) == set(range(32))
        # Distances up to 15 have a bucket of their own; in the encoder, those up to 7.
        assert ops.convert_to_numpy(decoder.positions.buckets(-np.arange(16))).tolist() == list(range(16))
