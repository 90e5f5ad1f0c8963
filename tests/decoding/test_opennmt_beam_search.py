"""Beam search by the rules of OpenNMT-tf, on small tables of probabilities."""

import numpy as np
import pytest
from keras import ops

from kformer.decoding import SearchSpace
from kformer.decoding.opennmt_beam_search import OpenNMTBeamSearch
from kformer.decoding.search import gather_rows, run

PAD, START, END = 0, 1, 2


@pytest.mark.parametrize(("length_penalty", "best"), [(5.0, [END]), (6.0, [3, 4, END])])
def test_a_finished_sequence_counts_one_token_more_in_the_beam(length_penalty, best):
    """The end alone counts as two tokens there, and has log 0.5; tokens 3 and 4 and the end have log 0.24."""
    chances = [[0.2] * 5, [0, 0, 0.5, 0.49, 0.01], [0.2] * 5, [0, 0, 0.2, 0.1, 0.7], [0, 0, 0.7, 0.2, 0.1]]
    table = np.log(np.asarray(chances, "float32") + 1e-9)
    space = SearchSpace(START, END, PAD, np.array([3]), 3)
    beams = OpenNMTBeamSearch(space, 2, length_penalty, 1, gather_rows)
    found = run(beams, lambda tokens, state: (ops.take(table, tokens, axis=0), state), ())
    assert [token for token in np.asarray(found.tokens)[0, 0].tolist() if token != PAD] == best
    chance = {1: 0.5, 3: 0.49 * 0.7 * 0.7}[len(best)]
    norm = ((5 + len(best)) / 6) ** length_penalty
    assert np.asarray(found.scores)[0, 0] == pytest.approx(np.log(chance) / norm, abs=1e-5)
