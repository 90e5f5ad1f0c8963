import numpy as np
import pytest
from decoding_fakes import END, PAD, START, search_constraints

from kformer.decoding.constraints import top_k


def random_logits(rows=5, vocab_size=11):
    return np.random.default_rng(3).normal(0, 3, (rows, vocab_size)).astype("float32")


@pytest.mark.parametrize("count", [1, 4, 8, 11])
@pytest.mark.parametrize("min_length", [0, 3, np.array([3, 0, 2, 9, 3])])
def test_best_tokens_are_the_top_of_all_log_probabilities(count, min_length):
    logits = random_logits()
    logits[0, [PAD, START, END]] = 30  # All that may be forbidden stands before the rest.
    bounds = search_constraints([9] * 5, 9, min_length)
    log_probs, ids = bounds.best_tokens(logits, 2, count, bounds.min_lengths)
    everything = np.array(bounds.log_probabilities(logits, 2, bounds.min_lengths))
    assert np.isneginf(everything[:, END]).tolist() == (np.broadcast_to(min_length, 5) > 2).tolist()
    ranked = np.argsort(-everything, axis=1, kind="stable")[:, :count]
    np.testing.assert_allclose(log_probs, np.take_along_axis(everything, ranked, axis=1), rtol=1e-5)
    allowed = np.isfinite(np.take_along_axis(everything, ranked, axis=1))
    np.testing.assert_array_equal(np.array(ids)[allowed], ranked[allowed])
    assert np.array(ids).dtype == "int32"


def test_of_equal_tokens_the_lower_id_comes_first():
    logits = np.zeros((1, 9), "float32")
    _, ids = search_constraints([4], 4).best_tokens(logits, 0, 3)
    np.testing.assert_array_equal(ids, [[END, END + 1, END + 2]])


def test_log_probabilities_are_the_models_own_whatever_is_forbidden():
    logits = np.log(np.array([[0.5, 0.2, 0.2, 0.1]], "float32"))  # pad has half of all probability
    log_probs, ids = search_constraints([4], 4).best_tokens(logits, 0, 1)
    np.testing.assert_array_equal(ids, [[END]])
    np.testing.assert_allclose(log_probs, np.log([[0.2]]), rtol=1e-6)


@pytest.mark.parametrize("vocab_size", [11, 997, 800, 4000])  # one block, a prime, and two that divide into blocks
def test_top_k_ranks_as_a_stable_sort_does(vocab_size):
    # Few different values, so that many are equal, within blocks and across.
    values = np.random.default_rng(5).integers(0, 40, (3, vocab_size)).astype("float32")
    values[0] = 0
    best, ids = top_k(values, 7)
    ranked = np.argsort(-values, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(ids, ranked)
    np.testing.assert_array_equal(best, np.take_along_axis(values, ranked, axis=1))


def test_of_equal_values_in_two_blocks_the_lower_id_comes_first():
    # 800 values are ranked in blocks of 50. The block that starts with 700 has the largest value, and one that is
    # equal to the value with the number 100.
    values = np.zeros((1, 800), "float32")
    values[0, [700, 701, 100]] = [2, 1, 1]
    best, ids = top_k(values, 4)
    np.testing.assert_array_equal(ids, [[700, 100, 701, 0]])
    np.testing.assert_array_equal(best, [[2, 1, 1, 0]])
