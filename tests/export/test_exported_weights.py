"""Weights of an export: stored once, read once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.export.variables import FrozenScope, Weights

pytestmark = pytest.mark.tensorflow_only


def repeated(step, steps=3):
    """A function that applies `step` three times in a loop."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def repeat(inputs):
        return tf.while_loop(lambda number, _: number < steps, lambda number, x: (number + 1, step(x)), (0, inputs))[1]

    return repeat.get_concrete_function()


def test_what_is_used_in_a_loop_is_stored_and_read_once_and_outside():
    weights, matrix = Weights(), np.eye(4, dtype="float32")[::-1].copy()
    function = repeated(lambda x: tf.matmul(x, weights.read(matrix)) + 0 * weights.read(matrix)[0])
    assert len(weights.stored) == 1
    graph = function.graph.as_graph_def()
    assert [node.op for node in graph.node].count("ReadVariableOp") == 1
    assert not [node for part in graph.library.function for node in part.node_def if node.op == "ReadVariableOp"]
    np.testing.assert_array_equal(function(tf.constant([[1.0, 2, 3, 4]])), [[4, 3, 2, 1]])


def test_a_function_that_stores_weights_is_traced_once():
    weights, matrix, traced = Weights(), np.eye(4, dtype="float32"), []

    def step(x):
        traced.append(x)
        return tf.matmul(x, weights.read(matrix))

    repeated(step)
    assert len(traced) == 1


def test_frozen_variables_keep_their_values_when_the_variables_change():
    layer = keras.layers.Dense(4)
    layer.build((None, 4))
    scope = FrozenScope(layer.variables, Weights())

    def step(x):
        with scope:
            return layer(x)

    inputs = tf.eye(4)
    expected = layer(layer(layer(inputs)))
    function = repeated(step)
    layer.kernel.assign(layer.kernel * 2)
    np.testing.assert_allclose(function(inputs), expected, rtol=1e-6)
