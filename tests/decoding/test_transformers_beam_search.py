"""Beam search by the rules of transformers, on small tables of probabilities."""

import numpy as np
import pytest
from keras import ops

from kformer.decoding import Prefix, SearchSpace
from kformer.decoding.search import gather_rows, run
from kformer.decoding.transformers_beam_search import TransformersBeamSearch

PAD, START, END = 0, 1, 2


def search(chances, limit, constraints=(), **options):
    """The best sequence of two beams, without padding, and its score. Row t of `chances` follows the token t."""
    table = np.log(np.asarray(chances, "float32") + 1e-9)
    space = SearchSpace(START, END, PAD, np.array([limit]), limit, constraints)
    beams = TransformersBeamSearch(space, 2, 1.0, 1, gather_rows, forced_end=False, **options)
    result = run(beams, lambda tokens, state: (ops.take(table, tokens, axis=0), state), ())
    tokens = np.asarray(result.tokens)[0, 0].tolist()
    return [token for token in tokens if token != PAD], float(np.asarray(result.scores)[0, 0])


@pytest.mark.parametrize(("early_stopping", "best"), [(False, [3, 4, END]), (True, [3, END])])
def test_two_finished_sequences_may_be_enough(early_stopping, best):
    """The end alone has 0.45, token 3 and the end 0.25 for two tokens, tokens 3 and 4 and the end 0.25 for three."""
    chances = [[0.2] * 5, [0, 0, 0.45, 0.5, 0.05], [0.2] * 5, [0, 0, 0.5, 0, 0.5], [0, 0, 1, 0, 0]]
    found, score = search(chances, 3, early_stopping=early_stopping)
    assert found == best
    assert score == pytest.approx(np.log(0.25) / len(best), abs=1e-5)


def test_a_first_token_that_is_forced_counts_for_length_alone():
    chances = [[0.2] * 5, [0, 0, 0.5, 0.1, 0.4], [0.2] * 5, [0, 0, 0.5, 0, 0.5], [0, 0, 1, 0, 0]]
    found, score = search(chances, 3, [Prefix(np.array([[3]]), PAD)], free_first=True)
    assert found == [3, 4, END]
    assert score == pytest.approx(np.log(0.5) / 3, abs=1e-5)


def test_the_end_in_the_third_place_does_not_finish_a_sequence_of_two_beams():
    """The end alone would have the best score, log 0.25 for one token: the others have log 0.048 for two at best."""
    even = [0.11] * 2 + [0.12] + [0.11] * 6
    chances = [even, [0, 0, 0.25, 0.4, 0.35, 0, 0, 0, 0], *[even] * 7]
    found, score = search(chances, 2)
    assert found == [3, END]
    assert score == pytest.approx(np.log(0.4 * 0.12) / 2, abs=1e-2)
