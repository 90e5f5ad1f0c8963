"""Step by step with a cache equals all at once.

Shape letters: B sentences, R rows a sentence, T positions, S source length, H heads, K size of a head, D model size.
"""

import numpy as np
import oracles
import pytest
from keras import ops

from kformer.layers import Cache, MultiHeadAttention, causal_mask, head_order
from kformer.layers.cache import attend_step, self_attention_step

B, T, S, H, K = 2, 5, 7, 3, 11
D = H * K


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture
def layer() -> MultiHeadAttention:
    layer = MultiHeadAttention(D, H)
    layer.build((B, T, D))
    oracles.randomize(layer)
    return layer


def empty_cache(room: int, rows: int = 1) -> Cache:
    return Cache.empty(room, K, "float32", head_order(B, H, rows))


def filled(layer: MultiHeadAttention, inputs: np.ndarray, cache: Cache) -> Cache:
    """The cache with all positions of `inputs` (N, T, D)."""
    for position in range(inputs.shape[1]):
        _, cache = self_attention_step(layer, inputs[:, position], cache, cache.place(position))
    return cache


def test_steps_equal_the_causal_call_at_every_position(layer):
    inputs = normal(B, T, D)
    expected = layer(inputs, attention_mask=causal_mask(T))
    cache = empty_cache(T)
    for position in range(T):
        row = inputs[:, position]
        mask = causal_mask(T)[:, :, position : position + 1]
        output, cache = self_attention_step(layer, row, cache, cache.place(position), mask)
        np.testing.assert_allclose(output, expected[:, position], atol=1e-5)


def test_a_source_is_attended_to_as_in_cross_attention(layer):
    rows = 3
    query, source = normal(B * rows, T, D), normal(B, S, D, seed=1)
    memory = Cache.of_source(layer.keys_values(source), head_order(B, H, rows))
    expected = layer(query, key=np.repeat(source, rows, axis=0))
    for position in range(T):
        np.testing.assert_allclose(attend_step(layer, query[:, position], memory), expected[:, position], atol=1e-5)


def test_rows_of_a_sentence_share_a_cache_position_by_position(layer):
    rows = 3
    inputs = normal(B * rows, T, D)
    cache = filled(layer, inputs, empty_cache(T, rows))
    keys = ops.convert_to_numpy(cache.key).reshape(B, H, T, rows, K).transpose(0, 3, 1, 2, 4)  # (B, R, H, T, K)
    np.testing.assert_allclose(keys.reshape(B * rows, H, T, K), layer.keys_values(inputs).key, atol=1e-5)


def test_a_write_leaves_the_cache_that_it_was_given_alone(layer):
    cache = empty_cache(T)
    _, written = self_attention_step(layer, normal(B, D), cache, cache.place(2))
    assert not ops.convert_to_numpy(cache.key).any()
    at_positions = ops.convert_to_numpy(written.key).reshape(B, H, T, K).any(axis=(0, 1, 3))
    np.testing.assert_array_equal(at_positions, [False, False, True, False, False])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_with_more_room_holds_what_was_written_before(layer, rows):
    inputs = normal(B * rows, T, D)
    order = head_order(B, H, rows)
    small = filled(layer, inputs[:, :3], empty_cache(3, rows))
    grown = Cache.of_history(small.keep(np.arange(B), T), T * rows, order)
    assert (small.room, grown.room) == (3, T)
    for position in (3, 4):
        _, grown = self_attention_step(layer, inputs[:, position], grown, grown.place(position))
    expected = filled(layer, inputs, empty_cache(T, rows))
    np.testing.assert_array_equal(grown.key, expected.key)
    np.testing.assert_array_equal(grown.value, expected.value)


@pytest.mark.parametrize("rows", [1, 3])
def test_sentences_that_stay_keep_their_keys_and_values(layer, rows):
    inputs = normal(3 * rows, T, D)
    everyone = filled(layer, inputs, Cache.empty(T, K, "float32", head_order(3, H, rows)))
    staying = np.array([0, 2])
    alone = filled(layer, inputs.reshape(3, rows, T, D)[staying].reshape(-1, T, D), empty_cache(T, rows))
    kept = everyone.keep(staying, T)
    np.testing.assert_allclose(kept.key, alone.key, atol=1e-6)
    np.testing.assert_allclose(kept.value, alone.value, atol=1e-6)


def test_a_bias_belongs_to_positions_whichever_row_has_written_them(layer):
    rows = 2
    inputs = normal(B * rows, T, D)
    cache = filled(layer, inputs, empty_cache(T, rows))
    query = normal(B * rows, D, seed=3)
    # What is as good as forbidden by the bias is not seen: the result is that of a mask.
    bias = np.array([0, -1e9, 0, -1e9, 0], "float32").reshape(1, 1, 1, T)
    mask = np.repeat(bias == 0, rows, axis=-1)
    np.testing.assert_allclose(
        attend_step(layer, query, cache, score_bias=bias), attend_step(layer, query, cache, mask), atol=1e-5
    )


def test_a_rotation_is_applied_when_a_position_is_written_and_when_it_is_asked(layer):
    inputs = normal(B, T, D)

    def turned(position):
        return lambda heads: heads * (1.0 + position)  # no rotation, but it tells positions apart as one does

    scales = np.arange(1, T + 1, dtype="float32")[:, None]  # (T, 1)
    expected = layer(inputs, attention_mask=causal_mask(T), rotation=lambda heads: heads * scales)
    cache = empty_cache(T)
    for position in range(T):
        row = inputs[:, position]
        mask = causal_mask(T)[:, :, position : position + 1]
        place = cache.place(position)
        output, cache = self_attention_step(layer, row, cache, place, mask, rotation=turned(position))
        np.testing.assert_allclose(output, expected[:, position], atol=1e-4)
