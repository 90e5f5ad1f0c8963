import math
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import ops

from kformer.config import LABEL_SMOOTHING_FORMS
from kformer.losses import LabelSmoothedCrossEntropy, label_smoothed_cross_entropy
from kformer.losses.label_smoothing import FORMS


def smoothed_labels(label, num_classes, epsilon, form):
    """The distribution itself, class by class."""
    if form == "all":
        return [epsilon / num_classes + (1 - epsilon) * (k == label) for k in range(num_classes)]
    return [1 - epsilon if k == label else epsilon / (num_classes - 1) for k in range(num_classes)]


def oracle(labels, logits, epsilon, form):
    """A loop over tokens and classes in float64."""
    losses = np.zeros(labels.shape)
    for index in np.ndindex(labels.shape):
        row = np.asarray(logits[index], "float64")
        log_probabilities = row - math.log(sum(math.exp(value) for value in row))
        q = smoothed_labels(labels[index], len(row), epsilon, form)
        losses[index] = -sum(q_k * log_p for q_k, log_p in zip(q, log_probabilities, strict=True))
    return losses


def example(rows=3, length=5, num_classes=7, seed=1):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, (rows, length)).astype("int32")
    return labels, rng.normal(0, 2, (rows, length, num_classes)).astype("float32")


def gradient_of_sum(function, logits):
    """d sum(function(logits) * weights) / d logits on the backend at hand, with a weight for every token."""
    weights = np.linspace(0.5, 2.0, logits.shape[0] * logits.shape[1]).reshape(logits.shape[:2]).astype("float32")
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(lambda values: ops.sum(function(values) * weights))(logits)), weights
    import tensorflow as tf

    values = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = ops.sum(function(values) * weights)
    return tape.gradient(total, values).numpy(), weights


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_matches_the_loop_over_classes(form, epsilon):
    labels, logits = example()
    losses = ops.convert_to_numpy(label_smoothed_cross_entropy(labels, logits, epsilon, form))
    assert losses.dtype == "float32"
    np.testing.assert_allclose(losses, oracle(labels, logits, epsilon, form), rtol=2e-6)


def test_values_derived_by_hand():
    # softmax = (1/2, 1/4, 1/4), label 0: "all" q = (0.7 + 0.1, 0.1, 0.1), "others" q = (0.7, 0.15, 0.15).
    logits = np.log([[[2.0, 1.0, 1.0]]]).astype("float32")
    losses = {form: float(label_smoothed_cross_entropy([[0]], logits, 0.3, form)[0, 0]) for form in FORMS}
    assert losses["all"] == pytest.approx(0.8 * math.log(2) + 0.2 * math.log(4), rel=1e-6)
    assert losses["others"] == pytest.approx(0.7 * math.log(2) + 0.3 * math.log(4), rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_is_softmax_minus_smoothed_labels(form):
    labels, logits = example()
    gradient, weights = gradient_of_sum(lambda v: label_smoothed_cross_entropy(labels, v, 0.1, form), logits)
    for index in np.ndindex(labels.shape):
        exponentials = np.exp(logits[index].astype("float64"))
        expected = exponentials / exponentials.sum() - smoothed_labels(labels[index], 7, 0.1, form)
        np.testing.assert_allclose(gradient[index], weights[index] * expected, atol=1e-6)


def test_gradient_matches_finite_differences():
    labels, logits = example(rows=2, length=3, num_classes=5)
    gradient, weights = gradient_of_sum(lambda values: label_smoothed_cross_entropy(labels, values, 0.1), logits)
    for index in np.ndindex(logits.shape):
        shift = np.zeros(logits.shape)
        shift[index] = 1e-5
        rise = (oracle(labels, logits + shift, 0.1, "all") - oracle(labels, logits - shift, 0.1, "all")) * weights
        assert gradient[index] == pytest.approx(rise.sum() / 2e-5, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_are_computed_in_float32(dtype):
    labels, logits = example()
    rounded = ops.cast(logits, dtype)
    losses = label_smoothed_cross_entropy(labels, rounded)
    assert keras.backend.standardize_dtype(losses.dtype) == "float32"
    expected = oracle(labels, ops.convert_to_numpy(ops.cast(rounded, "float32")), 0.1, "all")
    np.testing.assert_allclose(ops.convert_to_numpy(losses), expected, rtol=2e-6)


def test_a_loss_scale_saves_small_probabilities_in_float16():
    # e^-18 = 1.5e-8 is nothing in float16, and 5.0e-4 after a scale of 2^15.
    logits = np.array([[[0.0, -18.0]]], "float16")
    gradients, _ = gradient_of_sum(lambda values: label_smoothed_cross_entropy([[0]], values, 0.0) * 2.0**16, logits)
    assert gradients.dtype == "float16"
    np.testing.assert_allclose(gradients[0, 0, 1], 2.0**15 * math.exp(-18.0), rtol=2**-9)


def test_large_logits_do_not_overflow():
    logits = np.array([[[60000.0, 0.0, -60000.0]]], "float16")
    # log softmax is (0, -60000, -120000), q = (1/3, 1/3, 1/3) scaled by 0.3, plus 0.7 on the label.
    loss = float(label_smoothed_cross_entropy([[0]], logits, 0.3)[0, 0])
    assert loss == pytest.approx(0.1 * 60000 + 0.1 * 120000, rel=1e-3)


def test_large_ids_stay_exact():
    # Rounded to bfloat16 or float16, 36,999 would be another class.
    logits = np.zeros((1, 1, 37000), "float32")
    logits[0, 0, 36999] = 20.0
    for floatx in ("bfloat16", "float32"):
        before = keras.config.floatx()
        keras.config.set_floatx(floatx)
        try:
            loss = LabelSmoothedCrossEntropy(epsilon=0.0)(np.array([[36999]], "int32"), logits)
        finally:
            keras.config.set_floatx(before)
        assert float(loss) == pytest.approx(math.log1p(36999 * math.exp(-20)), rel=1e-2)


def test_mean_over_tokens_without_padding():
    labels, logits = example(rows=3, length=5)
    labels[labels == 4] = 1
    labels[0, 2:] = 4  # 2 tokens
    labels[1, 1:] = 4  # 1 token
    labels[2] = 4  # a row of padding
    losses = oracle(labels, logits, 0.1, "others")
    expected = (losses[0, 0] + losses[0, 1] + losses[1, 0]) / 3
    loss = LabelSmoothedCrossEntropy(epsilon=0.1, pad_id=4, form="others")
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-5)
    more_labels = np.concatenate([labels, np.full((2, 5), 4)])
    more_logits = np.concatenate([logits, np.full((2, 5, 7), 9.0, "float32")])
    assert float(loss(more_labels, more_logits)) == pytest.approx(expected, rel=1e-5)


def test_padding_alone_gives_zero_and_no_gradient():
    labels, logits = np.zeros((2, 3), "int32"), np.ones((2, 3, 5), "float32")
    loss = LabelSmoothedCrossEntropy()
    assert float(loss(labels, logits)) == 0.0
    gradient, _ = gradient_of_sum(lambda values: loss(labels, values), logits)
    np.testing.assert_array_equal(gradient, np.zeros_like(logits))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_position_at_all_gives_zero(shape):
    assert float(LabelSmoothedCrossEntropy()(np.zeros(shape, "int32"), np.zeros((*shape, 5), "float32"))) == 0.0


def test_trains_in_a_model_with_integer_labels_of_length_one():
    layers = [keras.Input((1,), dtype="int32"), keras.layers.Embedding(5, 3), keras.layers.Dense(5)]
    model = keras.Sequential(layers)
    model.compile("sgd", LabelSmoothedCrossEntropy())
    labels = np.array([[1], [2], [3]], "int32")
    logits = model.predict(labels, verbose=0)
    reported = model.evaluate(labels, labels, verbose=0)
    assert reported == pytest.approx(oracle(labels, logits, 0.1, "all").mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 1.0}, "epsilon must be at least 0 and below 1. Received: epsilon=1.0"),
        ({"epsilon": -0.1}, "epsilon must be at least 0"),
        ({"form": "wrong"}, "form must be one of all, others. Received: form='wrong'"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossEntropy(**arguments)
    with pytest.raises(ValueError, match=message):
        label_smoothed_cross_entropy([[1]], np.zeros((1, 1, 3), "float32"), **arguments)


def test_refuses_one_hot_labels():
    logits = np.zeros((1, 2, 3), "float32")
    with pytest.raises(ValueError, match=r"labels of shape \(1, 2, 3\).*Pass ids, not one-hot"):
        label_smoothed_cross_entropy(logits, logits)


def test_sample_weights_are_factors_on_rows():
    labels = np.array([[1, 2, 0], [1, 0, 0]])  # 3 tokens
    logits = np.random.default_rng(1).normal(size=(2, 3, 5)).astype("float32")
    each = keras.ops.convert_to_numpy(LabelSmoothedCrossEntropy().call(labels, logits))
    found = float(LabelSmoothedCrossEntropy()(labels, logits, sample_weight=np.array([3.0, 0.5], "float32")))
    assert found == pytest.approx((3 * each[0].sum() + 0.5 * each[1].sum()) / 3, rel=1e-6)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.tensorflow_only
def test_replicas_with_few_tokens_or_rows_do_not_weigh_more():
    # In a process of its own: logical devices are made before TensorFlow starts.
    script = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        import keras
        from kformer.losses import LabelSmoothedCrossEntropy
        from kformer.metrics import TokenLoss
        labels = np.array([[1, 2, 3, 4, 1], [2, 3, 0, 0, 0], [3, 0, 0, 0, 0], [4, 0, 0, 0, 0],
                           [4, 1, 2, 3, 3], [3, 1, 0, 0, 0], [2, 0, 0, 0, 0]], "int32")
        def trained(strategy):
            with strategy.scope():
                keras.utils.set_random_seed(1)
                layers = [keras.Input((5,), dtype="int32"), keras.layers.Embedding(5, 3), keras.layers.Dense(5)]
                model = keras.Sequential(layers)
                model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(), metrics=[TokenLoss()])
            # The replicas get 2 and 2 rows, then 2 and 1; in the evaluation 2 and 2, then 1 and none.
            history = model.fit(labels, labels, batch_size=4, epochs=3, shuffle=False, verbose=0).history
            found = model.evaluate(labels[:5], labels[:5], batch_size=4, verbose=0)
            weights = [float(np.abs(weight).sum()) for weight in model.get_weights()]
            return history["loss"] + history["token_loss"] + found + weights
        two = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
        np.testing.assert_allclose(two, trained(tf.distribute.get_strategy()), rtol=1e-5)
    """
    finished = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_a_configuration_may_ask_for_each_form_of_the_loss():
    assert LABEL_SMOOTHING_FORMS == FORMS
