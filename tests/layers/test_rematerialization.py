"""Layers that compute their activations again: the same outputs, gradients and dropout, for less memory."""

import keras
import numpy as np
import pytest
from gradients import gradient
from keras import ops

from kformer.config import TransformerConfig
from kformer.layers import Encoder, EncoderLayer
from kformer.layers.dropout import Dropout
from kformer.layers.rematerialization import rematerialized
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.models import build_transformer, rematerialize_layers

SIZES = {"d_model": 8, "d_ff": 16, "num_heads": 2}
TRANSFORMER = TransformerConfig(11, 11, 2, 2, **SIZES, dropout_rate=0.3, attention_dropout_rate=0.2)


def updated(config, rematerialize):
    """All variables of a model, dropout seeds included, and its losses, after three updates."""
    keras.utils.set_random_seed(1)
    model = build_transformer(config)
    if rematerialize:
        rematerialize_layers(model)
    model.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossEntropy(), jit_compile=False)
    rng = np.random.default_rng(2)
    inputs = {"source": rng.integers(0, 11, (3, 5)), "target_in": rng.integers(3, 11, (3, 7))}
    losses = model.fit(inputs, rng.integers(0, 11, (3, 7)), epochs=3, shuffle=False, verbose=0).history["loss"]
    return [ops.convert_to_numpy(variable) for variable in model.variables], losses


# In each of these, a layer gets other tensors from outside that its gradient has to reach, or none.
@pytest.mark.parametrize(
    "fields",
    [
        {"num_encoder_layers": 1, "num_decoder_layers": 1},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"positional_encoding": "relative_buckets"}, marks=pytest.mark.slow),
        pytest.param({"positional_encoding": "relative"}, marks=pytest.mark.slow),
        pytest.param({"positional_encoding": "rotary", "attention_window": 3}, marks=pytest.mark.slow),
        pytest.param({"depth": "adaptive", "norm_first": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_model_learns_the_same_with_the_same_dropout(fields):
    config = TRANSFORMER.replace(**fields)
    (found, losses), (expected, others) = (updated(config, rematerialize) for rematerialize in (True, False))
    np.testing.assert_allclose(losses, others, rtol=1e-6)
    for ours, theirs in zip(found, expected, strict=True):
        if np.issubdtype(theirs.dtype, np.integer):
            np.testing.assert_array_equal(ours, theirs)  # a seed that was drawn twice would be ahead
        else:
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


class Counted(EncoderLayer):
    """A layer that counts how often it is computed."""

    computed = 0

    def call(self, inputs, *arguments, **options):
        self.computed += 1
        return super().call(inputs, *arguments, **options)


@pytest.mark.parametrize(("rematerialize", "training", "times"), [(False, True, 1), (True, True, 2), (True, False, 1)])
@pytest.mark.tensorflow_only
def test_a_stack_computes_its_layers_again_in_training_alone(rematerialize, training, times):
    """JAX computes them again in its own representation of the function, not in Python."""
    stack = Encoder([Counted(**SIZES)])
    inputs = np.ones((1, 3, 8), "float32")
    stack.build(inputs.shape)
    stack.rematerialize = rematerialize
    gradient(lambda values: ops.sum(stack(values, training=training) ** 2), inputs)
    assert stack.layers[0].computed == times


def test_the_gradient_is_that_of_the_dropout_of_the_forward_pass():
    """Ones pass or not: the gradient of their sum is what came out, if both passes drop the same."""
    layer, inputs, outputs = Dropout(0.5, seed=1), np.ones((7, 11), "float32"), []

    def total(values):
        dropped = rematerialized(layer, values, training=True)
        outputs.append(dropped)
        return ops.sum(dropped)

    found = gradient(total, inputs)
    expected = ops.convert_to_numpy(Dropout(0.5, seed=1)(inputs, training=True))
    np.testing.assert_array_equal(found, expected)
    again = ops.convert_to_numpy(rematerialized(layer, inputs, training=True))
    assert np.any(again != expected)  # the next step has another dropout


def test_the_configuration_of_a_model_does_not_say_it():
    model = build_transformer(TRANSFORMER)
    before = model.to_json()
    rematerialize_layers(model)
    assert model.to_json() == before
