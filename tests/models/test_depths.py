"""Models whose layers are shared by all steps, with and without halting."""

import keras
import numpy as np
import pytest
from small_models import PAD, SIZES, SOURCE, START, TARGET_IN, B, S, T, logits_of, small_config, small_transformer
from test_start_decoding import all_at_once, histories, stepwise

from kformer.losses import LabelSmoothedCrossEntropy
from kformer.models import attention_scores, build_transformer, ponder, start_decoding

INPUTS = {"source": SOURCE, "target_in": np.where(np.arange(T) < [[5], [2]], TARGET_IN, PAD)}


def halting_transformer(**changes) -> keras.Model:
    """Its positions halt after different numbers of steps."""
    sizes = {"num_encoder_layers": 4, "num_decoder_layers": 4, "dropout_rate": 0.0}
    model = small_transformer(**sizes, depth="adaptive", **changes)
    for name, bias in (("encoder", -4.0), ("decoder", -2.0)):
        depth = model.get_layer(name).depth
        depth.halting_kernel.assign(np.random.default_rng(1).normal(size=SIZES["d_model"]))
        depth.halting_bias.assign(bias)
    return model


@pytest.fixture(params=["shared", "adaptive"])
def model(request):
    return halting_transformer() if request.param == "adaptive" else small_transformer(depth="shared")


def test_the_number_of_parameters_does_not_depend_on_the_number_of_steps():
    def parameters(depth, steps):
        config = small_config(depth=depth, num_encoder_layers=steps, num_decoder_layers=steps)
        return build_transformer(config).count_params()

    one_layer = parameters("stacked", 1)
    assert parameters("shared", 2) == parameters("shared", 5) == one_layer
    # A weight for each feature and a bias, on both sides.
    assert parameters("adaptive", 2) == parameters("adaptive", 5) == one_layer + 2 * (SIZES["d_model"] + 1)


@pytest.mark.parametrize("rows_per_source", [1, 3])
def test_steps_of_a_search_equal_the_whole_at_every_position(model, rows_per_source):
    tokens = histories(rows_per_source)
    logits, _ = stepwise(*start_decoding(model, SOURCE, max_length=T, rows_per_source=rows_per_source), tokens)
    np.testing.assert_allclose(logits, all_at_once(model, tokens), atol=5e-5)


def test_positions_halt_at_different_steps():
    encoder, decoder = ponder(halting_transformer(), SOURCE, TARGET_IN)
    assert (encoder.steps.shape, decoder.steps.shape) == ((B, S), (B, T))
    for steps in (encoder.steps, decoder.steps):
        assert len(np.unique(steps)) > 1
    with pytest.raises(ValueError, match=r"do not halt. Build it with TransformerConfig\(depth=\"adaptive\"\)"):
        ponder(small_transformer(depth="shared"), SOURCE, TARGET_IN)


def test_there_are_attention_weights_of_every_step(model):
    scores = attention_scores(model, SOURCE, TARGET_IN)
    steps = [model.get_layer(name).depth.num_steps for name in ("encoder", "decoder")]
    assert [len(scores.encoder), len(scores.decoder), len(scores.cross)] == [steps[0], steps[1], steps[1]]
    first, second = (keras.ops.convert_to_numpy(weights) for weights in scores.cross[:2])
    np.testing.assert_allclose(second.sum(axis=-1), 1.0, atol=1e-5)
    assert np.abs(second - first).max() > 1e-3


def test_a_keras_file_gives_the_same_logits(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(logits_of(loaded, SOURCE, TARGET_IN), logits_of(model, SOURCE, TARGET_IN))


@pytest.mark.parametrize("start", [pytest.param(START, marks=pytest.mark.slow), PAD])
def test_training_pays_for_the_time_of_tokens_and_validation_does_not(start):
    model = halting_transformer(ponder_cost=0.25, start_id=start)
    target_in = INPUTS["target_in"].copy()
    target_in[:, 0] = start
    inputs = {**INPUTS, "target_in": target_in}
    expected = 0.0
    for of_stack, is_token in zip(ponder(model, **inputs), (SOURCE != PAD, INPUTS["target_in"] != PAD), strict=True):
        times = keras.ops.convert_to_numpy(of_stack.steps + of_stack.remainders)
        expected += 0.25 * times[is_token].mean()
    # Compiled on JAX and eager on TensorFlow: the quicker of the two on each.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossEntropy(), run_eagerly=eager)
    targets = np.roll(inputs["target_in"], -1, axis=1)
    (training,) = model.fit(inputs, targets, batch_size=B, verbose=0).history["loss"]
    validation = model.evaluate(inputs, targets, batch_size=B, verbose=0)
    np.testing.assert_allclose(training - validation, expected, atol=1e-5)
    np.testing.assert_allclose(validation, LabelSmoothedCrossEntropy()(targets, model(inputs)), atol=1e-5)
