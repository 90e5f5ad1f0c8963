"""Guided alignment: the cross-attention of a translator learns word alignments beside the translations."""

import math
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from gradients import gradient
from keras import ops

from kformer.config import TrainingConfig, TransformerConfig
from kformer.losses import AlignmentCrossEntropy, LabelSmoothedCrossEntropy
from kformer.models import (
    GuidedAlignment,
    attention_scores,
    build_transformer,
    call_with_alignment,
    rematerialize_layers,
)
from kformer.runs.weights import load_weights_file, save_weights
from kformer.training.compile import compile_model

TRANSFORMER = TransformerConfig(13, 13, 2, 2, d_model=8, d_ff=16, num_heads=2, dropout_rate=0.0)
WITH_DROPOUT = TRANSFORMER.replace(dropout_rate=0.3, attention_dropout_rate=0.2)
ROWS, SOURCE, TARGET = 3, 7, 5


def batch():
    """Ids from 3 to 12 with padding, labels, and about a third of all possible links between tokens."""
    rng = np.random.default_rng(2)
    inputs = {"source": rng.integers(3, 13, (ROWS, SOURCE)), "target_in": rng.integers(3, 13, (ROWS, TARGET))}
    inputs["source"][1, 4:] = 0
    aligned = rng.random((ROWS, TARGET, SOURCE)) < 0.3
    aligned[:, -1] = False  # the end
    aligned[1, :, 4:] = False
    inputs = {name: ids.astype("int32") for name, ids in inputs.items()}
    return {**inputs, "alignment": aligned.astype("uint8")}, rng.integers(3, 13, (ROWS, TARGET)).astype("int32")


def without_alignment(inputs):
    return {name: inputs[name] for name in ("source", "target_in")}


def oracle(aligned, weights):
    """The loss of each target token, in loops and float64."""
    losses = np.zeros(aligned.shape[:2])
    for row, place in np.ndindex(losses.shape):
        links = [source for source in range(aligned.shape[2]) if aligned[row, place, source]]
        for source in links:
            losses[row, place] -= math.log(float(weights[row, place, source])) / len(links)
    return losses


def example():
    aligned = batch()[0]["alignment"]
    weights = np.random.default_rng(1).dirichlet(np.ones(SOURCE), (ROWS, TARGET)).astype("float32")
    return aligned, weights


def test_numbers_derived_by_hand():
    """A token of two links with the weights 1/2 and 1/8: (log 2 + log 8) / 2; one of one link with 1/4: log 4."""
    aligned = np.array([[[1, 1, 0], [0, 0, 1], [0, 0, 0]]])
    weights = np.array([[[0.5, 0.125, 0.375], [0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]], "float32")
    loss = AlignmentCrossEntropy()
    expected = [2 * math.log(2), 2 * math.log(2), 0.0]
    np.testing.assert_allclose(ops.convert_to_numpy(loss.call(aligned, weights))[0], expected, atol=1e-5)
    assert float(loss(aligned, weights)) == pytest.approx(2 * math.log(2), abs=1e-5)


def test_the_loss_is_the_mean_over_the_tokens_with_an_alignment():
    aligned, weights = example()
    each = oracle(aligned, weights)
    assert 0 < aligned.any(-1).sum() < ROWS * TARGET
    assert float(AlignmentCrossEntropy()(aligned, weights)) == pytest.approx(
        each.sum() / aligned.any(-1).sum(), rel=1e-4
    )
    factors = np.array([3.0, 0.5, 2.0], "float32")
    found = float(AlignmentCrossEntropy()(aligned, weights, sample_weight=factors))
    assert found == pytest.approx((factors @ each.sum(1)) / aligned.any(-1).sum(), rel=1e-4)


def test_without_any_alignment_there_is_no_loss_and_nothing_to_learn():
    _, weights = example()
    nothing = np.zeros((ROWS, TARGET, SOURCE), bool)
    assert float(AlignmentCrossEntropy()(nothing, weights)) == 0
    assert not np.any(gradient(lambda values: AlignmentCrossEntropy()(nothing, values), weights))


def test_an_attention_of_zero_can_be_learned_away():
    weights = np.array([[[1.0, 0.0]]], "float32")
    found = gradient(lambda values: AlignmentCrossEntropy()(np.array([[[0, 1]]]), values), weights)
    assert np.isfinite(found).all()
    assert found[0, 0, 1] < -1


def guided(transformer=TRANSFORMER, weight=0.5):
    keras.utils.set_random_seed(1)
    return GuidedAlignment.of(build_transformer(transformer), transformer, weight)


def plain(transformer=TRANSFORMER):
    keras.utils.set_random_seed(1)
    return build_transformer(transformer)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"depth": "adaptive"},
        {"attention_window": 2},
        {"positional_encoding": "relative", "norm_first": True, "num_key_value_heads": 1},
    ],
    ids=str,
)
def test_in_training_it_computes_what_the_translator_computes_with_the_same_dropout(changes):
    inputs, _ = batch()
    transformer = WITH_DROPOUT.replace(**changes)
    logits, weights = guided(transformer)(inputs, training=True)
    expected = plain(transformer)(without_alignment(inputs), training=True)
    np.testing.assert_allclose(ops.convert_to_numpy(logits), ops.convert_to_numpy(expected), atol=1e-5)
    assert tuple(weights.shape) == (ROWS, TARGET, SOURCE)
    weights = ops.convert_to_numpy(weights)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(weights[1, :, 4:], 0)  # padding


def test_the_weights_are_those_that_alignments_are_read_from():
    inputs, _ = batch()
    model = plain()
    _, weights = call_with_alignment(model, inputs["source"], inputs["target_in"], TRANSFORMER)
    scores = attention_scores(model, inputs["source"], inputs["target_in"])
    expected = ops.convert_to_numpy(scores.cross[-1]).mean(axis=1)
    np.testing.assert_allclose(ops.convert_to_numpy(weights), expected, atol=1e-6)


def test_otherwise_it_is_the_translator_and_needs_no_alignments(tmp_path):
    inputs, labels = batch()
    model, translator = guided(), plain()
    expected = ops.convert_to_numpy(translator(without_alignment(inputs)))
    np.testing.assert_array_equal(ops.convert_to_numpy(model(without_alignment(inputs))), expected)
    compiled = [model, translator]
    for each in compiled:
        compile_model(each, TRANSFORMER, TrainingConfig(precision="float32"))
    of_both = [each.evaluate(without_alignment(inputs), labels, verbose=0, return_dict=True) for each in compiled]
    assert of_both[0] == of_both[1]
    save_weights(tmp_path / "file.weights.h5", model)
    other = build_transformer(TRANSFORMER)
    load_weights_file(tmp_path / "file.weights.h5", other)
    np.testing.assert_array_equal(ops.convert_to_numpy(other(without_alignment(inputs))), expected)


def fitted(model, inputs, labels, transformer=TRANSFORMER, **arguments):
    """What an update of the model tells."""
    compile_model(model, transformer, TrainingConfig(precision="float32", label_smoothing=0.0))
    model.run_eagerly = True  # a trace or a compilation would take longer than one step
    history = model.fit(inputs, labels, verbose=0, shuffle=False, **arguments).history
    return {name: values[0] for name, values in history.items()}


@pytest.mark.parametrize("weights", [None, np.array([3.0, 0.5, 1.0], "float32")])
def test_the_loss_of_an_update_has_the_term_and_its_metrics_do_not(weights):
    inputs, labels = batch()
    scores = attention_scores(plain(), inputs["source"], inputs["target_in"])
    each = oracle(inputs["alignment"], ops.convert_to_numpy(scores.cross[-1]).mean(axis=1))
    term = (np.ones(ROWS) if weights is None else weights) @ each.sum(axis=1) / inputs["alignment"].any(-1).sum()
    without = fitted(plain(), without_alignment(inputs), labels, sample_weight=weights)
    found = fitted(guided(weight=0.5), inputs, labels, sample_weight=weights)
    assert found.pop("loss") == pytest.approx(without.pop("loss") + 0.5 * term, rel=1e-4)
    assert found == pytest.approx(without, rel=1e-5)
    assert found["tokens"] == labels.size


def test_layers_that_are_computed_again_learn_the_same():
    inputs, labels = batch()
    found = []
    for again in (False, True):
        model = guided(WITH_DROPOUT)
        if again:
            rematerialize_layers(model)
        fitted(model, inputs, labels, WITH_DROPOUT)
        found.append(model.get_weights())
    start = guided(WITH_DROPOUT).get_weights()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert any(np.any(ours != before) for ours, before in zip(found[0], start, strict=True))


def reversed_rows(rows, length, rng):
    """Rows of ids, each with its reverse as the target: target token t is source token length - 1 - t."""
    source = rng.integers(3, 13, (rows, length)).astype("int32")
    target = source[:, ::-1]
    target_in = np.concatenate([np.ones((rows, 1), "int32"), target[:, :-1]], axis=1)
    aligned = np.broadcast_to(np.eye(length, dtype=bool)[::-1], (rows, length, length))
    return {"source": source, "target_in": target_in, "alignment": aligned.astype("uint8")}, target


def alignment_error(weight):
    """The share of tokens of new texts of which the largest attention is not that to their source token."""
    rng = np.random.default_rng(5)
    transformer = TRANSFORMER.replace(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32)
    model = guided(transformer, weight)
    model.compile("adam", LabelSmoothedCrossEntropy())
    model.optimizer.learning_rate = 0.01
    model.fit(*reversed_rows(64 * 40, 6, rng), batch_size=64, verbose=0)
    inputs, _ = reversed_rows(50, 6, rng)
    _, weights = call_with_alignment(model, inputs["source"], inputs["target_in"], transformer)
    return float(np.mean(ops.convert_to_numpy(weights).argmax(-1) != np.arange(6)[::-1]))


def test_a_model_learns_alignments_that_it_would_not_have_found_by_itself():
    assert alignment_error(weight=1.0) < 0.05
    assert alignment_error(weight=0.0) > 0.4


@pytest.mark.slow
def test_it_is_saved_whole_and_loaded_again(tmp_path):
    inputs, labels = batch()
    model = guided(weight=0.25)
    model.compile("sgd", LabelSmoothedCrossEntropy())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, GuidedAlignment)
    assert (loaded.weight, loaded.transformer) == (0.25, TRANSFORMER)
    losses = [each.fit(inputs, labels, verbose=0).history["loss"] for each in (model, loaded)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.tensorflow_only
@pytest.mark.slow
def test_two_devices_learn_what_one_learns():
    # In a process of its own: logical devices are made before TensorFlow starts.
    script = """
        import numpy as np, tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        import keras
        from kformer.config import TrainingConfig, TransformerConfig
        from kformer.models import GuidedAlignment, build_transformer
        from kformer.training.compile import compile_model
        config = TransformerConfig(11, 11, 1, 1, d_model=8, d_ff=16, num_heads=2, dropout_rate=0.0)
        rng = np.random.default_rng(1)
        inputs = {"source": rng.integers(0, 11, (7, 5)), "target_in": rng.integers(3, 11, (7, 5))}
        aligned = (rng.random((7, 5, 5)) < 0.2) & (inputs["source"][:, None] > 0)
        inputs["alignment"] = aligned.astype("uint8")
        labels = rng.integers(0, 11, (7, 5)) * (rng.random((7, 5)) < 0.6)
        def trained(strategy):
            with strategy.scope():
                keras.utils.set_random_seed(1)
                model = GuidedAlignment.of(build_transformer(config), config, weight=2.0)
                compile_model(model, config, TrainingConfig(precision="float32"))
            history = model.fit(inputs, labels, batch_size=4, epochs=2, shuffle=False, verbose=0).history
            return history["loss"] + history["token_loss"] + [float(np.abs(w).sum()) for w in model.get_weights()]
        one = trained(tf.distribute.get_strategy())
        two = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    """
    finished = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
