"""What a beam search looks at: a tree that can be worked out on paper, and one beside `beam_search`."""

import numpy as np
import pytest
from decoding_fakes import END, HistoryModel, search_space, spelling_model, word

from kformer.decoding import beam_search
from kformer.decoding.beam_search import BeamSearch
from kformer.decoding.search import gather_rows
from kformer.decoding.tracing import START, trace_beam_search


def trace(next_logits, state, limit, *, beam_size, length_penalty=0.0, sentences=1):
    space = search_space([limit] * sentences, limit)
    search = BeamSearch(space, beam_size, length_penalty, 1, gather_rows)
    return trace_beam_search(search, next_logits, state)


def spelled(found, number):
    tokens = []
    while number != START:
        tokens.append(found[number].token)
        number = found[number].parent
    return word(tokens[::-1])


def test_the_tree_of_a_small_search():
    probabilities = {"": {"a": 0.6, "b": 0.3, "c": 0.1}, "a": {"d": 0.9, ".": 0.1}}
    found = trace(spelling_model(probabilities), np.zeros(2, "int32"), 5, beam_size=2)
    told = [(spelled(found, number), one.length, one.outcome) for number, one in enumerate(found)]
    assert told == [
        ("a", 1, "kept"),
        ("b", 1, "kept"),
        ("c", 1, "pruned"),
        ("ad", 2, "kept"),
        ("b.", 2, "finished"),
        ("a.", 2, "finished"),
        ("ad.", 3, "finished"),
    ]
    expected = np.log([0.6, 0.3, 0.1, 0.54, 0.3, 0.06, 0.54])
    np.testing.assert_allclose([one.log_prob for one in found], expected, rtol=1e-5)
    assert [one.score for one in found] == [one.log_prob for one in found]  # a penalty of 0 changes nothing


@pytest.mark.parametrize("beam_size", [2, 3])
def test_the_best_finished_extension_is_what_the_search_finds(beam_size):
    model = HistoryModel(seed=5, sentences=1, vocab_size=6, max_length=5)
    state = model.state([0], beam_size)
    found = trace(model.next_logits, state, 5, beam_size=beam_size, length_penalty=0.6)
    finished = [number for number, one in enumerate(found) if one.outcome == "finished"]
    best = max(finished, key=lambda number: found[number].score)
    result = beam_search(model.next_logits, state, search_space([5], 5), beam_size=beam_size, length_penalty=0.6)
    assert spelled(found, best) == word(result.tokens[0, 0])
    assert found[best].score == pytest.approx(float(result.scores[0, 0]), rel=1e-5)
    assert found[best].token == END
    for step in {one.length for one in found}:
        outcomes = [one.outcome for one in found if one.length == step]
        assert outcomes.count("kept") <= beam_size
        assert len(outcomes) <= 2 * beam_size


def test_a_trace_is_of_one_sentence():
    with pytest.raises(ValueError, match="exactly one sentence. Received: 2 sentences"):
        trace(spelling_model({}), np.zeros(4, "int32"), 3, beam_size=2, sentences=2)
