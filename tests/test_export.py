"""The exported SavedModel: without kformer, without Python, and the same strings."""

import base64
import json
import pathlib
import subprocess
import sys

import hostile
import keras
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.export.graph import served_function
from kformer.export.saved_model import check_operations, description, export_saved_model, operations
from kformer.translation.translator import Translator

pytestmark = pytest.mark.tensorflow_only
TESTS = pathlib.Path(__file__).parent

FRESH_PROCESS = """
import base64, json, sys
import tensorflow as tf, tensorflow_text
texts = [base64.b64decode(text) for text in json.load(sys.stdin)]
found = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](text=tf.constant(texts))
assert "kformer" not in sys.modules
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


@pytest.mark.parametrize(("precision", "variant"), [("bfloat16", "portable"), ("int8", "portable"), ("float32", "xla")])
def test_every_variant_translates_as_the_translator_does(numbers_translator, tmp_path, precision, variant):
    path = export_saved_model(numbers_translator, tmp_path, precision=precision, variant=variant)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    for texts in (["six one"], ["one two three", "four", "", "two two"], []):
        found = signature(text=tf.constant(texts, tf.string, shape=[len(texts)]))
        assert [text.decode() for text in found["translation"].numpy()] == numbers_translator(texts)
    assert description(path)["precision"] == precision
    assert description(path)["variant"] == variant


@pytest.mark.parametrize(("precision", "bytes_each"), [("bfloat16", 2), ("int8", 1)])
def test_a_smaller_precision_is_a_smaller_export(numbers_translator, exported, tmp_path, precision, bytes_each):
    smaller = export_saved_model(numbers_translator, tmp_path, precision=precision)
    sizes = [sum(file.stat().st_size for file in folder.glob("variables/*")) for folder in (smaller, exported)]
    weights = numbers_translator.model.count_params()
    assert sizes[1] - sizes[0] == pytest.approx((4 - bytes_each) * weights, rel=0.05)


def test_the_description_says_how_far_the_export_is_from_the_translator(exported):
    found = description(exported)
    assert (found["precision"], found["variant"], found["beam_size"]) == ("float32", "portable", 4)
    assert found["identical_translations"] == 1.0
    assert found["score_difference"] < 1e-3


def test_an_export_that_computes_something_else_is_refused(numbers_translator, tmp_path, monkeypatch):
    def disturbed(translator, weights, precision, variant):
        other = keras.models.clone_model(translator.model)
        other.set_weights([weight * 0.5 for weight in translator.model.get_weights()])
        tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
        return served_function(Translator(other, translator.config, *tokenizers), weights, precision, variant)

    monkeypatch.setattr("kformer.export.saved_model.served_function", disturbed)
    with pytest.raises(ValueError, match="does not compute what the translator does.*Export in float32"):
        export_saved_model(numbers_translator, tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_unknown_variants_are_refused(numbers_translator, tmp_path):
    with pytest.raises(ValueError, match="variant must be one of portable, xla. Received: 'gpu'"):
        export_saved_model(numbers_translator, tmp_path, variant="gpu")


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

    monkeypatch.setattr("kformer.export.saved_model.check_operations", fail)
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
