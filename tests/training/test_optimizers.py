import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import ops
from test_callbacks import fit, tiny_model

from kformer.config import TrainingConfig
from kformer.training.optimizers import AccumulatingAdam, Adam, build_adam, update_count

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


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.tensorflow_only
def test_accumulation_under_a_strategy_clips_and_decays_as_keras():
    # In a process of its own: logical devices are made before TensorFlow starts.
    script = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        import keras
        from kformer.training.optimizers import AccumulatingAdam
        inputs, targets = np.random.default_rng(3).normal(size=(2, 16, 3)).astype("float32")
        def trained(strategy, kind, **options):
            with strategy.scope():
                keras.utils.set_random_seed(1)
                model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.Dense(3)])
                # With a small epsilon, Adam's updates do not depend on the size of the gradients.
                model.compile(kind(0.1, epsilon=1.0, gradient_accumulation_steps=2, **options), "mse")
            model.fit(inputs, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
            return np.concatenate([weight.ravel() for weight in model.get_weights()])
        one, two = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        plain = trained(one, keras.optimizers.Adam)
        for options in ({}, {"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.01}, {"weight_decay": 0.5}):
            expected = trained(one, keras.optimizers.Adam, **options)
            assert np.allclose(expected, plain) == (not options), options
            for strategy in (one, two):
                found = trained(strategy, lambda rate, **rest: AccumulatingAdam(learning_rate=rate, **rest), **options)
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=str(options))
    """
    finished = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_accumulation_under_a_strategy_has_no_use_ema():
    with pytest.raises(ValueError, match="Received: use_ema=True. Give ema_decay"):
        AccumulatingAdam(gradient_accumulation_steps=2, use_ema=True)


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


def test_a_scheduled_rate_cannot_be_set_and_keras_says_so_before_the_first_step():
    model = tiny_model()  # compiled with build_adam
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
    optimizer = build_adam(64, training)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.8, 0.95, 1e-3)
