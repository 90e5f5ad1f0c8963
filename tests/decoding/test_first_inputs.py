"""What a model receives first, which may be another id for each sentence; and ids that no search produces.

The model counts down: behind 7 comes 6, and 2 is the end. So the numbers say with which id a sentence began.
"""

import numpy as np
import pytest
from keras import ops

from kformer.decoding import NoRepeatedNGrams, Prefix, SearchSpace, beam_search, greedy_search, sample
from kformer.decoding.opennmt_beam_search import OpenNMTBeamSearch
from kformer.decoding.search import gather_rows, run
from kformer.decoding.transformers_beam_search import TransformersBeamSearch

PAD, START, END = 0, 1, 2
STARTS = np.array([6, 4, 1, 5], "int32")
LOGITS = 9.0 * np.eye(8, k=-1) - 9.0 * np.eye(8, k=1)
LOGITS[START] = LOGITS[7]  # the usual start is as a 7


def following(tokens, state):
    return ops.take(ops.convert_to_tensor(LOGITS, "float32"), tokens, axis=0), state


def space(starts=STARTS, limit=7, **options):
    return SearchSpace(START, END, PAD, np.full(len(STARTS), limit), limit, starts=starts, **options)


def beams(kind, *rules):
    return lambda model, state, space: run(kind(space, 3, 0.6, 1, gather_rows, *rules), model, state)


SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *given: beam_search(*given, beam_size=3),
    "transformers": beams(TransformersBeamSearch, False),
    "opennmt": beams(OpenNMTBeamSearch),
    "drawn": lambda *given: sample(*given, seed=3, top_k=1),
}


@pytest.fixture(params=SEARCHES)
def search(request):
    return lambda space: SEARCHES[request.param](following, (), space)


def rows(found):
    return [[token for token in row[0].tolist() if token != PAD] for row in ops.convert_to_numpy(found.tokens)]


def test_each_sentence_begins_behind_its_own_id(search):
    assert rows(search(space())) == [[5, 4, 3, 2], [3, 2], [6, 5, 4, 3, 2], [4, 3, 2]]
    assert rows(search(space(starts=None))) == [[6, 5, 4, 3, 2]] * 4


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("greedy", lambda length: 1),
        ("drawn", lambda length: 1),
        ("beam", lambda length: ((5 + length) / 6) ** 0.6),
        ("opennmt", lambda length: ((5 + length) / 6) ** 0.6),
        ("transformers", lambda length: length**0.6),
    ],
)
def test_this_id_counts_for_no_length_and_no_score(name, norm):
    found = SEARCHES[name](following, (), space())
    assert ops.convert_to_numpy(found.lengths).tolist() == [[4], [2], [5], [3]]
    log_probs = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    for start, score in zip([6, 4, 7, 5], ops.convert_to_numpy(found.scores)[:, 0], strict=True):
        gains = [log_probs[token, token - 1] for token in range(start, END, -1)]
        assert score == pytest.approx(sum(gains) / norm(len(gains)), rel=1e-3)


def test_a_limit_and_a_prefix_begin_behind_it(search):
    short = rows(search(space(limit=2)))
    assert [(row[0], len(row)) for row in short] == [(5, 2), (3, 2), (6, 2), (4, 2)]
    prefix = Prefix(np.array([[7, 0], [0, 0], [3, 7], [0, 0]]), PAD)
    assert rows(search(space(limit=7, constraints=[prefix]))) == [
        [7, 6, 5, 4, 3, 2],
        [3, 2],
        [3, 7, 6, 5, 4, 3, 2],
        [4, 3, 2],
    ]


def test_it_is_no_part_of_the_sequence_that_may_not_repeat(search):
    """A 4 may come once behind the first id 4."""
    prefix = Prefix(np.array([[0], [4], [0], [0]]), PAD)
    found = rows(search(space(limit=3, constraints=[prefix, NoRepeatedNGrams(1)])))
    assert found[1] == [4, 3, 2]


def test_ids_that_never_come(search):
    found = rows(search(space(starts=np.array([6, 6, 6, 6]), never=(4, 6))))
    assert not {4, 6} & {token for row in found for token in row}


@pytest.mark.parametrize("count", [1, 4])
def test_the_best_tokens_are_those_of_all_that_may_come(count):
    given = space(never=(7, 3, 5))
    logits = np.random.default_rng(5).normal(size=(4, 8))
    logits[:, [7, 3, 5, PAD, START]] += 5
    states = given.start(np.zeros((4, 0), "int32"))
    log_probs, ids = (ops.convert_to_numpy(part) for part in given.best_tokens(states, logits, count))
    every = ops.convert_to_numpy(given.log_probabilities(states, logits))
    order = np.argsort(-every, axis=1, kind="stable")[:, : min(count, 3)]
    np.testing.assert_array_equal(ids[:, :3], order)
    np.testing.assert_allclose(log_probs[:, :3], np.take_along_axis(every, order, axis=1), rtol=1e-5)
