"""Do the models of the presets convert to ONNX, and how far are their logits from the model's?

    pip install tf2onnx onnx onnxruntime
    python -m benchmarks.bridges.onnx_models

Keras's own export writes each model, after one call of it, and onnxruntime computes the same logits.
"""

import pathlib
import tempfile

import numpy as np
import onnxruntime

import kformer
from kformer.cli.startup import start_tensorflow

PRESETS = {
    "cmudict": kformer.Translator,
    "bible-books": kformer.Classifier,
    "bible-english": kformer.LanguageModel,
}
# Two rows, of which the second ends earlier.
INPUTS = {
    "source": np.array([[5, 9, 13, 2, 0], [7, 8, 2, 0, 0]], "int32"),
    "target_in": np.array([[1, 7, 8], [1, 9, 10]], "int32"),
}


def main() -> None:
    for name, predictor_class in PRESETS.items():
        model = predictor_class.from_preset(name).model
        inputs = {key: INPUTS[key] for key in model.input}
        expected = np.asarray(model(inputs))  # Keras converts a model that was called
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder, "model.onnx"))
            model.export(path, format="onnx", verbose=False)
            (found,) = onnxruntime.InferenceSession(path).run(None, inputs)
        print(f"{name}: {np.abs(found - expected).max():.1e}")


if __name__ == "__main__":
    start_tensorflow()
    main()
