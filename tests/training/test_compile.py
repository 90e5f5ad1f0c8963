"""What `model.compile` is given is what the configuration says."""

import types

import keras
import numpy as np
import pytest

from kformer.config import TrainingConfig, TransformerConfig
from kformer.losses import label_smoothed_cross_entropy
from kformer.training.compile import compile_model

LABELS = np.array([[3, 1, 4], [2, 5, 0]], "int32")  # 0 is padding
TRANSLATOR = TransformerConfig(d_model=8, num_heads=1, pad_id=0)


def compiled(transformer=TRANSLATOR, **training):
    """Logits over 7 classes from an embedding alone."""
    layers = [keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 7, embeddings_initializer="normal")]
    model = keras.Sequential(layers)
    compile_model(model, transformer, TrainingConfig(precision="float32").replace(**training))
    return model


@pytest.mark.parametrize("form", ["all", "others"])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_loss_and_its_metric_smooth_labels_as_configured(epsilon, form):
    model = compiled(label_smoothing=epsilon, label_smoothing_form=form)
    values = label_smoothed_cross_entropy(LABELS, model.predict_on_batch(LABELS), epsilon, form)
    expected = keras.ops.convert_to_numpy(values)[LABELS != 0].mean()
    found = model.evaluate(LABELS, LABELS, return_dict=True, verbose=0)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["token_loss"] == pytest.approx(expected, rel=1e-5)


def test_only_float16_scales_the_loss():
    assert isinstance(compiled(precision="mixed_float16").optimizer, keras.optimizers.LossScaleOptimizer)
    for precision in ("float32", "mixed_bfloat16"):
        assert not isinstance(compiled(precision=precision).optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_tensorflow_traces_a_training_step_once(precision):
    model, traced = compiled(precision=precision), []
    step = model.train_step
    model.train_step = lambda data: traced.append(data) or step(data)
    model.fit(LABELS, LABELS, verbose=0)
    assert len(traced) == 1


@pytest.mark.tensorflow_only
@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_xla_compiles_a_training_step_of_tensorflow_on_a_gpu_alone(device, monkeypatch):
    monkeypatch.setattr("keras.distribution.list_devices", lambda: [f"{device}:0".lower()])
    seen = types.SimpleNamespace(device_type=device)
    monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda kind=None: [seen])
    assert compiled().jit_compile == (device == "GPU")


def test_rows_that_only_fill_a_batch_of_a_classifier_are_no_tokens():
    """Whatever pads its texts."""
    classifier = TransformerConfig(d_model=8, num_heads=1, pad_id=3, task="classify", num_decoder_layers=0)
    labels, model = np.array([[5], [3], [0], [0]], "int32"), compiled(classifier)
    model.run_eagerly = True
    assert model.evaluate(labels, labels, return_dict=True, verbose=0)["tokens"] == 2
