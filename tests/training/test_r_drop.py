"""R-Drop: each row is read twice in training, and its two predictions learn to agree."""

import math
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import toy
from gradients import gradient
from keras import ops
from two_predictions import batch, example, log_probabilities

from kformer.config import TASKS, TrainingConfig, TransformerConfig
from kformer.data import encode_pairs
from kformer.losses import LabelSmoothedCrossEntropy, RDropCrossEntropy, mean_divergence
from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss
from kformer.models import TwoPasses, build_model, build_transformer
from kformer.runs.weights import load_weights, load_weights_file, save_weights
from kformer.tasks import task_of
from kformer.tokenizers import SymbolTokenizer
from kformer.training.compile import compile_model
from kformer.training.plan import describe_plan, plan_batches
from kformer.training.train import train

TRANSFORMER = TransformerConfig(11, 11, 1, 1, d_model=8, d_ff=16, num_heads=2, dropout_rate=0.3)
WITHOUT_DROPOUT = TRANSFORMER.replace(dropout_rate=0.0)


def oracle(labels, logits, alpha, epsilon):
    """Half of equation 4 in loops and float64, with the labels smoothed over all classes."""
    losses = np.zeros(labels.shape)
    for row, place in np.ndindex(labels.shape):
        label = labels[row, place]
        if label == 0:
            continue
        both = [log_probabilities(logits[row, number, place].astype("float64")) for number in (0, 1)]
        for ours, theirs in (both, both[::-1]):
            smooth = [epsilon / len(ours) + (1 - epsilon) * (k == label) for k in range(len(ours))]
            cross_entropy = -sum(q * a for q, a in zip(smooth, ours, strict=True))
            divergence = sum(math.exp(a) * (a - b) for a, b in zip(ours, theirs, strict=True))
            losses[row, place] += (cross_entropy + alpha / 2 * divergence) / 2
    return losses


@pytest.mark.parametrize(("alpha", "epsilon"), [(0.0, 0.1), (1.0, 0.0), (5.0, 0.1)])
def test_the_loss_is_half_of_equation_4(alpha, epsilon):
    labels, logits = example()
    expected = oracle(labels, logits, alpha, epsilon)
    loss = RDropCrossEntropy(alpha, epsilon)
    np.testing.assert_allclose(ops.convert_to_numpy(loss.call(labels, logits)), expected, rtol=1e-4)
    assert float(loss(labels, logits)) == pytest.approx(expected.sum() / (labels > 0).sum(), rel=1e-5)


def test_numbers_derived_by_hand():
    """P1 = (1/2, 1/2) and P2 = (1/4, 3/4): the mean divergence is (1/2 - 1/4) log 3 / 2."""
    logits = np.array([[[[0.0, 0.0]], [[0.0, math.log(3)]]]], "float32")
    divergence = math.log(3) / 8
    assert float(mean_divergence(logits)[0, 0]) == pytest.approx(divergence, rel=1e-6)
    cross_entropies = math.log(2), math.log(4 / 3)
    found = float(RDropCrossEntropy(alpha=4.0, epsilon=0.0)(np.array([[1]]), logits))
    assert found == pytest.approx(sum(cross_entropies) / 2 + 2 * divergence, rel=1e-6)


def test_equal_predictions_have_no_divergence_at_all_and_nothing_to_learn_from_it():
    _, logits = example()
    same = logits[:, :1].repeat(2, axis=1)
    assert not np.any(ops.convert_to_numpy(mean_divergence(same)))
    assert not np.any(gradient(lambda values: ops.sum(mean_divergence(values)), same))


def test_the_gradient_matches_finite_differences():
    _, logits = example(rows=1, length=2, classes=3)
    found = gradient(lambda values: ops.sum(mean_divergence(values)), logits)
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-2
        up, down = (float(ops.sum(mean_divergence(logits + sign * step))) for sign in (1, -1))
        assert found[index] == pytest.approx((up - down) / 2e-2, abs=2e-3)


def test_padding_has_no_loss_and_no_gradient():
    labels, logits = example()
    labels[1] = 0
    found = gradient(lambda values: RDropCrossEntropy(5.0)(labels, values), logits)
    assert np.any(found[0])
    assert not np.any(found[1])


def test_sample_weights_are_factors_on_both_terms():
    labels, logits = example(rows=2)
    each = oracle(labels, logits, 5.0, 0.1).sum(axis=1)
    found = float(RDropCrossEntropy(5.0)(labels, logits, sample_weight=np.array([3.0, 0.5], "float32")))
    assert found == pytest.approx((3 * each[0] + 0.5 * each[1]) / (labels > 0).sum(), rel=1e-5)


def test_one_prediction_has_the_loss_that_it_has_without_r_drop():
    labels, logits = example()
    losses = (RDropCrossEntropy(5.0, 0.1), LabelSmoothedCrossEntropy(0.1))
    found, expected = (float(loss(labels, logits[:, 0])) for loss in losses)
    assert found == expected


@pytest.mark.parametrize("alpha", [-1.0, math.inf, math.nan])
def test_an_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match=f"alpha must be a finite number of at least 0. Received: alpha={alpha}"):
        RDropCrossEntropy(alpha)
    with pytest.raises(ValueError, match=f"r_drop must be a finite number of at least 0. Received: r_drop={alpha}"):
        TrainingConfig(r_drop=alpha)


def test_three_predictions_are_refused():
    with pytest.raises(ValueError, match=r"must be \(B, 2, T, V\), .* Received: logits of shape \(1, 3, 5, 7\)"):
        RDropCrossEntropy(1.0)(np.ones((1, 5)), np.zeros((1, 3, 5, 7)))


def test_metrics_count_each_token_once_and_take_its_first_prediction():
    labels, logits = example()
    for made in (TokenLoss, Perplexity, TokenAccuracy, TokenCount):
        both, first = made(), made()
        both.update_state(labels, logits)
        first.update_state(labels, logits[:, 0])
        assert float(both.result()) == float(first.result())


def test_a_training_step_reads_each_row_twice_and_others_once():
    plain = build_transformer(WITHOUT_DROPOUT)
    model = TwoPasses.of(plain)
    once = ops.convert_to_numpy(plain(batch()))
    np.testing.assert_array_equal(ops.convert_to_numpy(model(batch())), once)
    twice = ops.convert_to_numpy(model(batch(), training=True))
    assert twice.shape == (3, 2, 7, 11)
    for number in (0, 1):
        np.testing.assert_allclose(twice[:, number], once, atol=1e-6)
    assert not np.any(ops.convert_to_numpy(mean_divergence(twice)))


def test_with_dropout_the_two_predictions_differ_in_every_row():
    divergences = ops.convert_to_numpy(
        mean_divergence(TwoPasses.of(build_transformer(TRANSFORMER))(batch(), training=True))
    )
    assert np.all(divergences.max(axis=1) > 0)


def test_the_file_of_its_weights_is_that_of_the_model_without_it(tmp_path):
    model, plain = TwoPasses.of(build_transformer(TRANSFORMER)), build_transformer(TRANSFORMER)
    save_weights(tmp_path / "file.weights.h5", model)
    load_weights_file(tmp_path / "file.weights.h5", plain)
    np.testing.assert_array_equal(ops.convert_to_numpy(model(batch())), ops.convert_to_numpy(plain(batch())))


def compiled(task="translate", **training):
    """A model, compiled as a run does it, with the same first weights each time."""
    keras.utils.set_random_seed(1)
    transformer = task_of(task).adapt(TRANSFORMER.replace(task=task))
    model = build_model(transformer)
    model = TwoPasses.of(model) if training.get("r_drop") else model
    compile_model(model, transformer, TrainingConfig(precision="float32", **training))
    model.run_eagerly = True  # a trace or a compilation would take longer than one step
    return model


@pytest.mark.parametrize("task", TASKS)
def test_models_of_every_task_learn_with_it_and_are_validated_without(task):
    model, plain = compiled(task, r_drop=1e9), compiled(task)
    inputs = {name: ids for name, ids in batch().items() if name in model.input}
    labels = np.random.default_rng(3).integers(3, 11, (3, model(inputs).shape[1]))
    both, once = (each.evaluate(inputs, labels, return_dict=True, verbose=0) for each in (model, plain))
    assert both == once
    before = model.get_weights()
    told = model.fit(inputs, labels, verbose=0).history
    assert told["tokens"] == [labels.size]
    assert told["loss"][0] > 10 * told["token_loss"][0]  # the divergence is no part of the metric
    matrices = [pair for pair in zip(before, model.get_weights(), strict=True) if pair[0].ndim > 1]
    assert all(np.any(earlier != later) for earlier, later in matrices)


def test_half_as_many_pairs_share_a_batch_and_the_run_says_why():
    tokenizer = SymbolTokenizer(["a"])
    pairs = encode_pairs([("a", "a")] * 60, tokenizer, tokenizer, max_length=4)  # a word and its end: 2 tokens
    for r_drop, rows, told in ((0.0, 10, "padding"), (5.0, 5, "padding; each pair is read twice (r_drop)")):
        training = TrainingConfig(tokens_per_batch=20, max_length=4, r_drop=r_drop)
        plan = plan_batches(pairs, training)
        assert plan.shapes == ((rows, 2, 2),)
        assert describe_plan(plan, training).endswith(told)


def test_a_batch_that_cannot_hold_the_longest_pair_twice_is_refused():
    TrainingConfig(tokens_per_batch=32, max_length=16, r_drop=1.0)
    with pytest.raises(ValueError, match="sentence of max_length tokens twice, .* tokens_per_batch=31, max_length=16"):
        TrainingConfig(tokens_per_batch=31, max_length=16, r_drop=1.0)


class Watch(keras.callbacks.Callback):
    """Keeps the model of a run."""

    def on_train_begin(self, logs=None):
        self.seen = self.model


@pytest.mark.tensorflow_only
@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("chosen", [True, False])
def test_a_run_trains_the_model_with_two_passes_and_rematerialized_where_that_is_chosen(chosen, tmp_path):
    training = toy.TRAINING.replace(max_steps=1, tokens_per_batch=64, r_drop=5.0 * chosen, rematerialize=chosen)
    watch = Watch()
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, callbacks=[watch])
    assert isinstance(watch.seen, TwoPasses) is chosen
    assert [watch.seen.get_layer(name).rematerialize for name in ("encoder", "decoder")] == [chosen, chosen]


@pytest.mark.tensorflow_only
@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_run_goes_on_bit_for_bit_and_its_model_is_an_ordinary_one(tmp_path):
    training = toy.TRAINING.replace(
        r_drop=5.0, max_steps=4, validation_steps=2, gradient_accumulation_steps=2, tokens_per_batch=64
    )
    transformer = toy.TRANSFORMER.replace(dropout_rate=0.1)
    whole = train(toy.corpus(), tmp_path / "whole", transformer, training).run
    train(toy.corpus(), tmp_path / "stopped", transformer, training.replace(max_steps=3))
    stopped = train(toy.corpus(), tmp_path / "stopped", transformer, training, resume=True).run
    weights = []
    for run in (whole, stopped):
        model = build_transformer(run.transformer_config())
        load_weights(run, model)
        weights.append(model.get_weights())
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.tensorflow_only
@pytest.mark.slow
def test_two_devices_learn_what_one_learns_also_if_layers_are_computed_again():
    # In a process of its own: logical devices are made before TensorFlow starts.
    script = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        import keras
        from kformer.config import TrainingConfig, TransformerConfig
        from kformer.models import TwoPasses, build_transformer, rematerialize_layers
        from kformer.training.compile import compile_model
        config = TransformerConfig(11, 11, 1, 1, d_model=8, d_ff=16, num_heads=2, dropout_rate=0.0)
        training = TrainingConfig(precision="float32", r_drop=5.0)
        rng = np.random.default_rng(1)
        inputs = {"source": rng.integers(0, 11, (7, 5)), "target_in": rng.integers(3, 11, (7, 5))}
        labels = rng.integers(0, 11, (7, 5)) * (rng.random((7, 5)) < 0.6)
        def trained(strategy, rematerialize):
            with strategy.scope():
                keras.utils.set_random_seed(1)
                model = TwoPasses.of(build_transformer(config))
                if rematerialize:
                    rematerialize_layers(model)
                compile_model(model, config, training)
            history = model.fit(inputs, labels, batch_size=4, epochs=2, shuffle=False, verbose=0).history
            assert history["tokens"] == [np.sum(labels > 0)] * 2
            weights = [float(np.abs(weight).sum()) for weight in model.get_weights()]
            return history["loss"] + history["token_loss"] + weights
        one = trained(tf.distribute.get_strategy(), False)
        for rematerialize in (False, True):
            two = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), rematerialize)
            np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    """
    finished = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("form", ["all", "others"])
def test_labels_are_smoothed_as_without_it(form):
    """Two equal predictions have the loss of one of them."""
    labels, logits = example()
    plain = TrainingConfig(label_smoothing=0.3, label_smoothing_form=form)
    losses = [
        task_of("translate").objective(TRANSFORMER, training).loss for training in (plain, plain.replace(r_drop=5.0))
    ]
    once, twice = losses[0](labels, logits[:, 0]), losses[1](labels, np.repeat(logits[:, :1], 2, axis=1))
    assert float(twice) == pytest.approx(float(once), rel=1e-5)
