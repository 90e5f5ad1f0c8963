"""Where constants stand in a graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.constants import Constants, FrozenScope
from kformer.products import Float32Matrix

pytestmark = pytest.mark.tensorflow_only


def nodes_in_loops(function, kind):
    bodies = [body for body in function.graph.as_graph_def().library.function if "body" in body.signature.name]
    return [node for body in bodies for node in body.node_def if node.op == kind]


def repeated(step, steps=3):
    """A function that applies `step` three times in a loop."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def repeat(inputs):
        return tf.while_loop(lambda number, _: number < steps, lambda number, x: (number + 1, step(x)), (0, inputs))[1]

    return repeat.get_concrete_function()


def test_a_matrix_stands_inside_the_loop_that_multiplies_by_it():
    matrix = Float32Matrix(np.eye(4)[::-1], Constants())
    function = repeated(matrix.multiply)
    constants = {node.name for node in nodes_in_loops(function, "Const")}
    (product,) = nodes_in_loops(function, "MatMul")
    assert product.input[1].split(":")[0] in constants
    np.testing.assert_array_equal(function(tf.constant([[1.0, 2, 3, 4]])), [[4, 3, 2, 1]])


def test_what_stands_outside_is_there_once_however_deep_it_is_read():
    array = np.arange(8, dtype="float32").reshape(2, 4)
    constants = Constants()
    function = repeated(lambda x: x + constants.outside(array)[:1] + constants.outside(array)[1:])
    big = [
        node
        for node in function.graph.as_graph_def().node
        if node.op == "Const" and node.attr["value"].tensor.tensor_content
    ]
    assert len([node for node in big if node.attr["value"].tensor.tensor_shape.dim]) >= 1
    assert not [
        node for node in nodes_in_loops(function, "Const") if len(node.attr["value"].tensor.tensor_content) == 32
    ]
    np.testing.assert_array_equal(function(tf.zeros([1, 4])), [3 * (array[0] + array[1])])


def test_frozen_variables_keep_their_values_when_the_variables_change():
    layer = keras.layers.Dense(4)
    layer.build((None, 4))
    scope = FrozenScope(layer.variables, Constants())

    def step(x):
        with scope:
            return layer(x)

    inputs = tf.eye(4)
    expected = layer(layer(layer(inputs)))
    function = repeated(step)
    layer.kernel.assign(layer.kernel * 2)
    np.testing.assert_allclose(function(inputs), expected, rtol=1e-6)
    assert function.captured_inputs == []


def test_once_computes_once():
    calls = []

    def function(tensor):
        calls.append(tensor)
        return tensor + 1

    constants, tensor = Constants(), tf.constant(1)
    assert constants.once(tensor, function) is constants.once(tensor, function)
    constants.once(tf.constant(1), function)
    assert len(calls) == 2
