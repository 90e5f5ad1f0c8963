"""Searches in stretches: finished sentences leave, and every sentence gets what it gets where nobody leaves."""

import numpy as np
import pytest
from decoding_fakes import HistoryModel, ids, search_space
from keras import ops

from kformer.decoding import NoRepeatedNGrams
from kformer.decoding.beam_search import BeamSearch
from kformer.decoding.greedy import GreedySearch
from kformer.decoding.search import run
from kformer.decoding.shrinking_batch import run_in_stretches

pytestmark = pytest.mark.tensorflow_only  # It needs shapes that change in a loop.

LIMITS = np.array([4, 1, 3, 0, 4, 2, 4], "int32")


class HistoryStretches:
    """A `HistoryModel` that works in stretches. It notes how many sentences each stretch has, and its room.

    The context is (sentence numbers of the rows, room), the history (last letters of the rows, position).
    """

    def __init__(self, model, beams, more_room):
        self.model = model
        self.beams = beams
        self.more_room = more_room
        self.stretches = []

    def start(self, sentences, room):
        state = self.model.state(sentences, self.beams)
        return (state["sentence"], ops.convert_to_tensor(room)), (state["history"][0], ops.convert_to_tensor(0))

    def begin(self, context):
        rows, room = context
        self.stretches.append((len(rows) // self.beams, room))

        def next_logits(tokens, history):
            state = {"sentence": rows, "history": [history[0]], "position": history[1]}
            logits, state = self.model.next_logits(tokens, state)
            return logits, (state["history"][0], state["position"])

        return next_logits

    def is_full(self, context, history):
        return history[1] >= context[1]

    def keep(self, context, history, sentences):
        rows = ops.reshape(ops.expand_dims(sentences * self.beams, 1) + ops.arange(self.beams), (-1,))
        room = context[1] + (self.more_room if self.is_full(context, history) else 0)
        return (ops.take(context[0], rows), room), (ops.take(history[0], rows), history[1])


def reorder(history, rows):
    return ops.take(history[0], rows), history[1]


def searches(limits, beams, **rules):
    space = search_space(limits, 4, **rules)
    return GreedySearch(space) if beams == 1 else BeamSearch(space, beams, 0.6, 2, reorder)


@pytest.mark.parametrize("more_room", [1, 3, 9])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"prefix": ids("ab", "", "c", "", "a", "ba", "bc"), "min_length": 2, "constraints": [NoRepeatedNGrams(1)]},
        {"min_length": np.array([3, 0, 1, 2, 0, 1, 2])},
    ],
    ids=["free", "constrained", "least lengths"],
)
def test_every_sentence_gets_what_it_gets_where_nobody_leaves(rules, beams, more_room):
    model = HistoryModel(seed=3, sentences=7, vocab_size=6, max_length=4)
    search = searches(LIMITS, beams, **rules)
    stretches = HistoryStretches(model, beams, more_room)
    context, history = stretches.start(range(7), more_room)
    found = run_in_stretches(search, stretches, context, history)
    together = HistoryStretches(model, beams, more_room)
    context, history = together.start(range(7), 4)
    expected = run(search, together.begin(context), history)
    for part, whole in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-5)
    assert len(stretches.stretches) > 1


@pytest.mark.parametrize(
    ("limits", "room", "expected"),
    [
        # Two of eight are finished after one step, one more of the six that stay after two, which is too small a share.
        ([1, 4, 1, 2, 4, 4, 4, 4], 4, [(8, 4), (6, 4)]),
        # The room is used up after two steps: there is more, and nobody leaves.
        ([4, 4, 4, 4, 4, 4], 2, [(6, 2), (6, 4)]),
        # The same, and the finished one leaves, though it is a small share.
        ([4, 4, 4, 4, 1, 4], 2, [(6, 2), (5, 4)]),
    ],
)
def test_a_stretch_ends_when_a_quarter_is_finished_or_the_room_is_used_up(limits, room, expected):
    model = HistoryModel(seed=3, sentences=8, vocab_size=6, max_length=4)
    search = GreedySearch(search_space(np.array(limits, "int32"), 4, min_length=4))  # Only limits end them.
    stretches = HistoryStretches(model, 1, more_room=2)
    found = run_in_stretches(search, stretches, *stretches.start(range(len(limits)), room))
    assert [(sentences, int(room)) for sentences, room in stretches.stretches] == expected
    np.testing.assert_array_equal(found.lengths[:, 0], limits)


@pytest.mark.parametrize("beams", [1, 3])
def test_an_empty_batch_gives_an_empty_result(beams):
    model = HistoryModel(seed=3, sentences=1, vocab_size=6, max_length=4)
    stretches = HistoryStretches(model, beams, 2)
    found = run_in_stretches(searches(LIMITS[:0], beams), stretches, *stretches.start([], 2))
    assert found.tokens.shape == (0, 1 if beams == 1 else 2, 4)
    assert stretches.stretches == []
