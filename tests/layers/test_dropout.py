import numpy as np
import pytest
from contracts import assert_layer_contract
from keras import ops

from kformer.layers.dropout import Dropout

PRIMES = (23, 29, 31)  # 20,677 numbers; none of the sizes is a multiple of the decisions in a random number


def dropped(layer: Dropout, shape: tuple[int, ...] = PRIMES) -> np.ndarray:
    """Ones after dropout."""
    return ops.convert_to_numpy(layer(np.ones(shape, "float32"), training=True))


def test_contract():
    inputs = {"inputs": np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")}
    assert_layer_contract(Dropout, {"rate": 0.3, "seed": 1}, inputs, num_parameters=0)


def test_a_layer_made_from_its_configuration_drops_the_same():
    layer = Dropout.from_config(Dropout(0.3, seed=1).get_config())
    np.testing.assert_array_equal(dropped(layer), dropped(Dropout(0.3, seed=1)))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_a_share_is_dropped_and_the_rest_scaled_so_that_the_mean_stays(rate):
    outputs = dropped(Dropout(rate, seed=1))
    share = np.mean(outputs == 0)
    deviation = (rate * (1 - rate) / outputs.size) ** 0.5
    assert abs(share - rate) < 4 * deviation
    np.testing.assert_allclose(np.unique(outputs), [0, 1 / (1 - rate)], rtol=1e-4)


def test_neighbours_are_dropped_independently():
    # Decisions that share a random number lie side by side; two in a row are both dropped in 0.3 x 0.3 of all cases.
    zeros = dropped(Dropout(0.3, seed=1), (97, 211)) == 0
    for first, second in ((zeros[:96:2], zeros[1:96:2]), (zeros[:, :210:2], zeros[:, 1:210:2])):
        assert abs(np.mean(first & second) - 0.09) < 4 * (0.09 * 0.91 / first.size) ** 0.5


def test_the_same_seed_drops_the_same_and_the_next_call_something_else():
    first, second = Dropout(0.5, seed=1), Dropout(0.5, seed=1)
    np.testing.assert_array_equal(dropped(first), dropped(second))
    assert np.mean(dropped(first) != dropped(first)) > 0.4


def test_without_training_nothing_is_dropped():
    inputs = np.random.default_rng(0).normal(size=PRIMES).astype("float32")
    np.testing.assert_array_equal(Dropout(0.5)(inputs), inputs)


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 1.0), (1e-9, 1.0), (1.0, 0.0)])
def test_nothing_and_everything_can_be_dropped(rate, expected):
    np.testing.assert_allclose(dropped(Dropout(rate)), expected, rtol=1e-6)


@pytest.mark.tensorflow_only
def test_gradients_pass_where_numbers_have_passed():
    import tensorflow as tf

    inputs = tf.ones(PRIMES)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = Dropout(0.3)(inputs, training=True)
    np.testing.assert_array_equal(tape.gradient(outputs, inputs), outputs)
