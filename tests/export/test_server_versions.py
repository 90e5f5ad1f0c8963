"""Which servers run an export: by the lists of their operations, and in environments of older versions."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
import toy

from kformer.export.kinds import EXPORT_PRECISIONS
from kformer.export.operations import operations
from kformer.export.saved_model import export_saved_model
from kformer.export.server_versions import check_server, lacking, oldest_server, processor, server_versions
from kformer.runtime.export_description import description

pytestmark = pytest.mark.tensorflow_only


def test_what_a_server_lacks():
    used = {"MatMul", "_QuantizedMatMul", "NotYetMade", "SentencepieceTokenizeOp"}
    assert lacking(used, "2.21") == ["NotYetMade"]
    assert lacking(used, "2.16") == ["NotYetMade", "_QuantizedMatMul"]


def test_the_oldest_server_and_the_processor():
    assert (server_versions()[0], server_versions()[-1]) == ("2.12", "2.21")
    assert oldest_server({"MatMul", "SentencepieceTokenizeOp"}) == "2.12"
    assert oldest_server({"MatMul", "_QuantizedMatMul"}) == "2.17"
    assert oldest_server({"NotYetMade"}) is None
    assert processor({"MatMul", "InplaceUpdate"}) == "any"
    assert processor({"MatMul", "_QuantizedMatMul"}) == "x86-64"


def test_a_server_that_cannot_run_it_is_refused_before_any_work(numbers_translator, tmp_path):
    assert check_server("2.17.1", "int8") == "2.17"
    told = "TensorFlow Serving 2.16 lacks operations of this export: _QuantizedMatMul. Choose the precision float32 or "
    with pytest.raises(ValueError, match=told + "bfloat16, or a server from 2.17 on."):
        export_saved_model(numbers_translator, tmp_path, precision="int8", server_version="2.16.2")
    with pytest.raises(ValueError, match=r"TensorFlow Serving 2.9 are not known. Name one of 2.12, 2.13, .*, 2.21."):
        export_saved_model(numbers_translator, tmp_path, server_version="2.9")
    assert not list(tmp_path.iterdir())


def test_an_operation_of_the_graph_that_a_server_lacks_is_refused(numbers_translator, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("kformer.export.saved_model.check_operations", lambda path: {"NotYetMade"})
        with pytest.raises(ValueError, match="TensorFlow Serving 2.21 lacks operations of this export: NotYetMade. No"):
            export_saved_model(numbers_translator, tmp_path / "model", server_version="2.21")
    assert not list((tmp_path / "model").iterdir())


LOADS = """
import glob, json, os, sys, sysconfig
import tensorflow as tf
for library in glob.glob(os.path.join(sysconfig.get_path("platlib"), "tensorflow_text", "**", "*.so"), recursive=True):
    tf.load_op_library(library)
texts = json.load(sys.stdin)
answers = {}
for path in sys.argv[1:]:
    found = tf.saved_model.load(path).signatures["serving_default"](text=tf.constant(texts))
    answers[path] = [text.decode("utf-8") for text in found["translation"].numpy()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def exports(numbers_translator, tmp_path_factory):
    """An export in each precision."""
    base = tmp_path_factory.mktemp("exports")
    return {
        precision: export_saved_model(numbers_translator, base / precision, precision=precision)
        for precision in EXPORT_PRECISIONS
    }


@pytest.mark.slow
@pytest.mark.parametrize("version", os.environ.get("KFORMER_SERVERS", "2.17 2.20").split())
def test_older_versions_give_the_same_strings(version, exports, numbers_translator, tmp_path):
    """A server has the operations and kernels of the TensorFlow of the same version.

    The environment variable KFORMER_SERVERS names the versions to try.
    """
    needs = {"float32": ("2.12", "any"), "bfloat16": ("2.12", "any"), "int8": ("2.17", "x86-64")}
    made = {name: description(path) for name, path in exports.items()}
    assert {name: (found["oldest_server"], found["processor"]) for name, found in made.items()} == needs
    paths = {name: path for name, path in exports.items() if not lacking(operations(path), version)}
    assert len(paths) == (3 if float(version) >= 2.17 else 2)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "pip", "install", "--quiet"]
    subprocess.run([*pip, f"tensorflow-cpu=={version}.*"], check=True)
    subprocess.run([*pip, "--no-deps", f"tensorflow-text=={version}.*"], check=True)
    texts = [source for source, _ in toy.corpus().test[:20]]  # the model is sure of them in every precision
    command = [environment / "bin" / "python", "-c", LOADS, *map(str, paths.values())]
    answer = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    expected = [text.decode() for text in numbers_translator.translate(tf.constant(texts))["translation"].numpy()]
    assert json.loads(answer.stdout.splitlines()[-1]) == {str(path): expected for path in paths.values()}
