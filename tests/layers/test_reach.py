"""Attention with a window is attention with the mask of the window, though it computes only the scores inside.

Shape letters: B batch, T positions, H heads, G heads of keys and values, K size of a head, D model size, r window.
"""

import keras
import numpy as np
import oracles
import pytest
from gradients import gradient
from keras import ops

from kformer.layers import (
    Band,
    BucketedBias,
    Decoder,
    Encoder,
    EncoderLayer,
    LearnedPositionalEncoding,
    LinearBias,
    MultiHeadAttention,
    RelativePositions,
    RotaryPositions,
    scaled_dot_product_attention,
    window_mask,
)

B, H, G, K = 2, 4, 2, 6
D = H * K
KEYS = np.arange(17) < np.array([17, 9])[:, None, None, None]  # the second sentence ends in padding
POSITIONS = {
    "rotary": lambda: RotaryPositions(K),
    "learned": lambda: LearnedPositionalEncoding(17, D),
    "alibi": lambda: LinearBias(H),
    "relative": lambda: RelativePositions(K, max_distance=3),
    "relative_buckets": lambda: BucketedBias(H, num_buckets=8, max_distance=6),
}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def heads(length: int) -> tuple:
    return normal(B, H, length, K), normal(B, G, length, K, seed=1), normal(B, G, length, K, seed=2)


def test_a_window_by_hand():
    positions = np.arange(4)
    to_both_sides = ops.convert_to_numpy(window_mask(positions, positions, 2))[0, 0].astype(int)
    assert to_both_sides.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    last_two = ops.convert_to_numpy(window_mask(positions[2:], positions, 2, causal=True))[0, 0].astype(int)
    assert last_two.tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("causal", [False, True], ids=["both_sides", "causal"])
# One block, several, a last one that is not full, and a window that is wider than the sequence.
@pytest.mark.parametrize(("length", "window"), [(17, 1), (17, 5), (15, 5), (17, 17), (3, 11), (2, 2)])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "padding"])
def test_blocks_equal_the_masked_matrix(length, window, causal, masked):
    band = Band(window, causal, KEYS[..., :length] if masked else None)
    expected = scaled_dot_product_attention(*heads(length), np.broadcast_to(band.whole(length), (B, 1, length, length)))
    np.testing.assert_allclose(band.attend(scaled_dot_product_attention, *heads(length)), expected, atol=1e-5)


def test_no_scores_are_computed_outside_the_blocks():
    shapes = []

    def watched(query, key, value, mask, bias):
        shapes.append((query.shape, key.shape, mask.shape))
        return scaled_dot_product_attention(query, key, value, mask, bias)

    for causal in (False, True):
        Band(5, causal).attend(watched, *heads(17))
    assert shapes[0] == ((B * 4, H, 5, K), (B * 4, G, 15, K), (B * 4, 1, 5, 15))
    assert shapes[1] == ((B * 4, H, 5, K), (B * 4, G, 10, K), (B * 4, 1, 5, 10))


@pytest.mark.parametrize("causal", [False, True], ids=["both_sides", "causal"])
def test_gradients_are_those_of_the_masked_matrix(causal):
    layer = MultiHeadAttention(D, H)
    layer.build((B, 17, D))
    oracles.randomize(layer)
    mixture, band = normal(B, 17, D, seed=5), Band(5, causal, KEYS)
    found, expected = (
        gradient(lambda inputs, mask=mask: ops.sum(layer(inputs, attention_mask=mask) * mixture), normal(B, 17, D))
        for mask in (band, band.whole(17))
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def stack(kind: type, positions: str, window: int | None) -> keras.layers.Layer:
    options = {"num_key_value_heads": G, "dropout_rate": 0.0}
    layers = [EncoderLayer(D, H, 13, **options, name=f"layer_{number}") for number in range(2)]
    one = kind(layers, POSITIONS[positions](), attention_window=window)
    one.build((B, 17, D))
    oracles.randomize(one)
    return one


@pytest.mark.parametrize("kind", [Encoder, Decoder])
@pytest.mark.parametrize("positions", POSITIONS)
def test_stacks_with_all_kinds_of_positions_equal_the_masked_matrix(kind, positions):
    windowed, inputs = stack(kind, positions, 5), normal(B, 17, D)
    # Attention weights are whole matrices, so the output that comes with them is that of masked full attention.
    expected, scores = windowed.call_with_scores(inputs)
    np.testing.assert_allclose(windowed(inputs), expected, atol=1e-5)
    weights = ops.convert_to_numpy(scores[1] if kind is Encoder else scores[1][0])
    near = np.broadcast_to(window_mask(np.arange(17), np.arange(17), 5, kind is Decoder), weights.shape)
    assert (weights[near] > 0).all()
    assert (weights[~near] == 0).all()
    everywhere = stack(kind, positions, None)
    assert np.abs(ops.convert_to_numpy(everywhere(inputs)) - ops.convert_to_numpy(expected)).max() > 0.1


def test_padding_counts_and_other_masks_are_refused():
    encoder, inputs = stack(Encoder, "alibi", 5), normal(B, 17, D)
    expected, _ = encoder.call_with_scores(inputs, KEYS)
    np.testing.assert_allclose(encoder(inputs, attention_mask=KEYS), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"takes masks of keys, \(batch, 1, 1, keys\). Received: shape \(1, 1, 17, 17"):
        encoder(inputs, attention_mask=np.ones((1, 1, 17, 17), bool))


def test_what_does_not_fit_a_window_is_refused():
    layer, inputs = MultiHeadAttention(D, H), normal(B, 17, D)
    with pytest.raises(ValueError, match="A window is for self-attention.*Received: 17 queries and 16 keys"):
        layer(inputs, inputs[:, 1:], attention_mask=Band(5))
    with pytest.raises(ValueError, match=r"a bias broadcasts to.*\(..., 5, 15\). Received: shape \(1, 4, 17, 17\)"):
        layer(inputs, attention_mask=Band(5), score_bias=normal(1, H, 17, 17))
    with pytest.raises(ValueError, match="attention_window must be at least 1. Received: 0. Pass None"):
        Encoder([], attention_window=0)


def test_a_decoder_with_a_window_reads_no_later_position_and_none_outside():
    decoder, inputs = stack(Decoder, "rotary", 3), normal(1, 17, D)
    changed = inputs.copy()
    changed[:, 8] += normal(D, seed=7)
    difference = np.abs(ops.convert_to_numpy(decoder(changed)) - ops.convert_to_numpy(decoder(inputs))).max(axis=(0, 2))
    # Two layers carry it twice by two positions.
    assert np.flatnonzero(difference > 1e-6).tolist() == [8, 9, 10, 11, 12]


@pytest.mark.tensorflow_only
def test_a_graph_with_open_batch_and_length_that_xla_compiles():
    import tensorflow as tf

    encoder = stack(Encoder, "relative", 5)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, None, D])])
    def compiled(inputs):
        outputs = encoder(inputs)
        return outputs, tf.gradients(tf.reduce_sum(outputs**3), inputs)[0]

    inputs = normal(B, 17, D)
    outputs, gradients = compiled(inputs)
    np.testing.assert_allclose(outputs, encoder(inputs), atol=1e-5)
    expected = gradient(lambda inputs: ops.sum(encoder.call_with_scores(inputs)[0] ** 3), inputs)
    np.testing.assert_allclose(gradients, expected, atol=1e-3)
