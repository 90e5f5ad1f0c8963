"""The exported SavedModel: without kformer, without Python, and the same strings."""

import base64
import json
import pathlib
import subprocess
import sys

import hostile
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.export import check_operations, export_saved_model, operations
from kformer.translator import Translator

pytestmark = pytest.mark.tensorflow_only
TESTS = pathlib.Path(__file__).parent

FRESH_PROCESS = """
import base64, json, sys
import tensorflow as tf, tensorflow_text
texts = [base64.b64decode(text) for text in json.load(sys.stdin)]
found = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](text=tf.constant(texts))
assert not any(name.split(".")[0] in ("kformer", "keras") for name in sys.modules if "kformer" in name)
json.dump({"translation": [text.decode("utf-8") for text in found["translation"].numpy()],
           "score": found["score"].numpy().tolist()}, sys.stdout)
"""


@pytest.fixture(scope="module")
def exported(numbers_translator, tmp_path_factory):
    """Exported, then moved, so that nothing can point back to where it was written."""
    first = tmp_path_factory.mktemp("export")
    written = export_saved_model(numbers_translator, first / "model")
    return (first / "model").rename(first / "moved") / written.name


@pytest.fixture(scope="module")
def expected(numbers_translator):
    found = numbers_translator.translate(tf.constant(hostile.texts()))
    return [text.decode("utf-8") for text in found["translation"].numpy()], found["score"].numpy().tolist()


def test_a_fresh_process_without_kformer_gives_the_same_strings(exported, expected, tmp_path):
    texts = [base64.b64encode(text).decode() for text in hostile.texts()]
    answer = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(exported)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    found = json.loads(answer.stdout)
    assert found["translation"] == expected[0]
    assert found["score"] == pytest.approx(expected[1], abs=1e-4)


def test_the_c_api_without_any_python_of_tensorflow_gives_the_same_strings(exported, expected):
    texts = [{"b64": base64.b64encode(text).decode()} for text in hostile.texts()]
    answer = subprocess.run(
        [sys.executable, str(TESTS / "c_api.py"), str(exported)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert found["translation"] == expected[0]
    assert found["score"] == pytest.approx(expected[1], abs=1e-4)


def test_the_signature_is_what_tensorflow_serving_can_batch(exported):
    signature = tf.saved_model.load(str(exported)).signatures["serving_default"]
    assert signature.structured_input_signature[1] == {"text": tf.TensorSpec([None], tf.string, name="text")}
    outputs = signature.structured_outputs
    assert {name: (spec.dtype, spec.shape.rank) for name, spec in outputs.items()} == {
        "translation": (tf.string, 1),
        "score": (tf.float32, 1),
    }
    for texts in ([], ["one"], ["one", "", "three two"]):
        found = signature(text=tf.constant(texts, tf.string, shape=[len(texts)]))
        assert found["translation"].shape == found["score"].shape == (len(texts),)


def test_only_operations_of_core_tensorflow_and_tensorflow_text(exported):
    from tensorflow.python.framework import op_def_registry

    names = operations(exported)
    text = {name for name in names if name.startswith(("Sentencepiece", "NormalizeUTF8", "TFText>"))}
    assert text >= {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert not [name for name in names if name.startswith("Xla") or "PyFunc" in name]
    assert all(op_def_registry.get(name) is not None for name in names)


def test_greedy_search_exports_too(numbers_run, tmp_path):
    translator = Translator.from_run(numbers_run, DecodingConfig(beam_size=1))
    path = export_saved_model(translator, tmp_path)
    found = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(["six one"]))
    assert found["translation"].numpy()[0] == b"uno seis"
    # Saving must not take the tokenizer from the translator that goes on living.
    assert translator("six one") == "uno seis"


def test_versions_count_up_and_are_never_overwritten(numbers_translator, tmp_path):
    (tmp_path / "7").mkdir()
    assert export_saved_model(numbers_translator, tmp_path) == tmp_path / "8"
    with pytest.raises(FileExistsError, match="7 exists already"):
        export_saved_model(numbers_translator, tmp_path, version=7)
    with pytest.raises(ValueError, match="version must be at least 0. Received: version=-1"):
        export_saved_model(numbers_translator, tmp_path, version=-1)


def test_a_failed_export_leaves_nothing_behind(numbers_translator, tmp_path, monkeypatch):
    def fail(path):
        raise ValueError("no room")

    monkeypatch.setattr("kformer.export.check_operations", fail)
    with pytest.raises(ValueError, match="no room"):
        export_saved_model(numbers_translator, tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_python_callbacks_and_xla_are_refused(tmp_path):
    module = tf.Module()
    module.call = tf.function(
        lambda text: tf.numpy_function(lambda array: array, [text], tf.string),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(ValueError, match=r"operations that TensorFlow Serving does not run: PyFunc"):
        check_operations(tmp_path)
