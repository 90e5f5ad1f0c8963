"""The contract that every loss, metric and schedule keeps with Keras."""

import inspect
import json

import keras
import numpy as np
import pytest

from kformer.losses import AlignmentCrossEntropy, LabelSmoothedCrossEntropy, RDropCrossEntropy, WordLevelCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss
from kformer.schedules import WarmupConstant, WarmupCosine, WarmupInverseSqrt, WarmupLinear
from kformer.training.optimizers import Adam

# No argument has its default value, so that one which gets lost shows.
ARGUMENTS = {
    LabelSmoothedCrossEntropy: {"epsilon": 0.2, "pad_id": 3, "form": "others", "name": "a"},
    RDropCrossEntropy: {"alpha": 5.0, "epsilon": 0.2, "pad_id": 3, "form": "others", "name": "f"},
    WordLevelCrossEntropy: {"share": 0.25, "epsilon": 0.2, "pad_id": 3, "form": "others", "name": "h"},
    AlignmentCrossEntropy: {"name": "g"},
    TokenLoss: {"epsilon": 0.2, "pad_id": 3, "form": "others", "name": "b"},
    Perplexity: {"pad_id": 3, "name": "c"},
    TokenAccuracy: {"pad_id": 3, "name": "d"},
    TokenCount: {"pad_id": 3, "name": "e"},
    WarmupInverseSqrt: {"d_model": 7, "warmup_steps": 5, "scale": 0.5, "gradient_accumulation_steps": 2},
    WarmupConstant: {"peak": 0.3, "warmup_steps": 5, "gradient_accumulation_steps": 2},
    WarmupLinear: {"peak": 0.3, "updates": 9, "warmup_steps": 5, "final": 0.1, "gradient_accumulation_steps": 2},
    WarmupCosine: {"peak": 0.3, "updates": 9, "warmup_steps": 5, "final": 0.1, "gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("kind", ARGUMENTS, ids=lambda kind: kind.__name__)
def test_arguments_are_attributes_and_survive_serialization(kind):
    arguments = ARGUMENTS[kind]
    assert set(arguments) == set(inspect.signature(kind).parameters)
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(kind(**arguments))))
    assert serialized["registered_name"] == f"kformer>{kind.__name__}"
    restored = keras.saving.deserialize_keras_object(serialized)
    assert type(restored) is kind
    assert restored.get_config() == arguments
    assert {name: getattr(restored, name) for name in arguments} == arguments


def test_an_optimizer_that_averages_weights_does_so_when_it_is_loaded(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(Adam(learning_rate=0.1, ema_decay=0.5), "mse")
    inputs, targets = np.ones((3, 2), "float32"), np.ones((3, 1), "float32")
    model.fit(inputs, targets, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, restored):
        one.fit(inputs, targets, verbose=0)
    found, expected = (
        [keras.ops.convert_to_numpy(weight) for weight in one.optimizer.variables] for one in (restored, model)
    )
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_compiled_model_survives_a_keras_file(tmp_path):
    layers = [keras.Input((None,), dtype="int32"), keras.layers.Embedding(5, 3), keras.layers.Dense(5)]
    model = keras.Sequential(layers)
    schedule = WarmupInverseSqrt(8, warmup_steps=5)
    loss = LabelSmoothedCrossEntropy(epsilon=0.2, form="others")
    model.compile(keras.optimizers.Adam(schedule), loss, metrics=[TokenLoss(epsilon=0.2)])
    ids = np.array([[1, 2], [3, 0]], "int32")
    model.fit(ids, ids, verbose=0)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    assert restored.loss.get_config() == loss.get_config()
    assert restored.evaluate(ids, ids, verbose=0) == model.evaluate(ids, ids, verbose=0)
    assert restored.optimizer.get_config() == model.optimizer.get_config()
