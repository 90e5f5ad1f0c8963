"""`kformer lint`: what would keep a SavedModel from being served, where it stands, and what to do."""

import pathlib
import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.export.check import check_operations
from kformer.export.lint import Finding, lint
from kformer.export.operations import AT_START, operations, places

TEXT = tf.TensorSpec([None], tf.string)
COUNT = tf.TensorSpec([], tf.int32)


def saved(folder: pathlib.Path, function, *specs, name="serving_default") -> pathlib.Path:
    module = tf.Module()
    module.call = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(folder), signatures={name: module.call})
    return folder


def shout(text):
    return {"loud": tf.strings.upper(text)}


def in_python(text):
    return {"same": tf.numpy_function(lambda array: array, [text], tf.string)}


def in_a_loop(text):
    def body(step, text):
        return step + 1, tf.ensure_shape(tf.numpy_function(lambda array: array, [text], tf.string), [None])

    return {"same": tf.while_loop(lambda step, _: step < 3, body, (0, text))[1]}


def test_a_model_of_core_operations_has_nothing_to_mend(tmp_path):
    assert lint(saved(tmp_path, shout, TEXT)) == []


def test_a_call_to_python_is_an_error_with_its_place(tmp_path):
    (finding,) = lint(saved(tmp_path, in_python, TEXT))
    assert finding.fatal
    assert "PyFunc calls Python code" in finding.problem
    assert "no tf.numpy_function" in finding.remedy
    ((signature, *_, node),) = finding.paths
    assert (signature, node) == ("serving_default", "PyFunc")


def test_the_way_to_an_operation_leads_through_the_functions_that_call_it(tmp_path):
    (finding,) = lint(saved(tmp_path, in_a_loop, TEXT, name="repeat"))
    ((signature, *functions, node),) = finding.paths
    assert (signature, node) == ("repeat", "while/PyFunc")
    assert any("while_body" in name for name in functions)


def test_what_no_signature_reaches_belongs_to_the_start(tmp_path):
    paths = {place.operation: place.path for place in places(saved(tmp_path, shout, TEXT))}
    assert paths["StringUpper"][0] == "serving_default"
    assert paths["SaveV2"][0] == AT_START


def test_every_operation_has_a_place(tmp_path):
    saved(tmp_path, in_a_loop, TEXT)
    assert {place.operation for place in places(tmp_path)} == operations(tmp_path)


def renamed(folder: pathlib.Path, old: str, new: str) -> pathlib.Path:
    """Gives an operation a name of the same length, as if another library had registered it."""
    assert len(old) == len(new)
    graph = folder / "saved_model.pb"
    assert old.encode() in graph.read_bytes()
    graph.write_bytes(graph.read_bytes().replace(old.encode(), new.encode()))
    return folder


def test_an_operation_of_a_foreign_library_is_an_error(tmp_path):
    (finding,) = lint(renamed(saved(tmp_path, shout, TEXT), "StringUpper", "StringMoose"))
    assert finding.fatal
    assert "lacks StringMoose" in finding.problem
    assert "does not link" in finding.remedy


def test_an_operation_that_only_newer_servers_have_names_the_oldest(tmp_path):
    model = renamed(saved(tmp_path, shout, TEXT), "StringUpper", "Utf8Example")
    from kformer.export import server_versions
    from kformer.runtime import confinement

    lists = {"versions": ["2.12", "2.20"], "everywhere": sorted(operations(model)), "some": {"Utf8Example": ["2.20"]}}
    lists["everywhere"].remove("Utf8Example")
    server_versions._everywhere.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_versions, "_lists", lambda: lists)
        patch.setattr(confinement, "allowed_operations", lambda: operations(model))
        assert lint(model, "2.20") == []
        (finding,) = lint(model, "2.12")
    server_versions._everywhere.cache_clear()
    assert finding.problem == "TensorFlow Serving 2.12 lacks Utf8Example"
    assert "Use a server from 2.20 on" in finding.remedy


def test_a_compiled_function_is_a_warning_with_the_flag_of_the_server(tmp_path):
    compiled = tf.function(lambda text: tf.strings.length(text) + 1, jit_compile=True)
    (finding,) = lint(saved(tmp_path, lambda text: {"length": compiled(text)}, TEXT))
    assert not finding.fatal
    assert "--xla_cpu_compilation_enabled" in finding.remedy


def test_a_function_that_must_not_be_compiled_needs_no_flag(tmp_path):
    plain = tf.function(lambda text: tf.strings.length(text) + 1, jit_compile=False)
    assert lint(saved(tmp_path, lambda text: {"length": plain(text)}, TEXT)) == []


def test_signatures_that_are_awkward_to_serve_are_warnings(tmp_path):
    def repeat(text, count):
        return {"text_bytes": tf.repeat(text, count)}

    problems = [finding.problem for finding in lint(saved(tmp_path, repeat, TEXT, COUNT))]
    assert any("text_bytes of serving_default ends in _bytes" in problem for problem in problems)
    assert any("serving_default has scalars (count)" in problem for problem in problems)


def test_a_model_without_a_signature_is_an_error(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path))
    (finding,) = lint(tmp_path)
    assert finding.fatal
    assert finding.problem == "There is no signature"


def run(*arguments):
    return CliRunner().invoke(app, ["lint", *map(str, arguments)])


def test_the_command_looks_at_the_last_version_and_fails_on_an_error(tmp_path):
    saved(tmp_path / "1", shout, TEXT)
    good = run(tmp_path)
    assert good.exit_code == 0
    assert "it runs in TensorFlow Serving from 2.12 on, on any processor" in good.stdout
    saved(tmp_path / "2", in_a_loop, TEXT)
    bad = run(tmp_path)
    assert bad.exit_code == 1
    assert "error: PyFunc calls Python code" in bad.stdout
    assert "at serving_default > " in bad.stdout


def test_the_command_shows_three_places_of_a_problem_or_all(tmp_path, monkeypatch):
    saved(tmp_path, shout, TEXT)

    def shown(places, *options):
        finding = Finding(False, "It is odd", "Mend it.", [("serving_default", f"node {one}") for one in range(places)])
        monkeypatch.setattr("kformer.export.lint.lint", lambda *_: [finding])
        result = run(tmp_path, *options)
        assert result.exit_code == 0  # a warning
        assert result.stdout.startswith("warning: It is odd.\n    Mend it.\n    at serving_default > node 0\n")
        return result.stdout.count("    at "), result.stdout.partition("    and ")[2].partition("\n")[0]

    assert shown(5) == (3, "2 further places (--all shows them)")
    assert shown(4) == (3, "1 further place (--all shows them)")
    assert shown(3) == (3, "")
    assert shown(5, "--all") == (5, "")


def test_the_command_refuses_what_it_cannot_look_at(tmp_path):
    assert "is no SavedModel" in str(run(tmp_path).exception)
    saved(tmp_path, shout, TEXT)
    assert "2.11 are not known" in str(run(tmp_path, "--server-version", "2.11").exception)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff")
    assert "is damaged" in str(run(tmp_path).exception)


@pytest.fixture(scope="module")
def with_variable(tmp_path_factory):
    module = tf.Module()
    module.weight = tf.Variable(tf.range(1000.0))
    module.call = tf.function(lambda x: {"y": x + module.weight[0]}, input_signature=[tf.TensorSpec([None])])
    folder = tmp_path_factory.mktemp("variable")
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.call})
    return folder


def broken(folder, way):
    data = folder / "variables" / "variables.data-00000-of-00001"
    if way == "no variables":
        shutil.rmtree(folder / "variables")
    elif way == "truncated data":
        data.write_bytes(data.read_bytes()[:1000])
    elif way == "changed data":
        content = bytearray(data.read_bytes())
        content[2000] ^= 1
        data.write_bytes(content)
    elif way == "changed index":
        (folder / "variables" / "variables.index").write_bytes(b"x" * 100)


@pytest.mark.parametrize("way", ["no variables", "truncated data", "changed data", "changed index"])
def test_variables_that_cannot_be_read_are_told(way, with_variable, tmp_path):
    folder = shutil.copytree(with_variable, tmp_path / "model")
    assert lint(folder) == []
    broken(folder, way)
    (finding,) = lint(folder)
    assert finding.fatal
    assert finding.problem.startswith("The variables cannot be read: ")
    assert run(folder).exit_code == 1


def test_a_graph_that_servers_do_not_load_is_told(with_variable, tmp_path):
    folder = shutil.copytree(with_variable, tmp_path / "model")
    content = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(content.replace(b"\x05serve", b"\x05train", 1))
    assert "No graph has the tag serve, which servers load. There are: train" in [f.problem for f in lint(folder)]
    (folder / "saved_model.pb").write_bytes(b"")
    assert "There are: no graphs" in lint(folder)[0].problem


def of_operations(folder: pathlib.Path, *operations: str, output: str = "y", tag: str = "serve") -> pathlib.Path:
    """A SavedModel of these operations, of which the first one gives the only output."""
    meta_graph = saved_model_pb2.SavedModel().meta_graphs.add()
    meta_graph.meta_info_def.tags.append(tag)
    for operation in operations:
        meta_graph.graph_def.node.add(name=operation, op=operation)
    found = meta_graph.signature_def["serving_default"].outputs[output]
    found.name = f"{operations[0]}:0"
    found.tensor_shape.dim.add(size=-1)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model_pb2.SavedModel(meta_graphs=[meta_graph]).SerializeToString())
    return folder


def test_an_operation_of_onednn_is_a_warning_with_the_processor(tmp_path):
    (finding,) = lint(of_operations(tmp_path / "model", "_MklSoftmax", "Softmax", "_MklTanh"))
    assert not finding.fatal
    assert finding.problem == "_MklSoftmax, _MklTanh exist only where TensorFlow is built with oneDNN"
    assert finding.remedy == "Serve it on x86-64, and leave TF_ENABLE_ONEDNN_OPTS on."
    assert sorted(finding.paths) == [("at start", "_MklTanh"), ("serving_default", "_MklSoftmax")]


def test_without_a_version_the_newest_server_is_meant(tmp_path):
    model = of_operations(tmp_path / "model", "_QuantizedMatMul")  # which servers have from 2.17 on
    assert [finding.fatal for finding in lint(model)] == [False]
    lacking, _ = lint(model, "2.16")
    assert lacking.problem == "TensorFlow Serving 2.16 lacks _QuantizedMatMul"
    assert lacking.remedy == "Use a server from 2.17 on, or an export in float32 or bfloat16."


def test_what_keeps_a_model_from_being_served_stands_before_warnings(tmp_path):
    first, second = lint(of_operations(tmp_path / "model", "StringUpper", output="y_bytes", tag="train"))
    assert (first.fatal, second.fatal) == (True, False)
    assert first.problem.startswith("No graph has the tag serve")
    assert second.problem.startswith("The output y_bytes of serving_default ends in _bytes")


def test_an_operation_of_xlas_bridge_is_an_error_and_no_export_has_it(tmp_path):
    model = of_operations(tmp_path / "model", "XlaDynamicUpdateSlice")
    (finding,) = lint(model)
    assert finding.fatal
    assert finding.problem == "XlaDynamicUpdateSlice belongs to XLA's bridge, not to core TensorFlow"
    with pytest.raises(ValueError, match="operations that TensorFlow Serving does not run: XlaDynamicUpdateSlice. Use"):
        check_operations(model)
