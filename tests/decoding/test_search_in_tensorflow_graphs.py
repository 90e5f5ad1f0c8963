"""Searches inside tf.function: dynamic batch and buffer, one trace, core ops, empty batches."""

import functools

import numpy as np
import pytest
from decoding_fakes import HistoryModel, search_space
from keras import ops

from kformer.decoding import NoRepeatedNGrams, beam_search, greedy_search, sample

pytestmark = pytest.mark.tensorflow_only

SEARCHES = {
    "greedy": (1, greedy_search),
    "beam": (3, functools.partial(beam_search, beam_size=3, n_best=2)),
    "sample": (1, functools.partial(sample, seed=5, top_k=4, top_p=0.9)),
}


CONSTRAINTS = [[], [NoRepeatedNGrams(2)]]


def graph_search(name, constraints=()):
    """A tf.function of (sentences (None,), limits (None,), buffer_length ()), and a list with one entry a trace."""
    import tensorflow as tf

    model = HistoryModel(seed=37, sentences=7, vocab_size=6, max_length=4)
    beams, search = SEARCHES[name]
    traces = []
    vector, scalar = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[vector, vector, scalar])
    def run(sentences, limits, buffer_length):
        traces.append(name)
        rows = tf.repeat(sentences, beams)
        state = {"sentence": rows, "history": [tf.zeros_like(rows)], "position": tf.constant(0)}
        return search(model.next_logits, state, search_space(limits, buffer_length, constraints=constraints))

    def eager(sentences, limits, buffer_length):
        state = model.state(sentences, beams)
        return search(model.next_logits, state, search_space(limits, buffer_length, constraints=constraints))

    return run, eager, traces


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=["free", "constrained"])
def test_one_trace_serves_every_batch_and_buffer(name, constraints):
    run, eager, traces = graph_search(name, constraints)
    for sentences, limits, buffer_length in [([3], [4], 4), ([0, 5, 6], [4, 1, 3], 4), ([1, 2], [1, 2], 2)]:
        result = run(np.array(sentences, "int32"), np.array(limits, "int32"), np.int32(buffer_length))
        assert result.tokens.shape == (len(sentences), result.scores.shape[1], buffer_length)
        for graph, expected in zip(result, eager(sentences, limits, buffer_length), strict=True):
            np.testing.assert_allclose(graph, expected, rtol=1e-5)
    assert traces == [name]


@pytest.mark.parametrize("name", SEARCHES)
def test_an_empty_batch_gives_an_empty_result(name):
    run, eager, _ = graph_search(name)
    nothing = np.zeros(0, "int32")
    for search in (run, eager):
        tokens, scores, lengths = search(nothing, nothing, np.int32(3))
        assert tokens.shape[0] == scores.shape[0] == lengths.shape[0] == 0
        assert tokens.shape[2] == 3


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=["free", "constrained"])
def test_graphs_hold_core_ops_only(name, constraints):
    graph = graph_search(name, constraints)[0].get_concrete_function().graph.as_graph_def()
    nodes = [node.op for function in graph.library.function for node in function.node_def]
    nodes += [node.op for node in graph.node]
    assert {"While", "StatelessWhile"} & set(nodes)
    assert not [op for op in nodes if op.startswith("Xla") or op in ("PyFunc", "EagerPyFunc", "VarHandleOp")]


def test_errors_keep_their_type_and_text_inside_a_graph():
    import tensorflow as tf

    @tf.function
    def run(limits):
        return greedy_search(lambda tokens, state: (ops.zeros((3, 2)), state), (), search_space(limits, 3))

    with pytest.raises(ValueError, match="below the vocabulary size 2 of the logits"):
        run(tf.constant([3, 3, 3]))
