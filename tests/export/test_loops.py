"""The loops of an int8 export, rewritten in its graph."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from kformer.export.loops import run_loops_as_functions
from kformer.runtime.c_api import SavedModel

pytestmark = pytest.mark.tensorflow_only


class Repeater(tf.Module):
    """Appends "!" to each text, in a loop of loops: twice as often as the number of texts."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def repeat(self, text):
        def append(number, text):
            weights = tf.nn.softmax(tf.ones([1, 2]))  # an operation that becomes one of oneDNN
            mark = tf.where(weights[0, 0] == 0.5, "!", "?")
            return number + 1, text + mark

        def append_twice(number, text):
            _, text = tf.while_loop(lambda inner, _: inner < 2, append, (0, text))
            return number + 1, text

        repeats = tf.size(text)
        _, marked = tf.while_loop(lambda number, _: number < repeats, append_twice, (0, text))
        return {"translation": marked, "score": tf.zeros_like(text, tf.float32)}


class Chooser(tf.Module):
    """Appends "?" and then "!" to each text, in a loop with a condition, once for each text."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def repeat(self, text):
        def append(number, text):
            return number + 1, tf.cond(number > 0, lambda: text + "!", lambda: text + "?")

        _, marked = tf.while_loop(lambda number, _: number < tf.size(text), append, (0, text))
        return {"translation": marked, "score": tf.zeros_like(text, tf.float32)}


def save(module, path):
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.repeat})
    return path


@pytest.fixture
def saved(tmp_path):
    return save(Repeater(), tmp_path / "model")


def loops_of(path):
    model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    functions = model.meta_graphs[0].graph_def.library.function
    return [node for function in functions for node in function.node_def if node.op.endswith("While")], functions


def test_the_results_stay_in_the_c_api_and_in_python(saved):
    run_loops_as_functions(saved)
    assert list(SavedModel(saved)([b"a", b"b"])["translation"]) == [b"a!!!!", b"b!!!!"]
    found = tf.saved_model.load(str(saved)).signatures["serving_default"](text=tf.constant(["a"]))
    assert found["translation"].numpy().tolist() == [b"a!!"]


def test_a_loop_with_a_condition_runs_too(tmp_path):
    saved = save(Chooser(), tmp_path / "model")
    run_loops_as_functions(saved)
    assert list(SavedModel(saved)([b"a", b"b", b"c"])["translation"]) == [b"a?!!", b"b?!!", b"c?!!"]


def test_the_innermost_loop_has_the_simple_executor_and_onednn(saved):
    before, _ = loops_of(saved)
    assert [loop.attr["_lower_using_switch_merge"].b for loop in before] == [True, True]
    run_loops_as_functions(saved)
    loops, functions = loops_of(saved)
    assert [loop.attr["_lower_using_switch_merge"].b for loop in loops] == [False, False]
    simple = [loop for loop in loops if loop.attr["body"].func.attr["_executor"].s == b"SINGLE_THREADED_EXECUTOR"]
    assert len(simple) == 1
    body = next(one for one in functions if one.signature.name == simple[0].attr["body"].func.name)
    assert {node.op for node in body.node_def} >= {"_MklSoftmax"}
    assert "Softmax" not in {node.op for node in body.node_def}
