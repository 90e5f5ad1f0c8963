"""Sample weights, labels and shapes that the loss and the metrics take, in eager calls and in compiled `fit`."""

import contextlib
import functools
import math

import keras
import numpy as np
import pytest

from kformer.losses import LabelSmoothedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenLoss

LABELS = np.array([[3, 1, 2, 6], [5, 4, 0, 0], [2, 0, 0, 0]], "int32")  # 7 tokens, 0 is padding
TOKEN_WEIGHTS = np.linspace(0.5, 2.7, 12).reshape(3, 4)
WEIGHTS = {
    "(B,)": np.array([3.0, 0.5, 2.0]),
    "(B, 1)": np.array([[3.0], [0.5], [2.0]]),
    "(B, T)": TOKEN_WEIGHTS,
}
MODES = {"eager": {"run_eagerly": True}, "graph": {"jit_compile": False}, "XLA": {"jit_compile": True}}
LOGITS = np.random.default_rng(7).normal(0, 2, (7, 7)).astype("float32")  # one row for each input id


def made(mode, loss=None, length=None, **arguments):
    """A model whose logits are the rows of LOGITS at its inputs."""
    model = keras.Sequential([keras.Input((length,), dtype="int32"), keras.layers.Embedding(7, 7)])
    model.set_weights([LOGITS])
    model.compile(keras.optimizers.SGD(0.0), loss or LabelSmoothedCrossEntropy(0.0), **MODES[mode], **arguments)
    return model


@functools.cache
def untrained(mode):
    """One such model for many tests: its rate is 0, so that no `fit` changes it."""
    return made(mode)


def mean_loss(inputs, labels, weights):
    """The sum of the weighted losses of all tokens, in a loop, divided by the number of tokens."""
    weights = np.broadcast_to(np.reshape(weights, (len(labels), -1)), labels.shape)
    losses = [
        weights[place] * (math.log(np.exp(LOGITS[inputs[place]]).sum()) - LOGITS[inputs[place]][labels[place]])
        for place in np.ndindex(labels.shape)
        if labels[place] != 0
    ]
    return sum(losses) / len(losses)


def fitted(model, *data, **arguments):
    return model.fit(*data, epochs=1, shuffle=False, verbose=0, **arguments).history["loss"][0]


def test_a_weight_of_zero_takes_a_token_out_of_the_sum():
    # Equal logits for four classes: a token costs log 4, and two tokens were counted.
    loss = LabelSmoothedCrossEntropy(0.0)
    found = float(loss(np.array([[3, 1]]), np.zeros((1, 2, 4)), np.array([[1.0, 0.0]])))
    assert found == pytest.approx(math.log(4) / 2, rel=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_rows_and_of_tokens_in_fit(mode):
    model, inputs = untrained(mode), LABELS[::-1]
    for weights in WEIGHTS.values():
        found = fitted(model, inputs, LABELS, sample_weight=weights, batch_size=3)
        assert found == pytest.approx(mean_loss(inputs, LABELS, weights), rel=1e-5)


@pytest.mark.parametrize("weights", [WEIGHTS["(B,)"], WEIGHTS["(B, 1)"]], ids=["(B,)", "(B, 1)"])
def test_weights_of_a_classifier_in_fit(weights):
    inputs, labels = LABELS[::-1, :1], LABELS[:, :1]
    found = fitted(made("graph", length=1), inputs, labels, sample_weight=weights, batch_size=3)
    assert found == pytest.approx(mean_loss(inputs, labels, weights), rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_as_many_rows_as_positions_are_told_apart(mode):
    labels = np.concatenate([LABELS, [[1, 2, 3, 4]]])
    inputs, model = labels[::-1], untrained(mode)
    for weights in (np.arange(1.0, 5.0), np.arange(1.0, 5.0)[:, None], np.arange(16.0).reshape(4, 4)):
        found = fitted(model, inputs, labels, sample_weight=weights, batch_size=4)
        assert found == pytest.approx(mean_loss(inputs, labels, weights), rel=1e-5)


@pytest.mark.parametrize("weight", [0.5, np.float64(0.5), np.array(0.5, "float32")])
def test_a_scalar_weighs_all(weight):
    loss, logits = LabelSmoothedCrossEntropy(0.0), LOGITS[LABELS]
    assert float(loss(LABELS, logits, weight)) == pytest.approx(0.5 * float(loss(LABELS, logits)), rel=1e-6)


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 4), (4, 3), (3, 2), (3, 4, 1), (1, 1)])
def test_weights_of_another_shape_are_refused(shape):
    told = rf"the shape \(B,\), \(B, 1\) or \(B, T\).*of shape \({str(shape)[1:-1]}\), labels of shape \(3, 4\)"
    with pytest.raises(ValueError, match=told):
        LabelSmoothedCrossEntropy(0.0)(LABELS, LOGITS[LABELS], np.ones(shape))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_weights_of_another_shape_are_refused_in_fit(mode):
    with pytest.raises(ValueError, match=r"sample_weight of shape \((3|None), 2\), labels of shape \((3|None), 4\)"):
        fitted(made(mode, length=4), LABELS, LABELS, sample_weight=np.ones((3, 2)), batch_size=3)


def of_unknown_shapes(*arrays):
    """A data set of one batch, of which TensorFlow knows only the ranks before it runs."""
    import tensorflow as tf

    signature = tuple(tf.TensorSpec([None] * array.ndim, array.dtype) for array in arrays)
    return tf.data.Dataset.from_generator(lambda: iter([arrays]), output_signature=signature)


COMPILED = ["graph", "XLA"]


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("mode", COMPILED)
def test_fit_takes_shapes_that_are_known_only_when_a_graph_runs(mode):
    for weights in WEIGHTS.values():
        found = fitted(untrained(mode), of_unknown_shapes(LABELS[::-1], LABELS, weights), steps_per_epoch=1)
        assert found == pytest.approx(mean_loss(LABELS[::-1], LABELS, weights), rel=1e-5)


def function_of_unknown_shapes(call, mode, *ranks):
    """A function of labels, logits and perhaps weights of these ranks, traced before their sizes are known."""
    import tensorflow as tf

    shapes = [None if rank is None else [None] * rank for rank in ranks]
    shapes[1][2] = 7
    kinds = [tf.TensorSpec(*one) for one in zip(shapes, ("int32", "float32", "float32"), strict=False)]
    return tf.function(call, kinds, autograph=False, jit_compile=mode == "XLA")


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("mode", COMPILED)
def test_weights_of_another_shape_are_refused_when_a_graph_runs(mode):
    import tensorflow as tf

    # `fit` has such a function of weights of any rank when it gets (B,) and (B, 1) one after the other.
    loss = function_of_unknown_shapes(LabelSmoothedCrossEntropy(0.0), mode, 2, 3, None)
    for weights in WEIGHTS.values():
        found = loss(LABELS, LOGITS[LABELS[::-1]], weights.astype("float32"))
        assert float(found) == pytest.approx(mean_loss(LABELS[::-1], LABELS, weights), rel=1e-5)
    for shape in ((1,), (4,), (1, 4), (3, 2), (1, 1), (4, 3)):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            loss(LABELS, LOGITS[LABELS], tf.ones(shape))


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("mode", COMPILED)
@pytest.mark.parametrize("metric", [None, TokenAccuracy(), TokenLoss()])
def test_labels_of_another_shape_are_refused_when_a_graph_runs(metric, mode):
    import tensorflow as tf

    call = function_of_unknown_shapes(metric.update_state if metric else LabelSmoothedCrossEntropy(0.0), mode, 2, 3)
    for shape in ((1, 4), (3, 1), (1, 1), (4, 3)):
        for labels, logits in ((shape, (3, 4)), ((3, 4), shape)):
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
                call(tf.ones(labels, "int32"), tf.zeros((*logits, 7)))


@pytest.mark.tensorflow_only
def test_labels_of_known_shape_are_refused_beside_other_logits_of_unknown_shape():
    import tensorflow as tf

    loss, one_row = LabelSmoothedCrossEntropy(0.0), tf.ones((1, 4), "int32")
    call = tf.function(lambda logits: loss(one_row, logits), [tf.TensorSpec([None, None, 7])], autograph=False)
    assert float(call(tf.zeros((1, 4, 7)))) == pytest.approx(math.log(7))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        call(tf.zeros((3, 4, 7)))


METRICS = [TokenAccuracy, Perplexity, TokenLoss]


@pytest.mark.parametrize("found", [LabelSmoothedCrossEntropy(), *(kind() for kind in METRICS)])
@pytest.mark.parametrize("shape", [(3,), (1, 4), (3, 1), (1, 1), (4, 3), (3, 5), (3, 4, 1), (3, 4, 7), ()])
def test_labels_of_another_shape_than_the_logits_are_refused(found, shape):
    told = rf"Labels must be integers.*labels of shape \({str(shape)[1:-1]}\), logits of shape \(3, 4, 7\)"
    with pytest.raises(ValueError, match=told):
        getattr(found, "update_state", found)(np.ones(shape, "int32"), np.zeros((3, 4, 7), "float32"))


def test_labels_of_one_dimension_are_refused_in_fit():
    model = made("graph", length=1, metrics=[TokenAccuracy()])
    with pytest.raises(ValueError, match=r"labels of shape \((None|3),\), logits of shape \((None|3), 1, 7\)"):
        fitted(model, LABELS[:, :1], LABELS[:, 0], batch_size=3)


@pytest.mark.parametrize(("mode", "pad_id"), [("eager", -100), ("graph", 99), ("XLA", -100)])
def test_padding_need_not_be_a_class(mode, pad_id):
    labels = np.where(LABELS == 0, pad_id, LABELS)
    metrics = [TokenLoss(0.0, pad_id), TokenAccuracy(pad_id), Perplexity(pad_id)]
    model = made(mode, LabelSmoothedCrossEntropy(0.0, pad_id), metrics=metrics)
    model.optimizer.learning_rate = 0.5
    logs = model.fit(LABELS[::-1], labels, batch_size=3, shuffle=False, verbose=0).history
    usual = made(mode, metrics=[TokenLoss(0.0), TokenAccuracy(), Perplexity()])
    usual.optimizer.learning_rate = 0.5
    assert logs == usual.fit(LABELS[::-1], LABELS, batch_size=3, shuffle=False, verbose=0).history
    np.testing.assert_array_equal(model.get_weights()[0], usual.get_weights()[0])


@pytest.mark.parametrize("found", [LabelSmoothedCrossEntropy(), *(kind() for kind in METRICS)])
@pytest.mark.parametrize("label", [7, 100, -1, -7, -100])
def test_a_label_that_is_no_class_is_refused(found, label):
    told = f"from 0 to 6: there are logits for 7 classes. Received: the label {label}. If it marks padding.*pad_id"
    with pytest.raises(ValueError, match=told):
        getattr(found, "update_state", found)(np.array([[1, label]]), np.zeros((1, 2, 7), "float32"))


@pytest.mark.parametrize("mode", MODES)
def test_a_label_that_is_no_class_is_an_error_in_fit_or_no_number(mode):
    for label in (7, -1):
        model = made(mode, metrics=[kind() for kind in METRICS])  # on JAX, a `fit` that fails leaves it without values
        refusal = contextlib.nullcontext()
        if mode == "graph" and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            told = f"{label} is not in|{label}. does not index into"
            refusal = pytest.raises(tf.errors.InvalidArgumentError, match=told)
        elif mode != "XLA":
            refusal = pytest.raises(ValueError, match="Labels must be from 0 to 6")
        logs = {}
        with refusal:
            labels = np.where(LABELS == 6, label, LABELS)
            logs = model.fit(LABELS, labels, batch_size=3, shuffle=False, verbose=0).history
        assert not logs or np.isnan([values[0] for values in logs.values()]).all()  # XLA cannot raise an error


@pytest.mark.tensorflow_only
def test_a_variable_counts_like_its_value():
    import tensorflow as tf

    labels, logits, weights = tf.Variable(LABELS), tf.Variable(LOGITS[LABELS]), tf.Variable(TOKEN_WEIGHTS)
    loss, accuracy = LabelSmoothedCrossEntropy(0.1), TokenAccuracy()
    with tf.GradientTape() as tape:
        found = loss(labels, logits, weights)
    assert float(found) == float(loss(LABELS, LOGITS[LABELS], TOKEN_WEIGHTS))
    gradient = tape.gradient(found, logits)
    assert gradient.shape == logits.shape
    assert float(abs(gradient).numpy().max()) > 0
    accuracy.update_state(labels, logits)
    assert int(accuracy.tokens) == 7
