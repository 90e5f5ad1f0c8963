"""Weights as constants: where they stand in a graph, and in which dtype."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.config import TransformerConfig
from kformer.freezing import FrozenScope, with_precision
from kformer.models import build_transformer

pytestmark = pytest.mark.tensorflow_only
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 8, "d_ff": 11, "num_heads": 2}
CONFIG = TransformerConfig(source_vocab_size=13, target_vocab_size=13, **SIZES)


def frozen_function(layer, steps=3):
    scope = FrozenScope(layer.variables)

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def repeat(inputs):
        with scope:
            return tf.while_loop(lambda step, _: step < steps, lambda step, x: (step + 1, layer(x)), (0, inputs))[1]

    return repeat.get_concrete_function()


def test_constants_stand_inside_the_loop_that_reads_them():
    layer = keras.layers.Dense(4)
    layer.build((None, 4))
    function = frozen_function(layer)
    bodies = [body for body in function.graph.as_graph_def().library.function if "body" in body.signature.name]
    products = [node for body in bodies for node in body.node_def if node.op == "MatMul"]
    constants = {node.name for body in bodies for node in body.node_def if node.op == "Const"}
    assert [node.input[1].split(":")[0] in constants for node in products] == [True]
    assert function.captured_inputs == []


def test_frozen_weights_keep_their_values_when_the_variables_change():
    layer = keras.layers.Dense(4)
    layer.build((None, 4))
    inputs = tf.constant(np.eye(4, dtype="float32"))
    expected = layer(layer(layer(inputs)))
    function = frozen_function(layer)
    layer.kernel.assign(layer.kernel * 2)
    np.testing.assert_allclose(function(inputs), expected, rtol=1e-6)


def test_products_run_in_bfloat16_and_sums_in_float32():
    model = build_transformer(CONFIG, dtype="float32")
    half = with_precision(model, CONFIG, "bfloat16")
    inputs = {"source": np.array([[3, 4, 2]]), "target_in": np.array([[1, 5, 6, 7]])}
    exact, rounded = np.array(model(inputs)), np.array(half(inputs))
    assert rounded.dtype == np.float32
    assert 0 < np.abs(exact - rounded).max() < 0.02
    layer = half.get_layer("decoder").layers[0]
    assert layer.feed_forward.inner.compute_dtype == "bfloat16"
    assert layer.feed_forward_residual.norm.compute_dtype == "float32"


def test_float32_is_the_model_itself():
    model = build_transformer(CONFIG, dtype="float32")
    assert with_precision(model, CONFIG, "float32") is model


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16.* Received: 'float8'"):
        with_precision(build_transformer(CONFIG), CONFIG, "float8")
