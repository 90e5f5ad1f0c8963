"""Shape letters: B batch, T length, D model size, V vocabulary."""

import keras
import numpy as np
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import TokenEmbedding

B, T, D, V = 2, 5, 7, 13


@pytest.fixture
def ids() -> np.ndarray:
    return np.random.default_rng(0).integers(0, V, (B, T)).astype("int32")


def test_contract(ids):
    kwargs = {"input_dim": V, "output_dim": D, "tie_weights": True}
    assert_layer_contract(TokenEmbedding, kwargs, {"inputs": ids}, num_parameters=V * D)


def test_embeddings_are_scaled_by_the_square_root_of_d_model():
    layer = TokenEmbedding(3, 4)  # sqrt(4) = 2
    layer.build()
    layer.embeddings.assign([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
    output = layer(np.array([[2, 0]], "int32"))
    np.testing.assert_array_equal(output, [[[18, 20, 22, 24], [2, 4, 6, 8]]])


def test_reverse_is_the_product_with_the_transposed_matrix(ids):
    layer = TokenEmbedding(V, D)
    layer(ids)
    vectors = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    logits = layer(vectors, reverse=True)
    assert logits.shape == (B, T, V)
    np.testing.assert_allclose(logits, vectors @ ops.convert_to_numpy(layer.embeddings).T, atol=1e-5)


def test_tied_is_one_matrix_and_untied_two(ids):
    tied, untied = TokenEmbedding(V, D), TokenEmbedding(V, D, tie_weights=False)
    tied(ids)
    untied(ids)
    assert [weight.shape for weight in tied.weights] == [(V, D)]
    assert [weight.shape for weight in untied.weights] == [(V, D), (D, V)]
    vectors = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    expected = vectors @ ops.convert_to_numpy(untied.reverse_embeddings)
    np.testing.assert_allclose(untied(vectors, reverse=True), expected, atol=1e-5)


def test_the_matrix_starts_with_a_deviation_of_002_and_embeddings_are_scaled():
    layer = TokenEmbedding(1009, 128)
    embedded = ops.convert_to_numpy(layer(np.arange(1009, dtype="int32")[None]))
    assert embedded.std() == pytest.approx(0.02 * 128**0.5, rel=0.02)
    vectors = np.random.default_rng(1).normal(size=(1, 31, 128)).astype("float32")
    assert ops.convert_to_numpy(layer(vectors, reverse=True)).std() == pytest.approx(0.02 * 128**0.5, rel=0.05)


def test_another_initializer_is_kept():
    layer = TokenEmbedding(V, D, embeddings_initializer="ones")
    again = TokenEmbedding.from_config(layer.get_config())
    for each in (layer, again):
        each.build()
        np.testing.assert_array_equal(each.embeddings, np.ones((V, D)))
    assert isinstance(TokenEmbedding(V, D).embeddings_initializer, keras.initializers.RandomNormal)
