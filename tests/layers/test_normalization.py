import keras
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers.normalization import LayerNormalization, RMSNormalization, make_norm

B, T, D = 3, 5, 7


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(2.0, 3.0, (B, T, D)).astype("float32")


def built(dtype: str = "float32") -> LayerNormalization:
    layer = LayerNormalization(dtype=dtype)
    layer.build((None, None, D))
    oracles.randomize(layer)
    return layer


def test_contract(inputs):
    assert_layer_contract(LayerNormalization, {"epsilon": 0.25}, {"inputs": inputs}, num_parameters=2 * D)


@pytest.mark.parametrize("training", [False, True])
def test_two_features_by_hand(training):
    # Mean 3, deviation 2: -1 and 1, then times gamma and plus beta.
    layer = LayerNormalization(epsilon=0.0)
    layer.build((None, 2))
    layer.set_weights([np.array([10.0, 100.0]), np.array([0.5, 0.25])])
    np.testing.assert_allclose(layer(np.array([[1.0, 5.0]], "float32"), training=training), [[-9.5, 100.25]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_training_gives_what_inference_gives(inputs, dtype):
    layer = built(dtype)
    expected, outputs = layer(inputs), layer(inputs, training=True)
    assert outputs.dtype == expected.dtype
    tolerance = {"float32": 1e-6, "mixed_bfloat16": 2**-7, "mixed_float16": 2**-10}[dtype]
    convert = lambda tensor: ops.convert_to_numpy(ops.cast(tensor, "float32"))  # noqa: E731
    np.testing.assert_allclose(convert(outputs), convert(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("shape", [(11, D), (B, T, D), (2, 3, 5, D)])
def test_gradients_are_those_that_tensorflow_derives_from_the_formula(shape):
    import tensorflow as tf

    layer = built()
    generator = np.random.default_rng(1)
    inputs, upstream = (tf.constant(generator.normal(size=shape).astype("float32")) for _ in range(2))

    def gradients(training: bool) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=training)
        watched = [inputs, *(weight.value for weight in layer.trainable_weights)]
        return tape.gradient(outputs, watched, output_gradients=upstream)

    for ours, automatic in zip(gradients(training=True), gradients(training=False), strict=True):
        np.testing.assert_allclose(ours, automatic, rtol=1e-5, atol=1e-5)


@pytest.mark.tensorflow_only
def test_float64_stays_float64(inputs):
    layer = built("float64")
    exact = inputs.astype("float64")
    weights = oracles.weights_of(layer)
    normal = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + layer.epsilon)
    np.testing.assert_allclose(layer(exact, training=True), normal * weights["gamma"] + weights["beta"], rtol=1e-12)
    assert keras.backend.standardize_dtype(layer(exact, training=True).dtype) == "float64"


def test_contract_of_rms_normalization(inputs):
    assert_layer_contract(RMSNormalization, {"epsilon": 0.25}, {"inputs": inputs}, num_parameters=D)


def test_rms_normalization_by_hand():
    # The mean of 1 and 49 is 25, its root 5.
    layer = RMSNormalization(epsilon=0.0)
    layer.build((None, 2))
    layer.set_weights([np.array([10.0, 100.0])])
    np.testing.assert_allclose(layer(np.array([[1.0, 7.0]], "float32")), [[2.0, 140.0]], rtol=1e-6)


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="normalization must be one of layer_norm, rms_norm. Received: .*'batch_norm'"):
        make_norm("batch_norm", 1e-6, "float32", "norm")
