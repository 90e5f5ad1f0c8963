"""An export's products and attention against NumPy's and the layers'."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.export.in_place_cache import InPlaceCache
from kformer.export.quantization import (
    LARGEST,
    LARGEST_WEIGHT,
    ZERO_STEP,
    Bfloat16Matrix,
    Float32Matrix,
    Int8Matrix,
    ServedArithmetic,
)
from kformer.export.variables import Weights
from kformer.layers import MultiHeadAttention, ProjectedTokenEmbedding, head_order, scaled_dot_product_attention
from kformer.layers.normalization import LayerNormalization
from kformer.layers.tensors import KeysValues

pytestmark = pytest.mark.tensorflow_only
K, M = 37, 19
V, E, D = 19, 5, 12


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def in_a_graph(function, *inputs):
    return tf.function(function)(*map(tf.constant, inputs)).numpy()


def product(matrix, inputs, bias=None, activation=keras.activations.linear):
    return in_a_graph(lambda rows: matrix.multiply(rows, bias, activation), inputs)


def int8_product(matrix, inputs, input_range):
    return product(Int8Matrix(matrix, Weights(), input_range), inputs)


@pytest.mark.parametrize(("kind", "tolerance"), [(Float32Matrix, 1e-5), (Bfloat16Matrix, 0.1)])
def test_float_products_and_rows(kind, tolerance):
    matrix = kind(normal(M, K), Weights())
    inputs = normal(5, K, seed=2)
    np.testing.assert_allclose(product(matrix, inputs), inputs @ normal(M, K).T, atol=tolerance)
    taken = in_a_graph(matrix.take, np.array([[3, 0], [18, 3]], "int32"))
    np.testing.assert_allclose(taken, normal(M, K)[np.array([[3, 0], [18, 3]])], atol=tolerance)


@pytest.mark.parametrize("kind", [Float32Matrix, Bfloat16Matrix, Int8Matrix])
@pytest.mark.parametrize("activation", ["linear", "relu", "gelu"])
def test_bias_and_activation_are_those_of_a_dense_layer(kind, activation):
    inputs, bias = normal(5, K, seed=2), 3 * normal(M, seed=3)
    activate = keras.activations.get(activation)
    matrix = kind(normal(M, K), Weights(), (-np.abs(inputs).max(), np.abs(inputs).max()))
    expected = activate(inputs @ normal(M, K).T + bias)
    found = product(matrix, inputs, bias, activate)
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())
    assert np.abs(found - activate(inputs @ normal(M, K).T)).max() > 1


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("of_source", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_is_scaled_dot_product_attention(rows, of_source, groups):
    query, key, value = normal(3, 4, rows, 5), normal(3, groups, 7, 5, seed=2), normal(3, groups, 7, 5, seed=3)
    mask = np.arange(7) < np.array([7, 1, 4])[:, None, None, None]
    bias = normal(1, 4, 1, 7, seed=4)

    def attend(query, key, value, mask=None, bias=None):
        mask = None if mask is None else InPlaceCache.mask_form(mask)
        if not of_source:
            return InPlaceCache.attention(query, key, value, mask, bias)
        cache = InPlaceCache.of_source(
            InPlaceCache.source_layout(KeysValues(key, value)), head_order(3, 4, rows, groups)
        )
        return cache.attention(query, cache.key, cache.value, mask, bias)

    found = in_a_graph(attend, query, key, value, mask, bias)
    np.testing.assert_allclose(found, scaled_dot_product_attention(query, key, value, mask, bias), atol=1e-6)
    np.testing.assert_allclose(
        in_a_graph(attend, query, key, value), scaled_dot_product_attention(query, key, value), atol=1e-6
    )


@pytest.mark.parametrize("kind", [Float32Matrix, Bfloat16Matrix, Int8Matrix])
@pytest.mark.parametrize("activation", ["linear", "relu", "gelu"])
def test_two_products_in_turn_are_those_of_two_dense_layers(kind, activation):
    inputs, biases = normal(5, K, seed=2), (3 * normal(M, seed=3), normal(K, seed=4))
    activate = keras.activations.get(activation)
    inner = np.asarray(activate(inputs @ normal(M, K).T + biases[0]))
    expected = inner @ normal(K, M, seed=5).T + biases[1]
    first = kind(normal(M, K), Weights(), (-np.abs(inputs).max(), np.abs(inputs).max()))
    second = kind(normal(K, M, seed=5), Weights(), (inner.min(), inner.max()))
    found = in_a_graph(lambda rows: first.multiply_twice(rows, biases[0], activate, second, biases[1]), inputs)
    tolerance = 0.022 if kind is Int8Matrix else 0.02  # its weights have 7 bits
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("input_range", [(-4.0, 1.0), (-1.0, 4.0)])
def test_nothing_within_the_range_is_cut_off_whichever_of_its_ends_is_farther_from_zero(input_range):
    inputs = np.array([[input_range[0]], [0.0], [input_range[1]]], "float32")
    np.testing.assert_allclose(int8_product(np.ones((1, 1), "float32"), inputs, input_range), inputs, atol=0.03)


def test_what_the_second_of_two_products_does_not_know_is_cut_off():
    """Between them lie bytes, which end at the largest number that the second one's samples had."""
    one = np.ones((1, 1), "float32")
    first, second = Int8Matrix(one, Weights(), (0.0, 10.0)), Int8Matrix(one, Weights(), (0.0, 4.0))
    rows = np.array([[1.0], [4.0], [9.0]], "float32")
    found = in_a_graph(lambda rows: first.multiply_twice(rows, None, keras.activations.relu, second, None), rows)
    np.testing.assert_allclose(found, [[1.0], [4.0], [4.0]], atol=0.03)


def test_caches_are_written_in_place_and_apart_from_each_other():
    scatter = InPlaceCache.scatter

    @tf.function
    def write(steps):
        def body(step, first, second):
            row = tf.fill([1, 2], tf.cast(step + 1, tf.float32))
            return step + 1, scatter(first, step[None], row), scatter(second, 2 - step[None], row)

        caches = [InPlaceCache.zeros((tf.constant(3), 2), "float32") for _ in range(2)]
        return tf.while_loop(lambda step, *_: step < steps, body, (0, *caches))[1:]

    for _ in range(2):  # The second call must not see what the first one wrote.
        first, second = write(tf.constant(2))
        np.testing.assert_array_equal(first, [[1, 1], [2, 2], [0, 0]])
        np.testing.assert_array_equal(second, [[0, 0], [2, 2], [1, 1]])


def test_a_product_is_near_the_exact_one():
    matrix, inputs = normal(M, K), normal(5, K, seed=2)
    largest = np.abs(inputs).max()
    found = int8_product(matrix, inputs, (-largest, largest))
    assert found.shape == (5, M)
    # Both factors are off by at most half a step of K products.
    steps = np.abs(matrix).max(axis=1) / LARGEST_WEIGHT * np.abs(inputs).sum(axis=-1)[..., None]
    steps = steps + largest / LARGEST * np.abs(matrix).sum(axis=1)
    assert np.all(np.abs(found - inputs @ matrix.T) <= steps)
    assert np.corrcoef(found.ravel(), (inputs @ matrix.T).ravel())[0, 1] > 0.999


def test_without_negative_inputs_the_steps_are_half_as_wide():
    matrix, inputs = normal(M, K), np.abs(normal(5, K, seed=2))
    largest = inputs.max()
    errors = [
        np.abs(int8_product(matrix, inputs, (lowest, largest)) - inputs @ matrix.T).mean() for lowest in (0, -largest)
    ]
    assert errors[0] < 0.9 * errors[1]  # The weights' rounding stays.


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_zeros_add_nothing(lowest):
    inputs = np.zeros((1, 1000), "float32")
    inputs[0, 0] = 1
    found = int8_product(np.full((2, 1000), 0.5, "float32"), inputs, (lowest, 1.0))
    # A thousand errors of half a step would be 2. Sums of millions of steps round a little in float32.
    np.testing.assert_allclose(found, [[0.5, 0.5]], rtol=1e-4)


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_the_largest_products_add_up(lowest):
    """Without VNNI, a processor adds two neighbours in 16 bits: bytes of 8 bits on both sides would be too large."""
    inputs = np.full((3, K), 1, "float32")
    found = int8_product(np.array([[1.0], [-1.0]], "float32") * inputs[:1], inputs, (lowest, 1.0))
    np.testing.assert_allclose(found, [[K, -K]] * 3, rtol=1e-3)


def test_numbers_that_are_whole_steps_are_exact():
    matrix = np.array([[63.0, -32.0, 1.0], [0.0, 63.0, -63.0]], "float32") / LARGEST_WEIGHT
    inputs = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], "float32")
    np.testing.assert_allclose(int8_product(matrix, inputs, (-1.0, 1.0)), inputs @ matrix.T, atol=1e-5)


def test_numbers_outside_the_range_become_its_ends():
    matrix = np.eye(3, dtype="float32")
    found = int8_product(matrix, np.array([[7.0, -7.0, 0.5]], "float32"), (-1.0, 1.0))
    np.testing.assert_allclose(found, [[1.0, -ZERO_STEP / LARGEST, 64 / LARGEST]], atol=1e-5)
    found = int8_product(matrix, np.array([[7.0, -7.0, 0.0]], "float32"), (0.0, 1.0))
    np.testing.assert_allclose(found, [[1.0, 0.0, 0.0]], atol=1e-5)


def test_a_range_of_zeros_gives_zeros():
    np.testing.assert_allclose(int8_product(normal(M, K), np.zeros((1, K), "float32"), (0.0, 0.0)), 0.0, atol=1e-6)


def test_a_product_of_an_unknown_range_is_refused():
    with pytest.raises(ValueError, match=f"The range is missing for a product of {K} inputs and {M} outputs. Pass"):
        int8_product(normal(M, K), normal(5, K), None)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    matrix = Int8Matrix(normal(M, K), Weights(), (-3.0, 3.0))
    inputs = normal(4, K, seed=2) * np.array([[1], [1000], [1e-3], [1]], "float32")
    alone = [product(matrix, inputs[row : row + 1])[0] for row in range(4)]
    np.testing.assert_array_equal(product(matrix, inputs), alone)


def test_rows_come_back_within_half_a_step():
    matrix = normal(M, K)
    found = in_a_graph(Int8Matrix(matrix, Weights()).take, np.array([[3, 0], [18, 3]], "int32"))
    np.testing.assert_allclose(found, matrix[[[3, 0], [18, 3]]], atol=np.abs(matrix).max() / LARGEST_WEIGHT / 2 + 1e-6)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_layer_norm_is_that_of_the_layer(precision):
    """The inputs are small, so that a wrong epsilon shows."""
    arithmetic = ServedArithmetic(precision, Weights())
    layer = LayerNormalization(epsilon=1e-6, dtype=arithmetic)
    inputs = keras.Input((None, K))
    model = keras.Model(inputs, layer(inputs))
    layer.set_weights([normal(K, seed=4), normal(K, seed=5)])
    frozen = arithmetic.freeze(model)
    rows = 0.01 * normal(2, 5, K, seed=3)
    plain = LayerNormalization(epsilon=1e-6)
    plain.build(rows.shape)
    plain.set_weights(layer.get_weights())

    def served(rows):
        with frozen:
            return layer(rows)

    np.testing.assert_allclose(in_a_graph(served, rows), plain(rows), atol=1e-4)


def test_int8_attention_with_fewer_heads_of_keys_is_near_that_of_the_layer():
    """Queries, keys and values are one product, whose parts have different widths."""
    sizes, inputs = {"d_model": 24, "num_heads": 4, "num_key_value_heads": 2}, normal(2, 5, 24, seed=2)
    plain = MultiHeadAttention(**sizes)
    plain.build(inputs.shape)
    weights = [0.3 * normal(*weight.shape, seed=seed) for seed, weight in enumerate(plain.get_weights())]
    plain.set_weights(weights)
    expected = plain(inputs)
    # The numbers of the variables: kernels and biases of queries, keys, values and outputs in turn.
    arithmetic = ServedArithmetic("int8", Weights(), {(0, 2, 4): (-4.0, 4.0), (6,): (-4.0, 4.0)})
    layer = MultiHeadAttention(**sizes, dtype=arithmetic)
    symbols = keras.Input((None, 24))
    model = keras.Model(symbols, layer(symbols))
    model.set_weights(weights)
    frozen = arithmetic.freeze(model)

    def served(rows):
        with frozen:
            return layer(rows)

    found = in_a_graph(served, inputs)
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-5), ("bfloat16", 0.02), ("int8", 0.05)])
def test_projected_embeddings_are_those_of_the_layer(precision, error):
    """There and back: rows, two projections, and the product with the same matrix."""
    ids, plain = np.array([[3, 0, 18], [7, 7, 1]], "int32"), ProjectedTokenEmbedding(V, E, d_model=D)
    plain(ids)
    plain.set_weights([normal(*weight.shape, seed=number) for number, weight in enumerate(plain.weights)])
    vectors, logits = plain(ids), plain(plain(ids), reverse=True)
    seen = [vectors, plain.embed(ids), plain.output_projection(vectors)]
    ranges = {(0,): seen[2], (1,): tf.gather(plain.embeddings, ids), (2,): seen[0]}
    ranges = {key: (float(tf.reduce_min(inputs)), float(tf.reduce_max(inputs))) for key, inputs in ranges.items()}
    arithmetic = ServedArithmetic(precision, Weights(), ranges)
    layer, inputs = ProjectedTokenEmbedding(V, E, d_model=D, dtype=arithmetic), keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, layer(layer(inputs), reverse=True))
    layer.set_weights(plain.get_weights())
    frozen = arithmetic.freeze(model)

    def served(ids):
        with frozen:
            return layer(layer(ids), reverse=True)

    difference = in_a_graph(served, ids) - logits
    assert np.abs(difference).mean() < error * np.std(logits)
