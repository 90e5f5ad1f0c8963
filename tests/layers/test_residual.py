import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import ResidualConnection

B, T, D = 2, 5, 7


def double(x):
    return x * 2.0


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(3.0, 2.0, size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("norm_first", [False, True])
def test_contract(inputs, norm_first):
    kwargs = {"dropout_rate": 0.3, "norm_first": norm_first}
    assert_layer_contract(ResidualConnection, kwargs, {"inputs": inputs, "sublayer": double}, num_parameters=2 * D)


@pytest.mark.parametrize("norm_first", [False, True])
def test_equals_the_formula(inputs, norm_first):
    layer = ResidualConnection(norm_first=norm_first)
    layer.build(inputs.shape)
    oracles.randomize(layer)
    expected = oracles.residual(oracles.weights_of(layer), inputs, double, norm_first)
    np.testing.assert_allclose(layer(inputs, sublayer=double), expected, atol=1e-5)


def test_two_features_by_hand():
    # Norms of (1, 3) are (-1, 1): mean 2, deviation 1.
    inputs = np.array([[[1.0, 3.0]]], "float32")
    before = ResidualConnection(norm_first=True)(inputs, sublayer=lambda x: 10.0 * x)
    np.testing.assert_allclose(before, [[[1.0 - 10.0, 3.0 + 10.0]]], atol=1e-4)
    after = ResidualConnection()(inputs, sublayer=lambda x: 10.0 * x)
    np.testing.assert_allclose(after, [[[-1.0, 1.0]]], atol=1e-4)


def test_dropout_falls_on_the_sublayer_and_not_on_the_path_beside_it():
    # Half of the sublayer's tens are dropped and the rest doubled: ones beside them stay ones.
    inputs = np.ones((1, 101, D), "float32")
    layer = ResidualConnection(0.5, norm_first=True)
    output = ops.convert_to_numpy(layer(inputs, sublayer=lambda x: ops.zeros_like(x) + 10.0, training=True))
    assert set(np.unique(output)) == {1.0, 21.0}
    np.testing.assert_array_equal(layer(inputs, sublayer=lambda x: ops.zeros_like(x) + 10.0), inputs + 10.0)


def test_dropout_leaves_the_path_beside_the_sublayer_alone_before_the_last_norm_too(inputs):
    np.testing.assert_array_equal(
        ResidualConnection(0.5)(inputs, sublayer=ops.zeros_like, training=True),
        ResidualConnection(0.0)(inputs, sublayer=ops.zeros_like, training=True),
    )


def test_dropout_comes_before_the_last_norm(inputs):
    # A norm of what is left gives mean 0 at every position; dropout after the norm would not.
    layer = ResidualConnection(0.5)
    output = ops.convert_to_numpy(layer(inputs, sublayer=double, training=True))
    np.testing.assert_allclose(output.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(output.std(-1), 1.0, atol=1e-3)
    assert np.abs(output - ops.convert_to_numpy(layer(inputs, sublayer=double))).max() > 0.1
