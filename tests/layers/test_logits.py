"""Shape letters: B batch, T length, V vocabulary."""

import keras
import numpy as np
from contracts import assert_layer_contract

from kformer.layers import Logits

B, T, V = 2, 5, 7


def test_contract():
    inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, V)).astype("float32")}
    assert_layer_contract(Logits, {"use_bias": True}, inputs, num_parameters=V)


def test_each_token_has_a_bias():
    layer = Logits(use_bias=True)
    layer.build((None, None, 3))
    layer.bias.assign([0.0, 0.5, -2.0])
    np.testing.assert_array_equal(layer(np.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])), [[[1, 2.5, 1], [0, 0.5, -2]]])


def test_the_paper_has_none_and_logits_of_half_precision_become_float32():
    layer = Logits(dtype="float32")
    outputs = layer(keras.ops.cast(np.array([[1.0, 2.0]]), "bfloat16"))
    assert layer.weights == []
    assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    np.testing.assert_array_equal(outputs, [[1, 2]])
