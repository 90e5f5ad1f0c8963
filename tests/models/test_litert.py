"""The models in the format of LiteRT (TensorFlow Lite)."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import SIZES, SOURCE, TARGET_IN

from kformer.config import TransformerConfig
from kformer.models import build_transformer

pytestmark = [pytest.mark.tensorflow_only, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_logits_of_the_converted_model_are_the_models(tmp_path):
    model = build_transformer(TransformerConfig(**SIZES))
    model.export(tmp_path / "model.tflite", format="litert", verbose=False)
    read = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner()
    logits = read(source=SOURCE, target_in=TARGET_IN)["output_0"]
    expected = model({"source": SOURCE, "target_in": TARGET_IN})
    np.testing.assert_allclose(logits, expected, atol=3e-6)
