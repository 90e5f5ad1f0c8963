"""Configurations of models that others have trained: Marian, BART, M2M100, T5, GPT-2, Llama, Gemma and BERT, in small.

Each is compared with a model in NumPy, in one pass, step by step and after a file; and it is trained for one step.
"""

import keras
import numpy as np
import oracles
import pytest
from numpy_models import NumpyModel
from small_models import PAD, SOURCE, TARGET_IN, B, T, V, logits_of, small_config
from test_start_decoding import stepwise

from kformer.config import TransformerConfig
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.models import (
    StepwiseLanguageModel,
    build_language_model,
    build_masked_language_model,
    build_transformer,
    start_decoding,
)

END = 2
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 2}
TRANSLATORS = {
    "Marian": {
        **{"positional_encoding": "sinusoidal_halves", "activation": "silu", "softmax_bias": True, "start_id": PAD},
    },
    "BART": {
        **{"positional_encoding": "learned", "activation": "gelu", "softmax_bias": True, "start_id": END},
        **{"normalize_embeddings": True, "scale_embeddings": False, "layer_norm_epsilon": 1e-5},
    },
    "M2M100": {
        **{"positional_encoding": "sinusoidal_halves", "norm_first": True, "start_id": END},
        **{"max_wavelength": 10000 ** (12 / 10), "first_position": 2},
    },
    "T5": {
        **{"positional_encoding": "relative_buckets", "normalization": "rms_norm", "norm_first": True},
        **{"activation": "geglu_tanh", "use_bias": False, "head_dim": 5, "d_model": 11, "start_id": PAD},
        **{"scale_embeddings": False, "embedding_tying": "none"},
    },
}
LANGUAGE_MODELS = {
    "GPT-2": {
        **{"positional_encoding": "learned", "activation": "gelu_tanh", "norm_first": True},
        **{"scale_embeddings": False, "start_id": END},
    },
    "Llama": {
        **{"positional_encoding": "rotary", "max_wavelength": 500000.0, "activation": "swiglu", "use_bias": False},
        **{"normalization": "rms_norm", "norm_first": True, "num_key_value_heads": 1, "embedding_tying": "none"},
        "scale_embeddings": False,
    },
    "Gemma": {
        **{"positional_encoding": "rotary", "activation": "geglu_tanh", "use_bias": False, "head_dim": 6},
        **{"normalization": "rms_norm", "norm_first": True, "num_key_value_heads": 3, "d_model": 10},
    },
}
BERT = {
    **{"positional_encoding": "learned", "activation": "gelu", "normalize_embeddings": True, "softmax_bias": True},
    **{"scale_embeddings": False, "layer_norm_epsilon": 1e-12},
}


def made(build, changes) -> tuple[keras.Model, TransformerConfig]:
    config = small_config(**{**LAYERS, **changes})
    model = build(config)
    oracles.randomize(model)
    return model, config


def assert_near(found, expected) -> None:
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), expected, atol=5e-4, rtol=1e-3)


def assert_a_file_keeps_it(model, inputs, tmp_path) -> None:
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    found, expected = (keras.ops.convert_to_numpy(one(inputs)) for one in (loaded, model))
    np.testing.assert_array_equal(found, expected)


def assert_training_moves_every_weight(model, inputs) -> None:
    # Compiled on JAX and eager on TensorFlow: the quicker of the two on each.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossEntropy(pad_id=PAD), run_eagerly=eager)
    before = model.get_weights()
    labels = np.random.default_rng(3).integers(3, V, next(iter(reversed(inputs.values()))).shape)
    model.fit(inputs, labels, verbose=0)
    for weight, old in zip(model.weights, before, strict=True):
        now = keras.ops.convert_to_numpy(weight)
        assert np.isfinite(now).all(), weight.path
        if not weight.path.endswith("key/bias"):  # whose gradient is zero: a softmax ignores a common shift
            assert not np.array_equal(now, old), weight.path


@pytest.mark.parametrize("changes", TRANSLATORS.values(), ids=TRANSLATORS)
def test_a_translator_computes_what_it_does_in_numpy(changes, tmp_path):
    model, config = made(build_transformer, changes)
    target_in = TARGET_IN.copy()
    target_in[:, 0] = config.start_id
    expected = NumpyModel(model, config).translator(SOURCE, target_in)
    assert_near(logits_of(model, SOURCE, target_in), expected)
    assert_near(stepwise(*start_decoding(model, SOURCE, max_length=T), target_in)[0], expected)
    inputs = {"source": SOURCE, "target_in": target_in}
    assert_a_file_keeps_it(model, inputs, tmp_path)
    assert_training_moves_every_weight(model, inputs)


@pytest.mark.parametrize("changes", LANGUAGE_MODELS.values(), ids=LANGUAGE_MODELS)
def test_a_language_model_computes_what_it_does_in_numpy(changes, tmp_path):
    model, config = made(build_language_model, {**changes, "num_encoder_layers": 0})
    target_in = TARGET_IN.copy()
    target_in[:, 0] = config.start_id
    expected = NumpyModel(model, config).language_model(target_in)
    inputs = {"target_in": target_in}
    assert_near(model(inputs), expected)
    steps = StepwiseLanguageModel(model, max_length=T)
    context, history = steps.start(np.zeros((B, 1), "int32"), room=T)
    assert_near(stepwise(steps.begin(context), history, target_in)[0], expected)
    log_probs = expected - np.log(np.exp(expected).sum(axis=-1, keepdims=True))
    read = steps.read(target_in, room=T)[1]  # at once, all but the last position
    assert_near(read, [sum(log_probs[row, t, target_in[row, t + 1]] for t in range(T - 1)) for row in range(B)])
    assert_a_file_keeps_it(model, inputs, tmp_path)
    assert_training_moves_every_weight(model, inputs)


def test_berts_prediction_of_masked_tokens_is_what_it_is_in_numpy(tmp_path):
    model, config = made(build_masked_language_model, {**BERT, "num_decoder_layers": 0})
    source = np.array([[1, 9, 13, END, 21, 8, END], [1, 18, END, PAD, PAD, PAD, PAD]], "int32")
    expected, is_token = NumpyModel(model, config).masked_language_model(source), source != PAD
    assert_near(keras.ops.convert_to_numpy(model({"source": source}))[is_token], expected[is_token])
    assert_a_file_keeps_it(model, {"source": source}, tmp_path)
    assert_training_moves_every_weight(model, {"source": source})
