"""A model's searches: compiled by the backend, they find what they find step by step."""

import keras
import numpy as np
import pytest
from small_models import PAD, SOURCE, START, small_config, small_transformer

from kformer.config import DecodingConfig
from kformer.translation.search import Searcher, compiled_search

LIMITS = np.array([6, 4], "int32")


def searcher(beam_size, **changes):
    config = small_config(pad_id=PAD, start_id=START, end_id=2, **changes)
    return Searcher(small_transformer(**changes), config, DecodingConfig(beam_size=beam_size, max_extra_length=3))


def arrays(result):
    return [keras.ops.convert_to_numpy(part) for part in result]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_compiled_finds_the_same(beam_size, positions):
    search = searcher(beam_size, positional_encoding=positions)
    tokens, scores, lengths = arrays(compiled_search(search)(SOURCE, LIMITS))
    expected_tokens, expected_scores, expected_lengths = arrays(search.find(SOURCE, LIMITS, first_length=None))
    np.testing.assert_array_equal(tokens, expected_tokens)
    np.testing.assert_array_equal(lengths, expected_lengths)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    assert tokens.shape == (2, 1, 9)  # 6 source tokens and their end, and 3 more


def test_compiled_follows_the_weights():
    search = searcher(1)
    find = compiled_search(search)
    before = arrays(find(SOURCE, LIMITS))
    search.model.set_weights([-weight for weight in search.model.get_weights()])
    after = arrays(find(SOURCE, LIMITS))
    np.testing.assert_allclose(after[1], arrays(search.find(SOURCE, LIMITS, first_length=None))[1], rtol=1e-5)
    assert not np.allclose(before[1], after[1])
