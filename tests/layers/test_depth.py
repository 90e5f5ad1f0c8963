"""Shape letters: B batch, T positions, D model size."""

import types

import keras
import numpy as np
import oracles
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers import AdaptiveDepth, Encoder, EncoderLayer, PositionalEncoding, SharedDepth, padding_mask
from kformer.layers.adaptive_depth import Halting
from kformer.layers.depth import Ponder

B, T, D, H, F = 2, 5, 14, 2, 11
STEPS = 3
LAYER = 4 * (D * D + D) + (D * F + F + F * D + D) + 2 * 2 * D


@pytest.fixture
def inputs() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


# Halting probabilities of three steps, the weights of the steps, the number of steps and the remainder.
HALTING = {
    "at once": ([0.995, 0.5, 0.5], [1.0, 0.0, 0.0], 1, 1.0),
    "at the second step": ([0.6, 0.5, 0.5], [0.6, 0.4, 0.0], 2, 0.4),
    "at the third step": ([0.5, 0.25, 0.5], [0.5, 0.25, 0.25], 3, 0.25),
    "because no further step follows": ([0.1, 0.1, 0.1], [0.1, 0.1, 0.8], 3, 0.8),
    "at exactly the threshold": ([0.5, 0.49, 0.5], [0.5, 0.5, 0.0], 2, 0.5),
}


def test_positions_halt_at_the_threshold_and_their_weights_sum_to_one():
    probabilities = np.array([case[0] for case in HALTING.values()], "float32")
    halting, weights = Halting.start(probabilities[:, :1]), []
    for step in range(STEPS):
        # The threshold is a little below 0.99, because 0.5 + 0.49 is so in float32, too.
        weight, halting = halting.after(probabilities[:, [step]], 0.9899999, is_last=step == STEPS - 1)
        weights.append(weight)
    np.testing.assert_allclose(ops.concatenate(weights, axis=1), [case[1] for case in HALTING.values()], atol=1e-6)
    np.testing.assert_array_equal(halting.steps[:, 0], [case[2] for case in HALTING.values()])
    np.testing.assert_allclose(halting.remainders[:, 0], [case[3] for case in HALTING.values()], atol=1e-6)
    assert not ops.convert_to_numpy(halting.running).any()


def test_the_ponder_cost_is_the_mean_of_steps_and_remainders():
    ponder = Ponder(np.array([[2.0, 3.0], [1.0, 4.0]]), np.array([[0.5, 0.25], [1.0, 0.75]]), cost=0.1)
    np.testing.assert_allclose(ponder.loss(), 0.1 * (2.5 + 3.25 + 2.0 + 4.75) / 4, rtol=1e-6)
    counted = np.array([[True, True], [True, False]])[:, None, None]
    np.testing.assert_allclose(ponder.loss(counted), 0.1 * (2.5 + 3.25 + 2.0) / 3, rtol=1e-6)
    assert float(ponder.loss(np.zeros((2, 1, 1, 2), bool))) == 0.0  # a batch of padding alone


def act(depth: AdaptiveDepth, inputs: np.ndarray, apply) -> tuple[np.ndarray, np.ndarray]:
    """Adaptive computation time position by position, with the layer `apply`: the means, and the numbers of steps."""
    kernel, bias = (ops.convert_to_numpy(weight) for weight in (depth.halting_kernel, depth.halting_bias))
    state, means = inputs.astype("float64"), np.zeros(inputs.shape)
    steps, totals = np.zeros((B, T)), np.zeros((B, T))
    running = np.ones((B, T), bool)
    for step in range(1, STEPS + 1):
        outputs = apply(state + (step > 1) + oracles.sinusoids(1, D, offset=step))
        for b, t in np.argwhere(running):
            probability = 1 / (1 + np.exp(-outputs[b, t] @ kernel - bias))
            halts = totals[b, t] + probability >= 0.99 or step == STEPS
            means[b, t] += (1 - totals[b, t] if halts else probability) * outputs[b, t]
            totals[b, t] += probability
            steps[b, t] += 1
            running[b, t] = not halts
            state[b, t] = outputs[b, t]
    return means, steps


def test_adaptive_depth_equals_the_loops(inputs):
    depth = AdaptiveDepth(STEPS, D)
    depth.build(inputs.shape)
    depth.halting_kernel.assign(np.random.default_rng(1).normal(0.0, 3.0, D))
    matrix = np.random.default_rng(2).normal(size=(D, D)) / np.sqrt(D)

    def apply(x):
        x = ops.convert_to_numpy(x)
        return np.tanh(x @ matrix + x.mean(axis=1, keepdims=True))  # the mean makes positions read each other

    outputs, ponder = depth.run(inputs, lambda step, x: ops.cast(apply(x), "float32"), lambda x: x + 1.0)
    expected, steps = act(depth, inputs, apply)
    assert set(np.unique(steps)) == {1, 2, 3}
    np.testing.assert_array_equal(ponder.steps, steps)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_shared_depth_adds_position_and_step_before_each_step(inputs):
    layer = EncoderLayer(D, H, F, dropout_rate=0.0)
    encoder = Encoder([layer], PositionalEncoding(D), dropout_rate=0.0, depth=SharedDepth(STEPS, D))
    encoder.build(inputs.shape)
    oracles.randomize(encoder)
    expected = inputs
    for step in (1, 2, 3):
        expected = layer(expected + oracles.sinusoids(T, D) + oracles.sinusoids(1, D, offset=step))
    np.testing.assert_allclose(encoder(inputs), expected, atol=1e-4)
    assert encoder.ponder(inputs) is None


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(SharedDepth(STEPS, D), LAYER), (AdaptiveDepth(STEPS, D, 0.02, 0.5), LAYER + D + 1)],
    ids=["shared", "adaptive"],
)
def test_contract_of_a_stack(depth, parameters, inputs):
    layers = [EncoderLayer(D, H, F, name="layer_0")]
    assert_layer_contract(Encoder, {"layers": layers, "depth": depth}, {"inputs": inputs}, parameters)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(depth))
    assert type(again) is type(depth)
    assert again.get_config() == depth.get_config()


def test_an_implicit_mask_excludes_padding_from_the_cost():
    ids = np.array([[3, 1, 0, 0, 0], [1, 2, 3, 0, 0]], "int32")
    masked = keras.layers.Embedding(5, D, keras.initializers.RandomNormal(stddev=1.0), mask_zero=True)(ids)
    layer = EncoderLayer(D, H, F, dropout_rate=0.0)
    encoder = Encoder([layer], dropout_rate=0.0, depth=AdaptiveDepth(STEPS, D, ponder_cost=0.5))
    encoder.build(masked.shape)
    encoder.depth.halting_kernel.assign(np.random.default_rng(1).normal(size=D))
    ponder = encoder.ponder(masked, padding_mask(ids))
    times = ops.convert_to_numpy(ponder.steps + ponder.remainders)
    assert encoder.losses == []
    encoder(masked, training=True)
    np.testing.assert_allclose(encoder.losses, [0.5 * times[ids > 0].mean()], rtol=1e-5)
    assert abs(times.mean() - times[ids > 0].mean()) > 0.01


def test_a_wrong_number_of_layers_is_refused():
    expected = "With SharedDepth, the number of layers must be 1. Received: 2 layers. Pass as many layers as it needs"
    with pytest.raises(ValueError, match=expected):
        Encoder([EncoderLayer(D, H, F) for _ in range(2)], depth=SharedDepth(STEPS, D))


def test_an_odd_d_model_is_refused():
    with pytest.raises(ValueError, match=r"d_model must be even.* Received: d_model=7. Choose 8."):
        SharedDepth(STEPS, 7)


@pytest.mark.tensorflow_only
def test_a_ponder_cost_of_several_replicas_is_refused(inputs, monkeypatch):
    import tensorflow as tf

    encoder = Encoder([EncoderLayer(D, H, F)], depth=AdaptiveDepth(STEPS, D))
    encoder(inputs, training=True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: types.SimpleNamespace(num_replicas_in_sync=2))
    encoder(inputs)
    with pytest.raises(ValueError, match=r"Received: 2 replicas. Train on one device \(devices=1\), or on JAX"):
        encoder(inputs, training=True)
