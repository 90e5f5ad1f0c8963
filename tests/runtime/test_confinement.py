"""What a SavedModel may do: its operations are looked at before TensorFlow gets it."""

import importlib.util
import pathlib
import re
import shutil

import foreign_models
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.protobuf import saved_model_pb2
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.export.lint import lint
from kformer.export.operations import operations
from kformer.runtime.c_api import SavedModel
from kformer.runtime.confinement import ForbiddenError, allowed_operations, check_confined, forbidden
from kformer.runtime.file_limits import outside_links

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A model with a variable and a table from a file."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocabulary.txt").write_text("one\ntwo\n")
    return foreign_models.with_vocabulary(folder / "model", folder / "vocabulary.txt")


def found(folder):
    return {operation for operation, _ in forbidden(folder)}


def numbers(folder):
    text = np.array([b"two", b"one"], object)
    return SavedModel(folder).run("serving_default", {"text": text})["number"].tolist()


def edited(source: pathlib.Path, target: pathlib.Path, edit) -> pathlib.Path:
    """A copy whose graph an attacker has edited."""
    shutil.copytree(source, target)
    proto = saved_model_pb2.SavedModel.FromString((target / "saved_model.pb").read_bytes())
    edit(proto.meta_graphs[0])
    (target / "saved_model.pb").write_bytes(proto.SerializeToString())
    return target


def test_a_client_cannot_read_files_through_a_model(tmp_path):
    model = foreign_models.reading(tmp_path / "model")
    with pytest.raises(ForbiddenError, match="can reach files, processes or the network.*: ReadFile. .*--trust"):
        SavedModel(model)
    (tmp_path / "secret").write_text("a secret")
    named = np.array([str(tmp_path / "secret").encode()], object)
    read = SavedModel(model, trust=True).run("serving_default", {"text": named})
    assert list(read["content"]) == [b"a secret"]


def test_a_model_that_writes_a_file_when_it_is_loaded_is_refused_before_it_does(tmp_path):
    model = foreign_models.writing_at_start(tmp_path / "model", tmp_path / "written")
    (tmp_path / "written").unlink(missing_ok=True)  # saving it has run the initializer, too
    with pytest.raises(ForbiddenError, match="WriteFile"):
        SavedModel(model)
    assert not (tmp_path / "written").exists()
    SavedModel(model, trust=True)
    assert (tmp_path / "written").read_text() == "written"


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (lambda text: {"a": tf.io.matching_files(text)}, "MatchingFiles"),
        (lambda text: {"a": tf.numpy_function(lambda array: array, [text], tf.string)}, "PyFunc"),
        (lambda text: {"a": tf.raw_ops.DebugIdentity(input=text, debug_urls=["file:///tmp/a"])}, "DebugIdentity"),
        (lambda text: {"a": tf.raw_ops.RestoreV2(
            prefix=text[0], tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[0]}, "RestoreV2"),
        (lambda text: {"a": tf.data.TextLineDataset(text).reduce(b"", lambda old, new: new)}, "TextLineDataset"),
        (lambda text: {"a": tf.raw_ops.ImmutableConst(
            dtype=tf.uint8, shape=[4], memory_region_name="/etc/passwd")}, "ImmutableConst"),
    ],
)  # fmt: skip
def test_operations_that_reach_files_or_programs_are_found_by_name(tmp_path, function, operation):
    assert operation in found(foreign_models.saved(tmp_path / "model", function))


def test_an_operation_within_a_loop_is_found_with_its_function(tmp_path):
    places = forbidden(foreign_models.reading(tmp_path / "model"))
    assert [operation for operation, _ in places] == ["ReadFile"]
    assert places[0].path[-1].endswith("ReadFile")
    assert "while_body" in places[0].path[0]


def test_a_table_from_the_model_s_own_file_and_its_own_variables_are_allowed(words):
    assert found(words) == set()
    assert {"InitializeTableFromTextFileV2", "RestoreV2", "SaveV2"} <= operations(words)
    assert numbers(words) == [11, 10]


def test_a_table_from_another_file_is_refused(words, tmp_path):
    def elsewhere(meta_graph):
        """The initializer gets a constant in place of the asset's path."""
        node = next(node for node in meta_graph.graph_def.node if "initializer" in node.attr["f"].func.name)
        path = meta_graph.graph_def.node.add(name="path", op="Const")
        path.attr["dtype"].type = tf.string.as_datatype_enum
        path.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/passwd"))
        node.input[next(index for index, name in enumerate(node.input) if "ReadVariableOp" in name)] = "path"

    assert found(edited(words, tmp_path / "model", elsewhere)) == {"InitializeTableFromTextFileV2"}


def test_the_path_of_a_table_cannot_be_exchanged_through_a_variable(words, tmp_path):
    def assignment(nodes):
        return next(node for node in nodes if node.op == "AssignVariableOp")

    def assigned_twice(meta_graph):
        nodes = meta_graph.graph_def.node
        first = assignment(nodes)
        path = nodes.add(name="path", op="Const")
        path.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/passwd"))
        second = nodes.add()
        second.CopyFrom(first)
        second.name = "second"
        second.input[1] = "path"

    def another_handle(meta_graph):
        nodes = meta_graph.graph_def.node
        asset = assignment(nodes).input[0]
        handle = nodes.add()
        handle.CopyFrom(next(node for node in nodes if node.name == asset))
        handle.name = "another"

    def handles(meta_graph):
        nodes = meta_graph.graph_def.node
        another_handle(meta_graph)
        return [node for node in nodes if node.name in (nodes[-1].name, assignment(nodes).input[0])]

    def without_names(meta_graph):
        """TensorFlow keeps both variables under the name "", not under those of their nodes."""
        for handle in handles(meta_graph):
            handle.attr["shared_name"].s = b""

    def another_container(meta_graph):
        handles(meta_graph)[-1].attr["container"].s = b"localhost"  # the one that has no name, too

    def given_to_a_function(meta_graph):
        nodes = meta_graph.graph_def.node
        call(nodes, assignment(nodes).input[0], "any", op="StatefulPartitionedCall", name="given")

    edits = (assigned_twice, another_handle, without_names, another_container, given_to_a_function)
    for number, edit in enumerate(edits):
        assert found(edited(words, tmp_path / str(number), edit)) == {"InitializeTableFromTextFileV2"}


def with_table(folder: pathlib.Path, graph) -> pathlib.Path:
    """A SavedModel that runs the node "call" when it is loaded, with a path of its own, `asset`, and a foreign one."""
    meta_graph = saved_model_pb2.SavedModel().meta_graphs.add()
    meta_graph.asset_file_def.add(filename="words.txt").tensor_info.name = "asset:0"
    meta_graph.collection_def["legacy_init_op"].node_list.value.append("call")
    for name in ("asset", "foreign"):
        meta_graph.graph_def.node.add(name=name, op="Const")
    content = graph(meta_graph.graph_def)
    folder.mkdir()
    model = saved_model_pb2.SavedModel(meta_graphs=[meta_graph]).SerializeToString()
    (folder / "saved_model.pb").write_bytes(model.replace(*content) if content else model)
    return folder


def function(graph_def, name, arguments, *, implements="", result="a"):
    """Adds a function to a graph."""
    added = graph_def.library.function.add()
    added.signature.name = name
    for argument in arguments.split():
        added.signature.input_arg.add(name=argument)
    added.signature.output_arg.add(name=result)
    if implements:
        added.attr["api_implements"].s = implements.encode()
    return added


def reading_table(graph_def, arguments="path", path="path"):
    """Adds the function `reading`, which fills a table from one of its arguments."""
    reading = function(graph_def, "reading", arguments)
    reading.node_def.add(name="table", op="HashTableV2")
    reading.node_def.add(name="fill", op="InitializeTableFromTextFileV2", input=["table:table_handle:0", path])
    return reading


def call(nodes, inputs, called="", op="PartitionedCall", name="call"):
    """Adds a node that calls a function."""
    node = nodes.add(name=name, op=op, input=inputs.split())
    if called:
        node.attr["f"].func.name = called
    return node


@pytest.mark.parametrize("path", ["asset", "foreign"])
def test_a_path_is_followed_through_calls(tmp_path, path):
    def graph(graph_def):
        reading_table(graph_def)
        middle = function(graph_def, "middle", "one two")
        middle.node_def.add(name="same", op="Identity", input=["two"])
        call(middle.node_def, "same:output:0", "reading")
        call(graph_def.node, f"foreign {path}", "middle")

    refused = {"InitializeTableFromTextFileV2"} if path == "foreign" else set()
    assert found(with_table(tmp_path / "model", graph)) == refused


def by_a_gradient(graph_def):
    """TensorFlow computes the gradient of `harmless` with `reading`, which gets the same inputs."""
    reading_table(graph_def)
    function(graph_def, "harmless", "path")
    graph_def.library.gradient.add(function_name="harmless", gradient_func="reading")
    call(graph_def.node, "foreign", "harmless", op="SymbolicGradient")


def by_a_placeholder(graph_def):
    reading_table(graph_def)
    middle = function(graph_def, "middle", "path")
    call(middle.node_def, "path").attr["f"].placeholder = "given"
    call(graph_def.node, "foreign", "middle").attr["f"].func.attr["given"].func.name = "reading"


def by_a_placeholder_before_others(graph_def):
    by_a_placeholder(graph_def)
    function(graph_def, "last", "path").node_def.add(name="x", op="Identity", input=["path"])


def by_an_exchange(graph_def):
    """TensorFlow may call `other` in place of `harmless`."""
    reading_table(graph_def)
    function(graph_def, "harmless", "path", implements="both")
    call(function(graph_def, "other", "path", implements="both").node_def, "path", "reading")
    call(graph_def.node, "foreign", "harmless")


def by_an_attribute_with_two_values(graph_def):
    reading_table(graph_def)
    function(graph_def, "harmless", "path")
    value = attr_value_pb2.AttrValue
    written = value(func={"name": "harmless"}).SerializeToString()
    written += value(list={"func": [{"name": "reading"}]}).SerializeToString()
    marked = value(s=b"x" * (len(written) - 2))  # as long as that
    call(graph_def.node, "asset foreign", op="Case").attr["branches"].CopyFrom(marked)
    return marked.SerializeToString(), written


HIDDEN_CALLS = [
    *(by_a_gradient, by_a_placeholder, by_a_placeholder_before_others, by_an_exchange),
    by_an_attribute_with_two_values,
]


@pytest.mark.parametrize("graph", HIDDEN_CALLS)
def test_a_call_that_no_node_shows_does_not_go_unseen(tmp_path, graph):
    refused = found(with_table(tmp_path / "model", graph))
    assert refused & {"InitializeTableFromTextFileV2", "an attribute that a call fills"}


def by_a_list_as_input(graph_def):
    """The first input is both `one` and `foreign`, so TensorFlow's second argument is `foreign`."""
    reading_table(graph_def, "one path three")
    middle = function(graph_def, "middle", "one foreign asset")
    middle.node_def.add(name="list", op="IdentityN", input=["one", "foreign"])
    call(middle.node_def, "list:output asset", "reading")
    call(graph_def.node, "asset foreign asset", "middle")


def by_a_list_with_the_name_of_a_part(graph_def):
    """As above: the function `list` calls its only output, a list, `a:0`."""
    reading_table(graph_def, "one path three")
    function(graph_def, "list", "one two", result="a:0").signature.output_arg[0].type_list_attr = "T"
    middle = function(graph_def, "middle", "one foreign asset")
    call(middle.node_def, "one foreign", op="list", name="node")
    call(middle.node_def, "node:a:0 asset", "reading")
    call(graph_def.node, "asset foreign asset", "middle")


def by_an_input_without_tensors(graph_def):
    reading_table(graph_def, "one path")
    middle = function(graph_def, "middle", "foreign asset")
    middle.node_def.add(name="nothing", op="NoOp")
    call(middle.node_def, "nothing asset foreign", "reading")
    call(graph_def.node, "foreign asset", "middle")


def by_an_argument_that_is_a_list(attribute):
    def graph(graph_def):
        reading = reading_table(graph_def, "list path")
        setattr(reading.signature.input_arg[0], attribute, "N")
        call(graph_def.node, "asset asset foreign", "reading")

    return graph


def by_a_node_with_the_name_of_an_argument(graph_def):
    reading_table(graph_def, "one path").node_def.add(name="path", op="Identity", input=["one"])
    call(graph_def.node, "asset foreign", "reading")


def by_an_argument_with_the_name_of_the_asset(graph_def):
    reading_table(graph_def, "asset", path="asset")
    call(graph_def.node, "foreign", "reading")


def by_a_call_under_the_functions_own_name(graph_def):
    reading_table(graph_def)
    call(graph_def.node, "foreign", op="reading")


def with_variable(graph_def, name, path):
    """Adds a variable, and what assigns a path to it."""
    graph_def.node.add(name=name, op="VarHandleOp").attr["shared_name"].s = name.encode()
    graph_def.node.add(name=f"assign_{name}", op="AssignVariableOp", input=[name, path])


@pytest.mark.parametrize("path", ["asset", "foreign"])
def test_a_path_is_followed_through_a_variable(tmp_path, path):
    def graph(graph_def):
        reading_table(graph_def)
        with_variable(graph_def, "variable", path)
        graph_def.node.add(name="read", op="ReadVariableOp", input=["variable"])
        call(graph_def.node, "read", "reading")

    refused = {"InitializeTableFromTextFileV2"} if path == "foreign" else set()
    assert found(with_table(tmp_path / "model", graph)) == refused


def by_a_function_with_the_name_of_reading_a_variable(graph_def):
    """It may give any path, whatever is assigned to the variable."""
    reading_table(graph_def)
    function(graph_def, "ReadVariableOp", "handle")
    with_variable(graph_def, "variable", "asset")
    call(graph_def.node, "variable", op="ReadVariableOp", name="read")
    call(graph_def.node, "read", "reading")


def by_an_argument_with_the_name_of_a_variable(graph_def):
    """`variable` is another variable in the function than in the outer graph."""
    reading_table(graph_def)
    with_variable(graph_def, "variable", "asset")
    with_variable(graph_def, "other", "foreign")
    middle = function(graph_def, "middle", "variable")
    middle.node_def.add(name="read", op="ReadVariableOp", input=["variable"])
    call(middle.node_def, "read:value:0", "reading")
    call(graph_def.node, "other", "middle")


@pytest.mark.parametrize(
    "graph",
    [
        by_a_list_as_input,
        by_a_list_with_the_name_of_a_part,
        by_an_input_without_tensors,
        by_an_argument_that_is_a_list("number_attr"),
        by_an_argument_that_is_a_list("type_list_attr"),
        by_a_node_with_the_name_of_an_argument,
        by_an_argument_with_the_name_of_the_asset,
        by_a_call_under_the_functions_own_name,
        by_a_function_with_the_name_of_reading_a_variable,
        by_an_argument_with_the_name_of_a_variable,
    ],
)
def test_the_path_of_a_table_is_the_tensor_that_tensorflow_takes(tmp_path, graph):
    assert found(with_table(tmp_path / "model", graph)) == {"InitializeTableFromTextFileV2"}


@pytest.mark.parametrize("dtype", [tf.resource, tf.variant])
@pytest.mark.parametrize(
    "operation", ["Const", "HostConst", "ParseTensor", "DeserializeSparse", "DeserializeManySparse"]
)
def test_bytes_that_become_the_handle_of_a_variable_are_refused(tmp_path, operation, dtype):
    """They could name the variable that holds the path of a table's file, and no node shows that it is assigned."""

    def graph(graph_def):
        graph_def.node.add(name="call", op=operation).attr["dtype"].type = dtype.as_datatype_enum

    assert found(with_table(tmp_path / "model", graph)) == {f"{operation} of a handle"}


def test_variables_that_are_restored_are_no_handles(words, tmp_path):
    def edit(meta_graph):
        nodes = (node for function in meta_graph.graph_def.library.function for node in function.node_def)
        restoring = next(node for node in (*meta_graph.graph_def.node, *nodes) if node.op == "RestoreV2")
        restoring.attr["dtypes"].list.type[0] = tf.variant.as_datatype_enum

    assert found(edited(words, tmp_path / "model", edit)) == {"RestoreV2 of a handle"}


def test_a_caller_cannot_give_the_type_of_a_constant(tmp_path):
    def graph(graph_def):
        inner = function(graph_def, "inner", "")
        inner.node_def.add(name="value", op="Const").attr["dtype"].placeholder = "T"
        call(graph_def.node, "", "inner").attr["f"].func.attr["T"].type = tf.resource.as_datatype_enum

    assert found(with_table(tmp_path / "model", graph)) == {"Const of a handle"}


def test_lint_names_what_is_no_operation(tmp_path):
    def graph(graph_def):
        function(graph_def, "twice", "path")
        function(graph_def, "twice", "path")
        by_a_placeholder(graph_def)

    problems = [finding.problem for finding in lint(with_table(tmp_path / "model", graph))]
    for name in ("two functions of one name", "an attribute that a call fills"):
        assert any(problem.startswith(f"{name} can reach files") for problem in problems)


def test_a_link_does_not_hide_behind_many_others(words, tmp_path):
    model = edited(words, tmp_path / "model", lambda meta_graph: None)
    (model / "assets" / "vocabulary.txt").unlink()
    (model / "assets" / "vocabulary.txt").symlink_to("/etc/passwd")
    for number in range(10_000):
        (model / f"z{number}").symlink_to(".")
    for check in (check_confined, outside_links, lint):
        with pytest.raises(ValueError, match="has more than 10,000 files. Name the folder of one version"):
            check(model)


@pytest.mark.parametrize("name", ["../../vocabulary.txt", "/etc/passwd"])
def test_an_asset_that_lies_elsewhere_is_refused(name, words, tmp_path):
    def elsewhere(meta_graph):
        meta_graph.asset_file_def[0].filename = name

    with pytest.raises(ForbiddenError, match=f"files outside its folder: {re.escape(name)}"):
        check_confined(edited(words, tmp_path / "model", elsewhere))


def test_a_link_that_leads_out_of_the_folder_is_refused(words, tmp_path):
    linked = edited(words, tmp_path / "link", lambda meta_graph: None)
    (linked / "assets" / "vocabulary.txt").unlink()
    (linked / "assets" / "vocabulary.txt").symlink_to("/etc/passwd")
    with pytest.raises(ForbiddenError, match="files outside its folder: .*assets/vocabulary.txt"):
        check_confined(linked)
    assert any("Links lead out of the folder" in finding.problem for finding in lint(linked))


def test_clients_cannot_ask_for_what_saves_and_restores(words, tmp_path):
    """A signature that names the saver's operations, with the path as its input, would write to any place."""

    def with_signature(name):
        def edit(meta_graph):
            saver = meta_graph.saver_def
            signature = meta_graph.signature_def["evil"]
            signature.inputs["text"].name = saver.filename_tensor_name
            signature.outputs["a"].name = getattr(saver, name)

        return edit

    saving = edited(words, tmp_path / "saving", with_signature("save_tensor_name"))
    assert found(saving) == {"SaveV2", "MergeV2Checkpoints"}
    assert found(edited(words, tmp_path / "restoring", with_signature("restore_op_name"))) == {"RestoreV2"}


def start_by_signature(meta_graph, tensor):
    meta_graph.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = tensor


def start_by_collection(name):
    def edit(meta_graph, tensor):
        del meta_graph.signature_def["__saved_model_init_op"]
        meta_graph.collection_def[name].node_list.value.append(tensor)

    return edit


@pytest.mark.parametrize(
    "start", [start_by_signature, start_by_collection("saved_model_main_op"), start_by_collection("legacy_init_op")]
)
def test_what_saves_does_not_run_when_the_model_is_loaded(words, tmp_path, start):
    model = edited(words, tmp_path / "model", lambda graph: start(graph, graph.saver_def.save_tensor_name))
    assert {"SaveV2", "MergeV2Checkpoints"} <= found(model)


def test_clients_cannot_ask_for_what_fills_a_table(words, tmp_path):
    """Its path is a constant, which the loader replaces by the asset's path when it loads the model, and only then."""

    def edit(meta_graph):
        node = next(node for node in meta_graph.graph_def.node if "initializer" in node.attr["f"].func.name)
        meta_graph.signature_def["evil"].outputs["a"].name = f"{node.name}:0"

    assert found(edited(words, tmp_path / "model", edit)) == {"InitializeTableFromTextFileV2"}


def test_a_signature_does_not_run_what_saves_through_an_order_of_operations(words, tmp_path):
    def edit(meta_graph):
        saving = meta_graph.saver_def.save_tensor_name.split(":")[0]
        meta_graph.graph_def.node.add(name="evil", op="NoOp", input=[f"^{saving}"])
        meta_graph.signature_def["evil"].outputs["a"].name = "evil:0"

    assert found(edited(words, tmp_path / "model", edit)) == {"SaveV2", "MergeV2Checkpoints"}


def test_variables_are_restored_from_the_model_s_own_files_alone(words, tmp_path):
    def edit(meta_graph):
        path = meta_graph.graph_def.node.add(name="path", op="Const")
        path.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/elsewhere"))
        name = meta_graph.saver_def.restore_op_name.split(":")[0]
        next(node for node in meta_graph.graph_def.node if node.name == name).input[0] = "path"

    assert "RestoreV2" in found(edited(words, tmp_path / "model", edit))


def test_operations_that_nobody_runs_count_too(words, tmp_path):
    def unused(meta_graph):
        function = meta_graph.graph_def.library.function.add()
        function.signature.name = "unused"
        function.node_def.add(name="read", op="ReadFile")

    assert found(edited(words, tmp_path / "model", unused)) == {"ReadFile"}


def test_operations_that_kformer_does_not_know_are_refused(words, tmp_path):
    def new(meta_graph):
        meta_graph.graph_def.node.add(name="new", op="ReadFileV7")

    assert found(edited(words, tmp_path / "model", new)) == {"ReadFileV7"}


def test_exports_of_kformer_are_allowed(numbers_export):
    assert found(numbers_export / "1") == set()


def test_the_list_is_what_the_registry_and_the_rules_say():
    script = pathlib.Path(__file__).parents[2] / "export" / "allowed_operations.py"
    spec = importlib.util.spec_from_file_location("allowed_operations", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    here = module.registered()
    # Other versions of TensorFlow have others: each must be judged by the same rules.
    assert {name for name in allowed_operations() if name in here} == {
        name for name in module.allowed_of(here) if name in allowed_operations()
    }
    assert not [name for name in here if name.startswith("Read") and "File" in name and name in allowed_operations()]


def test_lint_names_what_reaches_files(tmp_path):
    result = CliRunner().invoke(app, ["lint", str(foreign_models.reading(tmp_path / "model"))])
    assert "warning: ReadFile can reach files" in result.stdout
    assert "loads the model with --trust alone" in result.stdout
    assert result.exit_code == 0  # TensorFlow Serving runs it


def test_commands_refuse_a_foreign_model_unless_it_is_trusted(tmp_path):
    def upper(text):
        with tf.control_dependencies([tf.io.write_file(str(tmp_path / "written"), "a")]):
            return {"translation": tf.strings.upper(text), "score": tf.zeros([tf.size(text)])}

    model = str(foreign_models.saved(tmp_path / "model", upper))
    lines, output = tmp_path / "lines", tmp_path / "output"
    lines.write_text("a cat\n")
    command = ["translate", model, "--input", str(lines), "--output", str(output)]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, ForbiddenError)
    assert not (tmp_path / "written").exists()
    CliRunner().invoke(app, [*command, "--trust"], catch_exceptions=False)
    assert output.read_text() == "A CAT\n"
    plot = ["plot", "attention", model, "--text", "a cat", "--output", str(tmp_path / "map.png")]
    assert isinstance(CliRunner().invoke(app, plot).exception, ForbiddenError)
    with pytest.raises(ValueError, match="no signature translate_detailed"):  # so it was loaded
        CliRunner().invoke(app, [*plot, "--trust"], catch_exceptions=False)
    with pytest.raises(ValueError, match="--trust is for a SavedModel on this machine"):
        CliRunner().invoke(
            app, ["translate", "--trust", "--server", "http://localhost:1/v1/models/m"], catch_exceptions=False
        )
