"""An export's products and attention against NumPy's and the layers'."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.export.cache import InPlaceCache, attend_one_row
from kformer.export.kernels import LARGEST, LOWEST, Bfloat16Matrix, Float32Matrix, Int8Matrix, ServedArithmetic
from kformer.export.variables import Weights
from kformer.layers import FeedForward, scaled_dot_product_attention

pytestmark = pytest.mark.tensorflow_only
K, M = 37, 19


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def in_a_graph(function, *inputs):
    return tf.function(function)(*map(tf.constant, inputs)).numpy()


@pytest.mark.parametrize(("kind", "tolerance"), [(Float32Matrix, 1e-5), (Bfloat16Matrix, 0.1)])
def test_float_products_and_rows(kind, tolerance):
    matrix = kind(normal(M, K), Weights())
    inputs = normal(5, K, seed=2)
    np.testing.assert_allclose(in_a_graph(matrix.multiply, inputs), inputs @ normal(M, K).T, atol=tolerance)
    taken = in_a_graph(matrix.take, np.array([[3, 0], [18, 3]], "int32"))
    np.testing.assert_allclose(taken, normal(M, K)[np.array([[3, 0], [18, 3]])], atol=tolerance)


def test_attention_of_one_row_is_scaled_dot_product_attention():
    query, key, value = normal(3, 2, 1, 5), normal(3, 2, 7, 5, seed=2), normal(3, 2, 7, 5, seed=3)
    mask = np.arange(7) < np.array([7, 1, 4])[:, None, None, None]
    bias = normal(1, 2, 1, 7, seed=4)
    found = in_a_graph(attend_one_row, query, key, value, mask, bias)
    np.testing.assert_allclose(found, scaled_dot_product_attention(query, key, value, mask, bias), atol=1e-6)
    np.testing.assert_allclose(
        in_a_graph(attend_one_row, query, key, value), scaled_dot_product_attention(query, key, value), atol=1e-6
    )


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
    found = in_a_graph(Int8Matrix(matrix, Weights()).multiply, inputs)
    assert found.shape == (5, M)
    # Both factors are off by at most half a step of K products.
    steps = np.abs(matrix).max(axis=1) / LARGEST * np.abs(inputs).sum(axis=-1)[..., None]
    steps = steps + np.abs(inputs).max(axis=-1, keepdims=True) / LARGEST * np.abs(matrix).sum(axis=1)
    assert np.all(np.abs(found - inputs @ matrix.T) <= steps)
    assert np.corrcoef(found.ravel(), (inputs @ matrix.T).ravel())[0, 1] > 0.999


def test_without_negative_inputs_the_steps_are_half_as_wide():
    matrix, inputs = normal(M, K), np.abs(normal(5, K, seed=2))
    product = Int8Matrix(matrix, Weights())
    errors = [
        np.abs(
            in_a_graph(lambda x, flag=flag: product.multiply(x, nonnegative=flag), inputs) - inputs @ matrix.T
        ).mean()
        for flag in (True, False)
    ]
    assert errors[0] < 0.9 * errors[1]  # The weights' rounding stays.


@pytest.mark.parametrize("nonnegative", [True, False])
def test_zeros_add_nothing(nonnegative):
    inputs = np.zeros((1, 1000), "float32")
    inputs[0, 0] = 1
    matrix = Int8Matrix(np.full((2, 1000), 0.5, "float32"), Weights())
    found = in_a_graph(lambda x: matrix.multiply(x, nonnegative=nonnegative), inputs)
    np.testing.assert_allclose(found, [[0.5, 0.5]], rtol=1e-5)


def test_numbers_that_are_whole_steps_are_exact():
    matrix = np.array([[127.0, -64.0, 1.0], [0.0, 127.0, -127.0]], "float32") / 127
    inputs = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], "float32")
    np.testing.assert_allclose(in_a_graph(Int8Matrix(matrix, Weights()).multiply, inputs), inputs @ matrix.T, atol=1e-5)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    matrix = Int8Matrix(normal(M, K), Weights())
    inputs = normal(4, K, seed=2) * np.array([[1], [1000], [1e-3], [1]], "float32")
    alone = [in_a_graph(matrix.multiply, inputs[row : row + 1])[0] for row in range(4)]
    np.testing.assert_array_equal(in_a_graph(matrix.multiply, inputs), alone)


def test_a_row_of_zeros_gives_zeros():
    found = in_a_graph(Int8Matrix(normal(M, K), Weights()).multiply, np.zeros((1, K), "float32"))
    np.testing.assert_allclose(found, np.zeros((1, M)), atol=1e-6)


def test_rows_come_back_within_half_a_step():
    matrix = normal(M, K)
    found = in_a_graph(Int8Matrix(matrix, Weights()).take, np.array([[3, 0], [18, 3]], "int32"))
    np.testing.assert_allclose(found, matrix[[[3, 0], [18, 3]]], atol=np.abs(matrix).max() / LARGEST / 2 + 1e-6)


def served_feed_forward(activation):
    """A feed-forward network under an export's arithmetic in int8, as a graph."""
    arithmetic = ServedArithmetic("int8", Weights())
    layer = FeedForward(K, M, activation, dtype=arithmetic)
    inputs = keras.Input((None, K))
    model = keras.Model(inputs, layer(inputs))
    frozen = arithmetic.freeze(model)

    @tf.function(input_signature=[tf.TensorSpec([None, None, K])])
    def served(rows):
        with frozen:
            return layer(rows)

    return layer, served


@pytest.mark.parametrize(("activation", "lowest_of_outer"), [("relu", 0.0), ("gelu", LOWEST), ("silu", LOWEST)])
def test_whether_a_products_inputs_can_be_negative_follows_from_the_activation(activation, lowest_of_outer):
    layer, served = served_feed_forward(activation)
    nodes = {node.name: node for node in served.get_concrete_function().graph.as_graph_def().node}
    products = [node for node in nodes.values() if node.op == "_QuantizedMatMul"]
    lowest = [tf.make_ndarray(nodes[node.input[3]].attr["value"].tensor).item() for node in products]
    assert lowest == pytest.approx([LOWEST, lowest_of_outer])
    inputs = normal(2, 5, K, seed=3)
    plain = FeedForward(K, M, activation)
    plain.build((None, None, K))
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(served(tf.constant(inputs)), plain(inputs), atol=0.02 * np.abs(plain(inputs)).max())
