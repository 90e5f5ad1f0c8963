"""The exported SavedModel: without kformer, without Python, and the same strings."""

import base64
import concurrent.futures
import errno
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import threading
import types
from unittest import mock

import hostile
import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
import toy
from numpy_models import NumpyModel

from kformer.config import DecodingConfig
from kformer.export.check import check_operations, check_scores, check_without_python
from kformer.export.kinds import EXPORT_PRECISIONS
from kformer.export.operations import operations
from kformer.export.quantization import MATRICES
from kformer.export.saved_model import export_saved_model
from kformer.export.server_files import BATCH_SIZES
from kformer.inference import Model
from kformer.models import build_transformer
from kformer.runtime.export_description import description
from kformer.runtime.versions import check_version, find_saved_model, next_version, versions
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only
TESTS = pathlib.Path(__file__).parents[1]
CONFIGURATION = {"batching.config", "models.config", "monitoring.config"}

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
def exported(numbers_plain_export, tmp_path_factory):
    """Another folder than the one that was written, to which nothing can point back."""
    return shutil.copytree(numbers_plain_export / "1", tmp_path_factory.mktemp("export") / "moved" / "1")


@pytest.fixture(scope="module")
def expected(numbers_translator):
    found = numbers_translator.translate(tf.constant(hostile.texts()))
    return [text.decode("utf-8") for text in found["translation"].numpy()], found["score"].numpy().tolist()


@pytest.mark.slow
@pytest.mark.in_ci
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
        [sys.executable, "-m", "kformer.runtime.c_api", str(exported)],
        input=json.dumps([texts]),
        capture_output=True,
        text=True,
        check=True,
    )
    (found,) = json.loads(answer.stdout)
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


@pytest.mark.slow
def test_greedy_search_exports_too(numbers_run, tmp_path):
    translator = Translator.from_run(numbers_run, DecodingConfig(beam_size=1))
    path = export_saved_model(translator, tmp_path)
    found = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(["six one"]))
    assert found["translation"].numpy()[0] == b"uno seis"
    # Saving must not take the tokenizer from the translator that goes on living.
    assert translator("six one") == "uno seis"


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_export_without_repetitions_agrees_with_the_translator(numbers_run, numbers_translator, tmp_path, beam_size):
    translator = Translator.from_run(numbers_run, DecodingConfig(beam_size=beam_size, no_repeat_ngram_size=1))
    path = export_saved_model(translator, tmp_path)
    check_an_export(path, translator, "float32", "portable")
    # What a repetition would be is another word, or none.
    found = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(["two two one"]))
    assert found["translation"].numpy()[0].decode() == translator("two two one") != "uno dos dos"
    assert numbers_translator("two two one") == "uno dos dos"
    assert description(path)["no_repeat_ngram_size"] == 1


def check_an_export(path, translator, precision, variant):
    """It translates as the translator does, and says what it is."""
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    for texts in (["six one"], ["one two three", "four", "", "two two"], []):
        found = signature(text=tf.constant(texts, tf.string, shape=[len(texts)]))
        assert [text.decode() for text in found["translation"].numpy()] == translator(texts)
    assert (description(path)["precision"], description(path)["variant"]) == (precision, variant)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.parametrize(("precision", "bytes_each"), [("bfloat16", 2), ("int8", 1)])
def test_a_smaller_precision_translates_as_the_translator_does_and_is_a_smaller_export(
    numbers_translator, numbers_int8_export, exported, tmp_path, precision, bytes_each
):
    if precision == "int8":
        smaller = numbers_int8_export / "1"
    else:
        smaller = export_saved_model(numbers_translator, tmp_path, precision=precision)
    check_an_export(smaller, numbers_translator, precision, "portable")
    found, needs = description(smaller), {"bfloat16": ("2.12", "any"), "int8": ("2.17", "x86-64")}
    assert (found["oldest_server"], found["processor"]) == needs[precision]
    graphs = [(folder / "saved_model.pb").read_bytes() for folder in (smaller, exported)]
    assert [b"SINGLE_THREADED_EXECUTOR" in graph for graph in graphs] == [precision == "int8", False]
    sizes = [sum(file.stat().st_size for file in folder.glob("variables/*")) for folder in (smaller, exported)]
    weights = numbers_translator.model.count_params()
    assert sizes[1] - sizes[0] == pytest.approx((4 - bytes_each) * weights, rel=0.05)


@pytest.mark.slow
def test_xla_translates_as_the_translator_does(numbers_translator, tmp_path, monkeypatch):
    monkeypatch.setitem(BATCH_SIZES, "xla", (1,))
    translator = Translator(  # XLA compiles every shape: a short search, and few texts
        numbers_translator.model,
        numbers_translator.config,
        numbers_translator.source_tokenizer,
        numbers_translator.target_tokenizer,
        DecodingConfig(beam_size=2, max_length=8),
    )
    path = export_saved_model(translator, tmp_path, variant="xla", samples=["six one"])
    check_an_export(path, translator, "float32", "xla")


def test_the_description_says_how_far_the_export_is_from_the_translator(exported):
    found = description(exported)
    assert (found["precision"], found["variant"], found["beam_size"]) == ("float32", "portable", 4)
    assert (found["samples"], found["symbols"]) == (16, False)
    assert (found["oldest_server"], found["processor"]) == ("2.12", "any")
    assert found["identical_answers"] == 1.0
    assert found["score_difference"] < 1e-3


@pytest.fixture
def saved(exported, monkeypatch):
    """What an export writes is a copy of another one, which takes less time than to trace and save it."""
    files = shutil.ignore_patterns("assets.extra")

    def save(served, path, signatures):
        shutil.copytree(exported, path, ignore=files, dirs_exist_ok=True)

    monkeypatch.setattr(tf.saved_model, "save", save)


@pytest.mark.usefixtures("saved")
def test_an_export_that_computes_something_else_is_refused(numbers_translator, tmp_path):
    other = keras.models.clone_model(numbers_translator.model)
    other.set_weights([weight * 0.5 for weight in numbers_translator.model.get_weights()])
    tokenizers = (numbers_translator.source_tokenizer, numbers_translator.target_tokenizer)
    translator = Translator(other, numbers_translator.config, *tokenizers, samples=["six one"])
    with pytest.raises(
        ValueError, match="does not compute what the predictor does.*fault of kformer .* please report it"
    ):
        export_saved_model(translator, tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_scores_of_an_export_may_differ_as_much_as_rounding_to_its_precision_explains():
    expected = np.array([-1.0, -3.0])  # their mean is 2
    assert check_scores(expected, 1.05 * expected, "int8") == {"score_difference": pytest.approx(0.05)}
    told = r"scores on 2 texts differ by 5\.00% of their mean; rounding to float32 explains at most 0\.10%\."
    with pytest.raises(ValueError, match=told):
        check_scores(expected, 1.05 * expected, "float32")
    with pytest.raises(ValueError, match=r"rounding to int8 explains at most 10\.00%\. Export in float32\."):
        check_scores(expected, 1.2 * expected, "int8")
    with pytest.raises(ValueError, match="does not compute what the predictor does"):
        check_scores(expected, np.array([-1.0, np.nan]), "int8")


HALF = tf.constant(0.5)


def test_a_signature_that_does_not_answer_is_told(numbers_translator, tmp_path):
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def answering(text):
        return {"translation": tf.identity(text), "score": tf.zeros(tf.shape(text))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([], tf.float32, "number")])
    def refusing(text, number=HALF):
        with tf.control_dependencies([tf.debugging.Assert(number > 0.5, ["Received:", number])]):
            return {"text": tf.identity(text)}

    signatures = {"serving_default": answering, "refusing": refusing}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    with pytest.raises(ValueError, match=r"The export does not run outside Python: .*0\.5"):
        check_without_python(tmp_path, answering, numbers_translator, ["six one"], "float32")


@pytest.fixture
def tried(monkeypatch):
    """Leaves out what takes time in an export; gives the texts that each export is tried on."""
    texts = []

    def check_agreement(answer, translator, samples, precision):
        texts.append(list(samples))
        return {}

    monkeypatch.setattr("kformer.export.saved_model.check_agreement", check_agreement)
    monkeypatch.setattr("kformer.export.saved_model._Served", mock.MagicMock())
    monkeypatch.setattr("kformer.export.saved_model.try_requests", lambda *arguments: ([], 0.5))
    monkeypatch.setattr("kformer.export.saved_model.check_without_python", lambda *arguments: {})
    loaded = mock.Mock(signatures={"serving_default": None})
    monkeypatch.setattr(tf.saved_model, "load", lambda path: loaded)
    monkeypatch.setattr("kformer.export.saved_model.check_operations", lambda path: set())
    monkeypatch.setattr(tf.saved_model, "save", lambda served, path, signatures: pathlib.Path(path, "graph").touch())
    return texts


def test_an_export_is_tried_on_validation_sources_of_its_run(numbers_translator, tried, tmp_path):
    sources = [source for source, _ in toy.corpus().valid]
    export_saved_model(numbers_translator, tmp_path)
    assert tried == [sources[::6][:16]]  # 16 of 100, spread evenly


def test_an_export_is_tried_on_the_texts_that_it_is_given(numbers_translator, tried, tmp_path):
    export_saved_model(numbers_translator, tmp_path, samples=["six one"])
    assert tried == [["six one"]]


def test_an_export_is_tried_on_random_pieces_where_there_are_no_texts(numbers_translator, tried, tmp_path):
    tokenizers = (numbers_translator.source_tokenizer, numbers_translator.target_tokenizer)
    bare = Translator(numbers_translator.model, numbers_translator.config, *tokenizers)
    export_saved_model(bare, tmp_path)
    assert len(tried[0]) == 16
    assert not set(tried[0]) & {source for source, _ in toy.corpus().valid}


def test_unknown_variants_are_refused(numbers_translator, tmp_path):
    assert set(EXPORT_PRECISIONS) == set(MATRICES)
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, int8. Received: 'int4'"):
        export_saved_model(numbers_translator, tmp_path, precision="int4")
    with pytest.raises(ValueError, match="variant must be one of portable, xla. Received: 'gpu'"):
        export_saved_model(numbers_translator, tmp_path, variant="gpu")


@pytest.mark.usefixtures("tried")
def test_versions_count_up_and_are_never_overwritten(numbers_translator, tmp_path):
    (tmp_path / "7").mkdir()
    assert export_saved_model(numbers_translator, tmp_path) == tmp_path / "8"
    with pytest.raises(FileExistsError, match="7 exists already"):
        export_saved_model(numbers_translator, tmp_path, version=7)
    with pytest.raises(ValueError, match="version must be from 0 to 9223372036854775807. Received: version=-1"):
        export_saved_model(numbers_translator, tmp_path, version=-1)


def test_exports_at_once_into_one_folder_get_a_number_each(numbers_translator, tried, tmp_path, monkeypatch):
    """Two exports that have both found the folder empty when they take their names."""
    meeting = threading.Barrier(2, timeout=60)
    thread = threading.local()

    def next_version_of_both(directory):
        number = next_version(directory)
        thread.calls = getattr(thread, "calls", 0) + 1
        if thread.calls == 2:  # the first one is before the work
            meeting.wait()
        return number

    monkeypatch.setattr("kformer.export.target.next_version", next_version_of_both)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        exports = [pool.submit(export_saved_model, numbers_translator, tmp_path) for _ in range(2)]
        paths = {export.result() for export in exports}
    assert paths == {tmp_path / "1", tmp_path / "2"}
    assert {entry.name for entry in tmp_path.iterdir()} == {"1", "2", *CONFIGURATION}
    assert all((path / "graph").is_file() for path in paths)


@pytest.mark.slow
def test_processes_that_export_at_once_into_one_folder_both_succeed(numbers_run, tmp_path):
    command = [sys.executable, "-m", "kformer", "export", str(numbers_run), str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS.parent) for _ in range(2)]
    said = {process.communicate(timeout=600)[0].decode().strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert said == {str(tmp_path / "1"), str(tmp_path / "2")}
    for path in said:
        served = tf.saved_model.load(path).signatures["serving_default"]
        assert served(text=tf.constant(["six one"]))["translation"].numpy()[0] == b"uno seis"


def test_a_version_that_another_export_has_taken_meanwhile_is_told(numbers_translator, tried, tmp_path, monkeypatch):
    def take_the_version(path):
        (tmp_path / "7" / "assets").mkdir(parents=True)
        return set()

    monkeypatch.setattr("kformer.export.saved_model.check_operations", take_the_version)
    with pytest.raises(FileExistsError, match="7 exists already. Choose another version, or leave it out"):
        export_saved_model(numbers_translator, tmp_path, version=7)
    assert {entry.name for entry in tmp_path.iterdir()} == {"7", *CONFIGURATION}


# A process that begins an export like any other, and is killed before it ends.
BEGINS_AN_EXPORT = """
import pathlib, sys, time
from kformer.files import writing
with writing.staging_folder(pathlib.Path(sys.argv[1]), "export") as fresh:
    (fresh / "saved_model.pb").write_bytes(b"half")
    print("begun", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_export_leaves_is_removed_by_the_next_one(numbers_translator, tried, tmp_path):
    command = [sys.executable, "-c", BEGINS_AN_EXPORT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS.parent) as process:
        try:
            assert process.stdout.readline() == b"begun\n"
            (left,) = tmp_path.iterdir()
            export_saved_model(numbers_translator, tmp_path)
            assert (left / "new" / "saved_model.pb").is_file()  # the process is alive, and may go on with it
        finally:
            process.kill()
    export_saved_model(numbers_translator, tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"1", "2", *CONFIGURATION}


def test_a_disk_without_room_is_one_line_and_leaves_nothing(numbers_translator, tmp_path):
    """Files may have 20,000 bytes at most: TensorFlow cannot write the weights."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, former[1]))
    try:
        with pytest.raises(
            OSError, match="The export could not be written to .*model: File too large. No incomplete"
        ) as told:
            export_saved_model(numbers_translator, tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert str(told.value).endswith("Make room on that disk, or name a folder on another one.")
    assert "\n" not in str(told.value)
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "/x/.export-1/new/variables; No space left on device"),
        tf.errors.UnknownError(None, None, "/x/.export-1/new/variables; No space left on device\n\t [[SaveV2]]"),
        tf.errors.InternalError(None, None, "No space left on device"),
        OSError(errno.ENOSPC, "No space left on device", "/x/.export-1/new/saved_model.pb"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("place", ["tensorflow.saved_model.save", "kformer.export.target.sync_tree"])
def test_whatever_writing_raises_is_told_in_the_same_words(error, place, numbers_translator, tried, tmp_path):
    with (
        mock.patch(place, side_effect=error),
        pytest.raises(
            OSError, match=f"^The export could not be written to {tmp_path}: No space left on device. No incomplete"
        ),
    ):
        export_saved_model(numbers_translator, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_told_before_the_work(numbers_translator, tmp_path, monkeypatch):
    monkeypatch.setattr("kformer.export.saved_model._Served", None)
    (tmp_path / "file").touch()
    with pytest.raises(
        NotADirectoryError, match="file/model cannot be a folder: .*file is a file. Name another folder."
    ):
        export_saved_model(numbers_translator, tmp_path / "file" / "model")


def test_the_last_version_is_the_one_with_the_largest_number(tmp_path):
    assert find_saved_model(tmp_path) is None
    for name in ("9", "10", "11", "latest"):
        (tmp_path / name).mkdir()
    for name in ("9", "10", "latest"):  # and 11 is not finished
        (tmp_path / name / "saved_model.pb").touch()
    assert find_saved_model(tmp_path) == tmp_path / "10"
    assert find_saved_model(tmp_path / "9") == tmp_path / "9"
    assert next_version(tmp_path) == 12


def test_a_version_is_a_number_in_ascii_digits_as_tensorflow_serving_reads_it(tmp_path):
    for name in ("0001", "1", "01", "٢", "²", "-3", "1e3", "0003"):
        (tmp_path / name).mkdir()
    assert versions(tmp_path) == {1: tmp_path / "1", 3: tmp_path / "0003"}


def test_versions_end_with_the_largest_number(numbers_translator, tmp_path):
    (tmp_path / str(2**63 - 1)).mkdir()
    with pytest.raises(ValueError, match="has the largest version, 9223372036854775807. Choose a version that is free"):
        export_saved_model(numbers_translator, tmp_path)
    with pytest.raises(ValueError, match="version must be from 0 to 9223372036854775807. Received: version=9223372036"):
        export_saved_model(numbers_translator, tmp_path, version=2**63)


@pytest.mark.parametrize("version", [0, 2**63 - 1])
def test_the_least_and_the_largest_number_are_versions(version, tmp_path):
    check_version(tmp_path, version)
    (tmp_path / str(version)).mkdir()
    with pytest.raises(FileExistsError, match=f"{version} exists already"):
        check_version(tmp_path, version)


def test_a_version_exists_with_zeros_before_it_too(numbers_translator, tmp_path):
    (tmp_path / "007").mkdir()
    with pytest.raises(FileExistsError, match="007 exists already. Choose another version"):
        export_saved_model(numbers_translator, tmp_path, version=7)


def test_a_damaged_export_is_told(exported, tmp_path):
    damaged = pathlib.Path(shutil.copytree(exported, tmp_path / "1"))
    (weights,) = (damaged / "variables").glob("variables.data*")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"variables.data.* does not match its checksum .*. Export the model again."):
        Model(tmp_path).load()
    (damaged / "assets.extra" / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="1 cannot be loaded: .*. Export the model again."):
        Model(tmp_path).load()


def test_sha256sum_checks_an_export(exported):
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    folder = pathlib.Path(exported) / "assets.extra"
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "../saved_model.pb: OK" in said


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


@pytest.mark.usefixtures("saved")
def test_an_export_that_only_python_can_run_is_refused(numbers_translator, tmp_path, monkeypatch):
    monkeypatch.setattr("kformer.export.check.c_api", types.SimpleNamespace(__name__="kformer.no_such_program"))
    with pytest.raises(ValueError, match=r"does not run outside Python: .*No module named kformer.no_such_program"):
        export_saved_model(numbers_translator, tmp_path / "model")
    assert not list((tmp_path / "model").glob("[0-9]*"))


@pytest.mark.parametrize("place", [0, 2], ids=["in the batch", "alone"])
def test_an_export_that_computes_something_else_outside_python_is_refused(
    exported, numbers_translator, monkeypatch, place
):
    from kformer.export import check

    def disturbed(batches, saved_model):
        found = [{key: value.numpy().tolist() for key, value in answer(batch).items()} for batch in batches]
        found[place]["score"] = [score - 1 for score in found[place]["score"]]
        return found

    def answer(batch):
        return signature(text=tf.constant([base64.b64decode(text["b64"]) for text in batch]))

    loaded = tf.saved_model.load(str(exported))
    signature = loaded.signatures["serving_default"]
    monkeypatch.setattr(check, "_run", disturbed)
    with pytest.raises(ValueError, match="gives different results outside Python or for single texts"):
        check_without_python(exported, signature, numbers_translator, ["one", "six one", "two"], "float32")


def test_the_description_says_how_many_texts_are_alike_alone_and_in_a_batch(exported):
    assert description(exported)["identical_alone"] == 1.0


FIELDS_OF_OTHERS = {
    **{"positional_encoding": "sinusoidal_halves", "max_wavelength": 500.0, "first_position": 2},
    **{"activation": "gelu_tanh", "head_dim": 5, "softmax_bias": True, "start_id": 0},
    **{"normalize_embeddings": True, "scale_embeddings": False},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "tolerance"), [pytest.param("float32", 1e-4, marks=pytest.mark.in_ci), ("int8", 0.05)]
)
def test_the_fields_that_models_of_others_need_are_exported(precision, tolerance, tmp_path):
    """With random weights, so that every term of a formula counts."""
    tokenizer = SymbolTokenizer(list("abcdefghij"))
    sizes = {"source_vocab_size": 14, "target_vocab_size": 14, "d_model": 12, "d_ff": 17, "num_heads": 3}
    config = toy.TRANSFORMER.replace(**sizes, **FIELDS_OF_OTHERS)
    model = build_transformer(config)
    oracles.randomize(model)
    translator = Translator(model, config, tokenizer, tokenizer, DecodingConfig(beam_size=1, max_length=5))
    texts = ["a b c", "d", "j i h g f e d c b a", "b b", "e f a i"]
    path = export_saved_model(translator, tmp_path, precision=precision, samples=texts, signatures=["score"])
    pairs = {"text": tf.constant(texts), "translation": tf.constant(["c a", "j", "a b c d", "g g g", "i"])}
    found = tf.saved_model.load(str(path)).signatures["score"](**pairs)["log_probability"].numpy()
    target_in = np.array([[0, 6, 4, 0, 0], [0, 13, 0, 0, 0], [0, 4, 5, 6, 7], [0, 10, 10, 10, 0], [0, 12, 0, 0, 0]])
    target_out = np.array([[6, 4, 2, 0, 0], [13, 2, 0, 0, 0], [4, 5, 6, 7, 2], [10, 10, 10, 2, 0], [12, 2, 0, 0, 0]])
    logits = NumpyModel(model, config).translator(translator.codec.encode(tf.constant(texts))[0].numpy(), target_in)
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    of_tokens = np.take_along_axis(log_probs, target_out[..., np.newaxis], axis=-1)[..., 0]
    np.testing.assert_allclose(found, (of_tokens * (target_out != 0)).sum(axis=1), rtol=tolerance)


def test_an_export_is_tried_by_the_kformer_that_made_it(exported, numbers_translator, tmp_path, monkeypatch):
    """As in a notebook that has put a folder before the others in `sys.path`."""
    (tmp_path / "kformer").mkdir()
    (tmp_path / "kformer" / "__init__.py").write_text("raise ImportError('another kformer')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    signature = tf.saved_model.load(str(exported)).signatures["serving_default"]
    found = check_without_python(exported, signature, numbers_translator, ["one", "six one"], "float32")
    assert found["identical_alone"] == 1.0
