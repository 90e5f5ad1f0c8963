import math

import keras
import numpy as np
import pytest
from keras import ops

from kformer.losses import LabelSmoothedCrossEntropy, label_smoothed_cross_entropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss


def batches():
    """Three batches with 11, 2 and 0 tokens; 0 is padding."""
    rng = np.random.default_rng(3)
    first = rng.integers(1, 7, (3, 5))
    first[1, 3:] = 0
    first[2, 3:] = 0
    second = np.array([[4, 0, 0], [0, 0, 0], [5, 0, 0], [0, 0, 0], [0, 0, 0]])
    third = np.zeros((2, 3))
    labels = [batch.astype("int32") for batch in (first, second, third)]
    return [(y, rng.normal(0, 2, (*y.shape, 7)).astype("float32")) for y in labels]


def token_values(function):
    """`function(label, logits)` of every token in a loop."""
    return [
        function(labels[index], logits[index].astype("float64"))
        for labels, logits in batches()
        for index in np.ndindex(labels.shape)
        if labels[index] != 0
    ]


def log_probability(label, logits):
    return logits[label] - math.log(np.exp(logits).sum())


def updated(metric):
    for labels, logits in batches():
        metric.update_state(labels, logits)
    return float(metric.result())


def test_perplexity_is_the_exponential_of_the_token_mean():
    values = token_values(log_probability)
    assert len(values) == 13
    assert updated(Perplexity()) == pytest.approx(math.exp(-np.mean(values)), rel=1e-5)


def test_perplexity_of_uniform_logits_is_the_number_of_classes():
    metric = Perplexity(pad_id=2)
    metric.update_state(np.array([[0, 1, 2]]), np.zeros((1, 3, 11), "float32"))
    assert float(metric.result()) == pytest.approx(11, rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (TokenCount(pad_id=-100), 3),
        (TokenAccuracy(pad_id=-100), 2 / 3),
        (TokenLoss(epsilon=0.0, pad_id=-100), math.log(4) / 3),
        (Perplexity(pad_id=-100), 4 ** (1 / 3)),
    ],
)
def test_padding_may_be_any_id_and_does_not_count(metric, expected):
    # The probability of the label is 1, 1/4 and 1; that of the padding would be 0.
    labels = np.array([[0, 0, 3, -100]])
    logits = np.array([[[99, 0, 0, 0], [0, math.log(3), -99, -99], [0, 0, 0, 99], [0, 99, 0, 0]]], "float32")
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", ["all", "others"])
def test_token_loss_is_the_mean_over_the_tokens_of_all_batches(form):
    def loss(label, logits):
        logits = logits[None, None].astype("float32")  # (1, 1, V)
        return float(label_smoothed_cross_entropy([[label]], logits, 0.2, form)[0, 0])

    assert updated(TokenLoss(epsilon=0.2, form=form)) == pytest.approx(np.mean(token_values(loss)), rel=1e-5)


def test_accuracy_and_count():
    hits = token_values(lambda label, logits: logits.argmax() == label)
    assert 0 < np.mean(hits) < 1
    assert updated(TokenAccuracy()) == pytest.approx(np.mean(hits))
    assert updated(TokenCount()) == 13


def test_accuracy_in_bfloat16():
    metric = TokenAccuracy()
    metric.update_state(np.array([[1, 2, 0]]), ops.cast(np.array([[[0, 1, 0], [0, 1, 0], [1, 0, 0]]]), "bfloat16"))
    assert float(metric.result()) == 0.5


def test_no_tokens_give_no_nan():
    assert float(TokenLoss().result()) == 0.0
    assert float(Perplexity().result()) == 1.0
    assert float(TokenAccuracy().result()) == 0.0


def test_reset_starts_anew():
    metric = TokenCount()
    updated(metric)
    metric.reset_state()
    assert float(metric.result()) == 0


def test_count_is_exact_beyond_two_to_the_24():
    for metric in (TokenCount(), TokenAccuracy()):
        metric.tokens.assign(2**24)
        metric.update_state(np.array([[1]]), np.zeros((1, 1, 3), "float32"))
        assert int(metric.tokens) == 2**24 + 1


@pytest.mark.parametrize("weights", [np.ones(1), np.zeros(1), np.ones(3)])
@pytest.mark.parametrize("metric", [TokenLoss(), TokenCount()])
def test_refuses_sample_weights(metric, weights):
    with pytest.raises(ValueError, match=f"{metric.name} takes no sample_weight"):
        metric.update_state(np.ones((1, 1)), np.zeros((1, 1, 3), "float32"), sample_weight=weights)


def test_reported_validation_loss_is_the_token_mean_where_keras_loss_is_not():
    layers = [keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 3), keras.layers.Dense(7)]
    model = keras.Sequential(layers)
    metrics = [TokenLoss(), TokenCount(), Perplexity(), TokenAccuracy()]
    model.compile("sgd", LabelSmoothedCrossEntropy(), metrics=metrics)
    pairs = [(labels, labels) for labels, _ in batches()]
    losses = []
    for labels, _ in pairs:
        values = label_smoothed_cross_entropy(labels, model.predict_on_batch(labels))
        losses.extend(ops.convert_to_numpy(values)[labels != 0])

    def generate():
        yield from pairs

    logs = model.evaluate(generate(), steps=3, return_dict=True, verbose=0)
    assert logs["tokens"] == 13
    assert logs["token_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert logs["loss"] != pytest.approx(np.mean(losses), rel=1e-2)


@pytest.mark.parametrize("kind", [TokenLoss, TokenAccuracy, Perplexity, TokenCount])
def test_a_batch_without_rows_counts_nothing(kind):
    metric, logits = kind(), np.eye(4, dtype="float32")[[[1, 2], [3, 1]]]
    metric.update_state(np.array([[1, 3], [2, 0]]), logits)
    before = float(metric.result())
    metric.update_state(np.zeros((0, 2), "int32"), logits[:0])
    assert float(metric.result()) == before != 0
