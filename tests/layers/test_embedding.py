"""Shape letters: B batch, T length, D model size, E size of the embedding vectors, V vocabulary."""

import keras
import numpy as np
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import ProjectedTokenEmbedding, TokenEmbedding

B, T, D, E, V = 2, 5, 7, 3, 13


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


@pytest.mark.parametrize(
    "kind", [TokenEmbedding, lambda *sizes, **options: ProjectedTokenEmbedding(*sizes, 4, **options)]
)
def test_embeddings_that_are_not_scaled_are_half_as_large(kind):
    scaled, plain = kind(3, 4), kind(3, 4, scale_embeddings=False)  # sqrt(4) = 2
    ids = np.array([[2, 0]], "int32")
    expected = scaled(ids) / 2
    for layer in (plain, type(plain).from_config(plain.get_config())):
        layer(ids)
        layer.set_weights(scaled.get_weights())
        np.testing.assert_allclose(layer(ids), expected, rtol=1e-6)


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


class TestProjected:
    def test_contract(self, ids):
        kwargs = {"input_dim": V, "output_dim": E, "d_model": D, "reversible": False}
        assert_layer_contract(ProjectedTokenEmbedding, kwargs, {"inputs": ids}, num_parameters=V * E + E * D)

    def test_a_row_is_projected_and_scaled_by_the_square_root_of_d_model(self):
        layer = ProjectedTokenEmbedding(2, 1, d_model=4)  # sqrt(4) = 2
        layer.build()
        layer.embeddings.assign([[10.0], [1.0]])
        layer.input_projection.kernel.assign([[1.0, 2.0, 3.0, 4.0]])
        np.testing.assert_array_equal(layer(np.array([[0, 1]], "int32")), [[[20, 40, 60, 80], [2, 4, 6, 8]]])

    @pytest.mark.parametrize("tie_weights", [True, False])
    def test_in_reverse_the_tied_matrix_is_reached_through_a_projection(self, ids, tie_weights):
        layer = ProjectedTokenEmbedding(V, E, d_model=D, tie_weights=tie_weights)
        layer(ids)
        vectors = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
        weights = {weight.path.split("/", 1)[1]: ops.convert_to_numpy(weight) for weight in layer.weights}
        if tie_weights:
            assert [weight.shape for weight in layer.weights] == [(V, E), (E, D), (D, E)]
            expected = vectors @ weights["output_projection/kernel"] @ weights["embeddings"].T
        else:
            assert {name: weight.shape for name, weight in weights.items()} == {
                "embeddings": (V, E), "input_projection/kernel": (E, D), "reverse_embeddings": (D, V),
            }  # fmt: skip
            expected = vectors @ weights["reverse_embeddings"]
        logits = layer(vectors, reverse=True)
        assert logits.shape == layer.compute_output_shape((B, T, D), reverse=True)
        np.testing.assert_allclose(logits, expected, atol=1e-5)

    def test_embeddings_and_logits_begin_as_large_as_without_projections(self):
        layer = ProjectedTokenEmbedding(1009, 64, d_model=128)
        embedded = ops.convert_to_numpy(layer(np.arange(1009, dtype="int32")[None]))
        assert embedded.std() == pytest.approx(0.02 * 128**0.5, rel=0.05)
        vectors = np.random.default_rng(1).normal(size=(1, 31, 128)).astype("float32")
        assert ops.convert_to_numpy(layer(vectors, reverse=True)).std() == pytest.approx(0.02 * 64**0.5, rel=0.1)


@pytest.mark.parametrize(
    "kind", [TokenEmbedding, lambda *sizes, **rest: ProjectedTokenEmbedding(*sizes, D + 1, **rest)]
)
def test_a_frozen_matrix_stays_frozen_in_a_copy_and_is_the_only_frozen_weight(kind, ids):
    given, later = kind(V, D, tie_weights=False, train_embeddings=False), kind(V, D, tie_weights=False)
    later(ids)
    trained = len(later.trainable_weights)
    later.freeze_embeddings()
    for layer in (given, later, type(later).from_config(later.get_config())):
        layer(ids)
        assert [weight.name for weight in layer.non_trainable_weights] == ["embeddings"]
        assert len(layer.trainable_weights) == trained - 1


def test_frozen_embeddings_stay_frozen_when_a_model_is_frozen_and_trained_again(ids):
    given, free = TokenEmbedding(V, D, train_embeddings=False), TokenEmbedding(V, D)
    for layer, trained in ((given, 0), (free, 1)):
        model = keras.Sequential([layer])
        model(ids)
        assert len(model.trainable_weights) == trained
        model.trainable = False
        assert model.trainable_weights == []
        model.trainable = True
        assert len(model.trainable_weights) == trained


@pytest.mark.parametrize(
    ("mode", "levels", "tie_weights"),
    [
        ("int8", 127, False),
        ("int4", 7, True),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("int8", 127, True), ("int4", 7, False))),
    ],
)
def test_a_quantized_matrix_gives_the_same_numbers_up_to_its_levels(mode, levels, tie_weights):
    embedding = TokenEmbedding(input_dim=10, output_dim=16, tie_weights=tie_weights)
    ids = np.array([[3, 5, 9]])
    vectors = np.array(embedding(ids))
    logits = np.array(embedding(vectors, reverse=True))
    embedding.quantize(mode)
    half_a_level = np.abs(vectors).max() / levels
    np.testing.assert_allclose(embedding(ids), vectors, atol=half_a_level)
    found = np.array(embedding(vectors, reverse=True))
    np.testing.assert_allclose(found, logits, atol=np.abs(logits).max() * 3 / levels)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize` method")
@pytest.mark.parametrize("type_check", [True, False])
def test_a_class_that_extends_the_embedding_stays_as_it_is_where_a_model_is_quantized(type_check):
    """Keras would leave out the factor of 2."""

    class Doubled(TokenEmbedding):
        def call(self, inputs, reverse=False):
            return 2 * super().call(inputs, reverse)

    model = keras.Sequential([keras.Input((None,), dtype="int32"), Doubled(10, 16), keras.layers.Dense(4)])
    ids = np.array([[3, 5, 9]])
    expected = np.array(model(ids))
    with pytest.warns(UserWarning, match="Doubled extends TokenEmbedding and is not quantized"):
        model.quantize("int8", type_check=type_check)
    assert model.layers[-1].kernel.dtype == "int8"
    np.testing.assert_allclose(model(ids), expected, atol=0.05 * np.abs(expected).max())
