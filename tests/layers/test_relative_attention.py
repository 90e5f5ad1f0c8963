"""Vectors for distances that an attention adds to its keys and values (Shaw et al. 2018), against loops in NumPy."""

import math

import numpy as np
import pytest
from keras import ops

from kformer.layers import (
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    RelativeDistances,
    RelativePositions,
    RelativeVectors,
    causal_mask,
)
from kformer.layers.relative_attention import Distances, products_at, sums_at

B, H, T, S, K, MOST = 2, 3, 5, 7, 4, 2
D = H * K


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numbers_of(queries, keys):
    """clip(j - i, -k, k) + k."""
    return np.clip(np.arange(keys) - np.arange(queries)[:, None], -MOST, MOST) + MOST


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attended(query, key, value, keys, values, mask):
    """Equations 3 to 5, one query and key after the other; heads are (B, H, T, K)."""
    numbers, outputs = numbers_of(query.shape[2], key.shape[2]), np.zeros_like(query)
    for b, h, i in np.ndindex(*query.shape[:3]):
        scores = [query[b, h, i] @ (key[b, h, j] + keys[numbers[i, j]]) / math.sqrt(K) for j in range(key.shape[2])]
        weights = softmax(np.where(mask[i], scores, -1e9))
        outputs[b, h, i] = sum(weights[j] * (value[b, h, j] + values[numbers[i, j]]) for j in range(key.shape[2]))
    return outputs


def built(**options):
    attention = MultiHeadAttention(D, H, max_relative_distance=MOST, **options)
    attention.build((B, T, D))
    for seed, weight in enumerate(attention.weights):
        weight.assign(normal(*weight.shape, seed=seed))
    return attention


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_an_attention_adds_its_vectors_to_keys_and_values(causal):
    attention, inputs = built(), normal(B, T, D, seed=20)
    mask = np.tril(np.ones((T, T), bool)) if causal else np.ones((T, T), bool)
    distances = RelativeDistances(MOST).score_bias(np.arange(T, dtype="int32"), np.arange(T, dtype="int32"))
    found = attention(inputs, attention_mask=causal_mask(T) if causal else None, score_bias=distances)

    def projected(name):
        layer = getattr(attention, f"{name}_projection")
        rows = inputs @ np.asarray(layer.kernel) + np.asarray(layer.bias)
        return rows.reshape(B, T, H, K).swapaxes(1, 2)

    vectors = (np.asarray(attention.relative.keys), np.asarray(attention.relative.values))
    heads = attended(*map(projected, ("query", "key", "value")), *vectors, mask)
    output = attention.output_projection
    expected = heads.swapaxes(1, 2).reshape(B, T, D) @ np.asarray(output.kernel) + np.asarray(output.bias)
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=1e-4)


def test_products_and_sums_are_those_of_each_distance():
    query, weights, vectors = normal(B, H, T, K), normal(B, H, T, S, seed=1), normal(2 * MOST + 1, K, seed=2)
    chosen = vectors[numbers_of(T, S)]  # (T, S, K)
    products = ops.convert_to_numpy(products_at(query, vectors, numbers_of(T, S)))
    np.testing.assert_allclose(products, np.einsum("bhtk,tsk->bhts", query, chosen) / math.sqrt(K), atol=1e-5)
    sums = ops.convert_to_numpy(sums_at(weights, vectors, numbers_of(T, S)))
    np.testing.assert_allclose(sums, np.einsum("bhts,tsk->bhtk", weights, chosen), atol=1e-5)


def test_each_sentence_may_have_distances_of_its_own():
    query, weights, vectors = normal(B, H, T, K), normal(B, H, T, S, seed=1), normal(2 * MOST + 1, K, seed=2)
    numbers = np.stack([numbers_of(T, S), numbers_of(T, S)[::-1]])
    for sentence in range(B):
        alone = slice(sentence, sentence + 1)
        for whole, one in (
            (products_at(query, vectors, numbers), products_at(query[alone], vectors, numbers[sentence])),
            (sums_at(weights, vectors, numbers), sums_at(weights[alone], vectors, numbers[sentence])),
        ):
            np.testing.assert_allclose(ops.convert_to_numpy(whole)[alone], ops.convert_to_numpy(one), atol=1e-5)


def test_all_hypotheses_at_one_position_have_its_distances():
    query, weights, vectors = normal(B, H, 6, K), normal(B, H, 6, S, seed=1), normal(2 * MOST + 1, K, seed=2)
    here = numbers_of(T, S)[3:4]
    repeated = np.repeat(here, 6, axis=0)
    for function, rows in ((products_at, query), (sums_at, weights)):
        found, expected = (ops.convert_to_numpy(function(rows, vectors, numbers)) for numbers in (here, repeated))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("window", [1, 3, 9])
def test_within_a_window_it_is_the_whole_matrix_with_a_mask(window):
    layer = EncoderLayer(D, H, 16, max_relative_distance=MOST)
    near = Encoder([layer], RelativeDistances(MOST), attention_window=window)
    near.build((B, 8, D))
    inputs = normal(B, 8, D)
    whole = near.call_with_scores(inputs)[0]  # computed with the whole matrix
    np.testing.assert_allclose(ops.convert_to_numpy(near(inputs)), ops.convert_to_numpy(whole), atol=1e-5)


def test_dropout_of_weights_also_drops_their_vectors():
    """With the values 0 and vectors 1, the output is the sum of the weights that are left, each divided by 1 - p."""
    attention = built(dropout_rate=0.5, use_bias=False)
    attention.value_projection.kernel.assign(np.zeros((D, D)))
    attention.output_projection.kernel.assign(np.eye(D))
    attention.relative.values.assign(np.ones((2 * MOST + 1, K)))
    inputs, distances = normal(B, 64, D), Distances(numbers_of(64, 64))
    whole = ops.convert_to_numpy(attention(inputs, score_bias=distances))
    np.testing.assert_allclose(whole, 1.0, atol=1e-5)
    dropped = ops.convert_to_numpy(attention(inputs, score_bias=distances, training=True))
    assert dropped.std() > 0.05
    assert dropped.mean() == pytest.approx(1.0, abs=0.1)


def test_layers_without_vectors_are_refused():
    with pytest.raises(ValueError, match="RelativeDistances are for layers with vectors of their own"):
        MultiHeadAttention(D, H)(normal(B, T, D), score_bias=Distances(numbers_of(T, T)))


def test_layer_and_positions_are_made_again_from_their_configuration():
    layer = EncoderLayer(D, H, 16, max_relative_distance=MOST)
    again = EncoderLayer.from_config(layer.get_config())
    assert isinstance(again.self_attention.relative, RelativeVectors)
    assert again.self_attention.relative.max_distance == MOST
    assert RelativeDistances.from_config(RelativeDistances(9).get_config()).max_distance == 9


def test_relative_positions_add_the_vector_of_the_distance_to_the_key():
    # Shaw et al. (2018), equation 2: q_i (k_j + a_ij) / sqrt(K), less the part without a_ij.
    positions, query = RelativePositions(K, max_distance=2), normal(B, H, T, K)
    positions.build((B, S, 12))
    positions.vectors.assign(vectors := normal(5, K, seed=1))
    bias = ops.convert_to_numpy(positions.score_bias(positions.table(T), positions.table(S))(query))
    expected = np.zeros((B, H, T, S))
    for i in range(T):
        for j in range(S):
            expected[:, :, i, j] = query[:, :, i] @ vectors[min(max(j - i, -2), 2) + 2] / math.sqrt(K)
    np.testing.assert_allclose(bias, expected, atol=1e-5)


def test_hypotheses_at_one_position_have_the_same_distances():
    positions, query = RelativePositions(K, max_distance=2), normal(B, H, 3, K)
    positions.build((B, S, 12))
    positions.vectors.assign(normal(5, K, seed=1))
    here, keys = positions.table(1, offset=3), positions.table(S)
    together = ops.convert_to_numpy(positions.score_bias(here, keys)(query))
    assert together.shape == (B, H, 3, S)
    for row in range(3):
        alone = ops.convert_to_numpy(positions.score_bias(here, keys)(query[:, :, row : row + 1]))
        np.testing.assert_allclose(together[:, :, row : row + 1], alone, atol=1e-6)
