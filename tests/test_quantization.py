"""8-bit products against NumPy's."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.quantization import LARGEST, QuantizedMatrix

pytestmark = pytest.mark.tensorflow_only
K, M = 37, 19


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def in_a_graph(function, *inputs):
    return tf.function(function)(*map(tf.constant, inputs)).numpy()


def test_a_product_is_near_the_exact_one():
    matrix, inputs = normal(M, K), normal(5, 3, K, seed=2)
    found = in_a_graph(QuantizedMatrix(matrix).multiply, inputs)
    assert found.shape == (5, 3, M)
    # Both factors are off by at most half a step of K products.
    steps = np.abs(matrix).max(axis=1) / LARGEST * np.abs(inputs).sum(axis=-1)[..., None]
    steps = steps + np.abs(inputs).max(axis=-1, keepdims=True) / LARGEST * np.abs(matrix).sum(axis=1)
    assert np.all(np.abs(found - inputs @ matrix.T) <= steps)
    assert np.corrcoef(found.ravel(), (inputs @ matrix.T).ravel())[0, 1] > 0.999


def test_numbers_that_are_whole_steps_are_exact():
    matrix = np.array([[127.0, -64.0, 1.0], [0.0, 127.0, -127.0]], "float32") / 127
    inputs = np.array([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], "float32")
    np.testing.assert_allclose(in_a_graph(QuantizedMatrix(matrix).multiply, inputs), inputs @ matrix.T, atol=5e-3)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    matrix = QuantizedMatrix(normal(M, K))
    inputs = normal(4, K, seed=2) * np.array([[1], [1000], [1e-3], [1]], "float32")
    alone = [in_a_graph(matrix.multiply, inputs[row : row + 1])[0] for row in range(4)]
    np.testing.assert_array_equal(in_a_graph(matrix.multiply, inputs), alone)


def test_a_row_of_zeros_gives_zeros():
    found = in_a_graph(QuantizedMatrix(normal(M, K)).multiply, np.zeros((1, K), "float32"))
    np.testing.assert_allclose(found, np.zeros((1, M)), atol=1e-6)


def test_rows_come_back_within_half_a_step():
    matrix = normal(M, K)
    found = in_a_graph(QuantizedMatrix(matrix).rows, np.array([[3, 0], [18, 3]], "int32"))
    np.testing.assert_allclose(found, matrix[[[3, 0], [18, 3]]], atol=np.abs(matrix).max() / LARGEST / 2 + 1e-6)
