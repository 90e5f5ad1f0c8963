import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from test_callbacks import fit, tiny_model

from kformer.config import TrainingConfig
from kformer.training.optimizers import Adafactor, Adam, AdamW, build_optimizer, update_count

SETTINGS = {"learning_rate": 0.1, "beta_1": 0.7, "beta_2": 0.9, "epsilon": 1e-3}


def after_updates(optimizer: keras.optimizers.Optimizer, dtype: str = "float32") -> list[np.ndarray]:
    """Two weights and all that the optimizer remembers of them after five updates with gradients of both signs."""
    weights = [keras.Variable(np.full(shape, 0.5), dtype=dtype) for shape in ((3, 5), (7,))]
    optimizer.build(weights)
    generator = np.random.default_rng(3)
    for _ in range(5):
        optimizer.apply([ops.convert_to_tensor(generator.normal(size=w.shape), dtype=dtype) for w in weights])
    remembered = [variable for variable in optimizer.variables if variable.shape in {(3, 5), (7,)}]
    assert len(remembered) >= 4
    return [ops.convert_to_numpy(ops.cast(variable, "float32")) for variable in [*weights, *remembered]]


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"clipnorm": 0.5}, {"weight_decay": 0.1}])
def test_updates_are_those_of_keras(options):
    ours, expected = (after_updates(kind(**SETTINGS, **options)) for kind in (Adam, keras.optimizers.Adam))
    for found, variable in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found, variable, rtol=1e-6, atol=1e-6)


GRADIENTS = np.random.default_rng(3).normal(size=(6, 3 * 5 + 7)).astype("float32")


def in_parts(flat: np.ndarray) -> list[np.ndarray]:
    """A matrix and a vector."""
    return [flat[:15].reshape(3, 5), flat[15:]]


def trained(**fields: object) -> tuple[list[np.ndarray], keras.optimizers.Optimizer]:
    """A matrix and a vector of 0.5 after the gradients of six batches, and the optimizer."""
    optimizer = build_optimizer(64, TrainingConfig(schedule="constant", learning_rate=0.1, warmup_steps=1, **fields))
    weights = [keras.Variable(np.full(shape, 0.5), dtype="float32") for shape in ((3, 5), (7,))]
    optimizer.build(weights)
    for flat in GRADIENTS:
        optimizer.apply([ops.convert_to_tensor(part) for part in in_parts(flat)])
    return [ops.convert_to_numpy(weight) for weight in weights], optimizer


def gradients_of_updates(accumulation: int, clip: float | None) -> list[np.ndarray]:
    means = GRADIENTS.reshape(-1, accumulation, GRADIENTS.shape[1]).mean(axis=1)
    return [mean * min(1.0, (clip or np.inf) / np.linalg.norm(mean)) for mean in means]


def adam_by_numpy(gradients: list[np.ndarray], epsilon: float = 1e-9, decay: float = 0.0) -> list[np.ndarray]:
    weight, m, v, matrix = np.full(22, 0.5), np.zeros(22), np.zeros(22), np.arange(22) < 15
    for t, gradient in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.98 * v + 0.02 * gradient**2
        weight = weight - 0.1 * decay * np.where(matrix, weight, 0.0)
        weight -= 0.1 * np.sqrt(1 - 0.98**t) / (1 - 0.9**t) * m / (np.sqrt(v) + epsilon)
    return in_parts(weight)


def adafactor_by_numpy(gradients: list[np.ndarray]) -> list[np.ndarray]:
    """Shazeer and Stern (2018), Algorithms 4 (a matrix) and 5 (a vector), with the rate min(0.1, t**-0.5)."""

    def rms(x):
        return np.sqrt(np.mean(x**2))

    (matrix, vector), r, c, v = in_parts(np.full(22, 0.5)), np.zeros((3, 1)), np.zeros((1, 5)), np.zeros(7)
    for t, flat in enumerate(gradients, start=1):
        beta, rate = 1 - t**-0.8, min(0.1, t**-0.5)
        of_matrix, of_vector = in_parts(flat)
        r = beta * r + (1 - beta) * (of_matrix**2).sum(axis=1, keepdims=True)
        c = beta * c + (1 - beta) * (of_matrix**2).sum(axis=0, keepdims=True)
        v = beta * v + (1 - beta) * of_vector**2
        of_matrix, of_vector = of_matrix / np.sqrt(r * c / r.sum()), of_vector / np.sqrt(v)
        matrix = matrix - rate * max(1e-3, rms(matrix)) * of_matrix / max(1.0, rms(of_matrix))
        vector = vector - rate * max(1e-3, rms(vector)) * of_vector / max(1.0, rms(of_vector))
    return [matrix, vector]


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(
    ("fields", "by_numpy"),
    [
        # With a large epsilon, Adam's updates depend on the size of the gradients.
        ({"adam_epsilon": 1.0}, lambda gradients: adam_by_numpy(gradients, epsilon=1.0)),
        ({"optimizer": "adamw", "weight_decay": 0.3}, lambda gradients: adam_by_numpy(gradients, decay=0.3)),
        ({"optimizer": "adafactor"}, adafactor_by_numpy),
    ],
    ids=["adam", "adamw", "adafactor"],
)
def test_updates_are_those_of_a_loop_in_numpy(fields, by_numpy, accumulation, clips):
    norms = np.linalg.norm(gradients_of_updates(accumulation, None), axis=1)
    clip = float(np.median(norms)) if clips else None  # some gradients are longer, and some shorter
    found, _ = trained(gradient_accumulation_steps=accumulation, gradient_clip_norm=clip, **fields)
    gradients = gradients_of_updates(accumulation, clip)
    for ours, expected in zip(found, by_numpy(gradients), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["adam", "adamw", "adafactor"])
def test_the_norm_is_that_of_the_last_gradient_before_it_is_clipped(name):
    _, optimizer = trained(optimizer=name, weight_decay=0.1 if name == "adamw" else 0.0, gradient_clip_norm=0.5)
    assert float(optimizer.gradient_norm) == pytest.approx(np.linalg.norm(GRADIENTS[-1]), rel=1e-5)


# In processes of their own: devices are made before TensorFlow and JAX start.
ON_TENSORFLOW = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras
one, two = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
"""
ON_JAX = """
import keras
one, two = (keras.distribution.DataParallel(devices=keras.distribution.list_devices()[:n]) for n in (1, 2))
"""
ON_TWO_DEVICES = """
import itertools
import numpy as np
from kformer.config import TrainingConfig
from kformer.training.optimizers import build_optimizer

inputs, targets = np.random.default_rng(3).normal(size=(2, 16, 3)).astype("float32")

def trained(devices, **fields):
    with devices.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dense(3)])
        # With a large epsilon, Adam's updates depend on the size of the gradients.
        epsilon = {} if fields.get("optimizer") == "adafactor" else {"adam_epsilon": 1.0}
        rate = {"schedule": "constant", "learning_rate": 0.1, "warmup_steps": 1}
        model.compile(build_optimizer(8, TrainingConfig(**rate, **epsilon, **fields)), "mse")
        model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
    return np.concatenate([weight.ravel() for weight in model.get_weights()])

optimizers = ({}, {"optimizer": "adamw", "weight_decay": 0.5}, {"optimizer": "adafactor"})
for optimizer, accumulation in itertools.product(optimizers, (1, 2)):
    fields = {**optimizer, "gradient_clip_norm": 0.1, "gradient_accumulation_steps": accumulation, "ema_decay": 0.5}
    found, expected = trained(two, **fields), trained(one, **fields)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=str(fields))
"""


@pytest.mark.slow
@pytest.mark.tensorflow_only  # that is: once
@pytest.mark.parametrize(
    ("backend", "devices"), [pytest.param("tensorflow", ON_TENSORFLOW, marks=pytest.mark.in_ci), ("jax", ON_JAX)]
)
def test_two_devices_clip_accumulate_and_decay_as_one(backend, devices):
    environment = {
        **os.environ,
        **{"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    finished = subprocess.run(
        [sys.executable, "-c", devices + ON_TWO_DEVICES], env=environment, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("kind", [Adam, AdamW, Adafactor])
def test_the_average_of_keras_is_refused(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__} has no use_ema. Received: use_ema=True. Give ema_decay"):
        kind(use_ema=True)


def test_weights_of_low_precision_are_updated_too():
    ours, expected = (after_updates(kind(**SETTINGS), "bfloat16") for kind in (Adam, keras.optimizers.Adam))
    for found, variable in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found, variable, rtol=2**-5, atol=2**-5)


def test_epsilon_is_added_before_the_bias_is_corrected():
    # Kingma and Ba (2015), the end of section 2, and Algorithm 1. This epsilon is large enough to tell them apart.
    rate, beta_1, beta_2, epsilon = 0.1, 0.7, 0.9, 0.5
    gradients = np.random.default_rng(3).normal(size=(5, 7))
    expected, algorithm_1, m, v = (np.zeros(7) for _ in range(4))
    for t, gradient in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        expected -= rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (np.sqrt(v) + epsilon)
        algorithm_1 -= rate * m / (1 - beta_1**t) / (np.sqrt(v / (1 - beta_2**t)) + epsilon)
    assert np.max(np.abs(algorithm_1 - expected)) > 0.01
    weight = keras.Variable(np.zeros(7))
    adam = Adam(learning_rate=rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
    for gradient in gradients:
        adam.apply([ops.convert_to_tensor(gradient, "float32")], [weight])
    np.testing.assert_allclose(ops.convert_to_numpy(weight), expected, atol=1e-6)


def test_one_update_by_hand():
    # m = 0.3 x 2 = 0.6, v = 0.1 x 4 = 0.4; corrected 2 and 4; 1 - 0.1 x 2 / 2 = 0.9.
    weight = keras.Variable([1.0])
    Adam(**{**SETTINGS, "epsilon": 0.0}).apply([ops.convert_to_tensor([2.0])], [weight])
    np.testing.assert_allclose(ops.convert_to_numpy(weight), [0.9], rtol=1e-6)


@pytest.mark.tensorflow_only
def test_rows_that_keras_hands_over_one_by_one():
    """The gradient of a Keras embedding is a list of rows, of which one may come twice."""
    import tensorflow as tf

    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([2, 2]), tf.constant([3, 2]))
    weights = [keras.Variable(np.zeros((3, 2))) for _ in range(2)]
    Adam(**SETTINGS).apply([rows], weights[:1])
    Adam(**SETTINGS).apply([tf.convert_to_tensor(rows)], weights[1:])
    np.testing.assert_array_equal(*(ops.convert_to_numpy(weight) for weight in weights))
    assert np.count_nonzero(ops.convert_to_numpy(weights[0])) == 2


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("fields", [{}, {"optimizer": "adamw", "weight_decay": 0.1}, {"optimizer": "adafactor"}])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_row_that_comes_twice_counts_once_in_the_norm_and_in_the_update(fields, clip):
    import tensorflow as tf

    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([2, 2]), tf.constant([3, 2]))
    found = []
    for gradient in (rows, tf.constant([[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]])):
        optimizer, weight = (
            build_optimizer(64, TrainingConfig(gradient_clip_norm=clip, **fields)),
            keras.Variable(np.ones((3, 2))),
        )
        for _ in range(2):
            optimizer.apply([gradient], [weight])
        assert float(optimizer.gradient_norm) == pytest.approx((4**2 + 6**2) ** 0.5)
        found.append(ops.convert_to_numpy(weight))
    np.testing.assert_array_equal(*found)


def test_a_scheduled_rate_cannot_be_set_and_keras_says_so_before_the_first_step():
    model = tiny_model()  # compiled with build_optimizer
    with pytest.raises(TypeError, match="its learning rate is not settable"):
        fit(model, [keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)])
    assert update_count(model.optimizer) == 0


def test_a_callback_of_keras_lowers_a_rate_that_is_a_number():
    model = tiny_model()
    model.compile(Adam(learning_rate=0.1), model.loss)
    fit(model, [keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=100)], epochs=3, steps=1)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1 * 0.5**2)


def test_the_betas_and_the_epsilon_of_the_configuration_arrive():
    training = TrainingConfig(beta_1=0.8, beta_2=0.95, adam_epsilon=1e-3)
    optimizer = build_optimizer(64, training)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.8, 0.95, 1e-3)
