import math

import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract

from kformer.layers import FeedForward, GatedFeedForward

B, T, D, F = 2, 5, 7, 11


def gelu_tanh(x):
    """Hendrycks and Gimpel (2016), section 2: the first approximation."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_contract():
    inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
    assert_layer_contract(FeedForward, {"d_model": D, "d_ff": F}, inputs, num_parameters=D * F + F + F * D + D)


def test_one_number_by_hand():
    # max(0, 3 x 2 + 1) = 7 and max(0, 3 x -2 + 1) = 0, so 7 x 10 + 0 x 100 + 5 = 75.
    layer = FeedForward(1, 2)
    layer.build((None, None, 1))
    layer.set_weights([np.array(w) for w in ([[2.0, -2.0]], [1.0, 1.0], [[10.0], [100.0]], [5.0])])
    np.testing.assert_array_equal(layer(np.array([[[3.0]]], "float32")), [[[75.0]]])


def test_equals_the_formula():
    inputs = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    layer = FeedForward(D, F)
    layer.build(inputs.shape)
    oracles.randomize(layer)
    np.testing.assert_allclose(layer(inputs), oracles.feed_forward(oracles.weights_of(layer), inputs), atol=1e-5)


def test_gelu_tanh_is_that_of_gpt_2():
    inputs = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    layer = FeedForward(D, F, "gelu_tanh")
    layer.build(inputs.shape)
    oracles.randomize(layer)
    weights = oracles.weights_of(layer)
    inner = np.vectorize(gelu_tanh)(oracles.dense(oracles.below(weights, "inner"), inputs))
    expected = oracles.dense(oracles.below(weights, "outer"), inner)
    np.testing.assert_allclose(layer(inputs), expected, atol=1e-5)
    again = FeedForward.from_config(layer.get_config())
    again.build(inputs.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(inputs), layer(inputs))


def test_positions_do_not_see_each_other():
    inputs = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    layer = FeedForward(D, F)
    np.testing.assert_allclose(layer(inputs)[:, 3:4], layer(inputs[:, 3:4]), atol=1e-6)


def test_contract_with_a_gate():
    inputs = {"inputs": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
    sizes = {"d_model": D, "d_ff": F, "activation": "geglu"}
    assert_layer_contract(GatedFeedForward, sizes, inputs, num_parameters=2 * (D * F + F) + F * D + D)


@pytest.mark.parametrize(
    ("activation", "gate"),
    [
        ("swiglu", lambda x: x / (1 + math.exp(-x))),
        ("geglu", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("geglu_tanh", gelu_tanh),
    ],
)
def test_a_gate_multiplies_the_inner_layer(activation, gate):
    inputs = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    layer = GatedFeedForward(D, F, activation)
    layer.build(inputs.shape)
    oracles.randomize(layer)
    gates, values = (inputs @ np.asarray(one.kernel) + np.asarray(one.bias) for one in (layer.gate, layer.inner))
    expected = (np.vectorize(gate)(gates) * values) @ np.asarray(layer.outer.kernel) + np.asarray(layer.outer.bias)
    np.testing.assert_allclose(layer(inputs), expected, atol=1e-5)


def test_an_unknown_gate_is_refused():
    expected = "activation must be one of swiglu, geglu, geglu_tanh. Received: activation='relu'"
    with pytest.raises(ValueError, match=expected):
        GatedFeedForward(D, F, "relu")
