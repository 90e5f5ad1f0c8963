import numpy as np
import pytest
from decoding_fakes import END, PAD, START, search_space

from kformer.decoding import ForcedEnd, MinLength, NoRepeatedNGrams, Prefix, SearchSpace


def random_logits(rows=5, vocab_size=11):
    return np.random.default_rng(3).normal(0, 3, (rows, vocab_size)).astype("float32")


@pytest.mark.parametrize("count", [1, 4, 8, 11])
@pytest.mark.parametrize("min_length", [0, 3])
@pytest.mark.parametrize("constraints", [[], [NoRepeatedNGrams(1)]], ids=["free", "no token twice"])
def test_best_tokens_are_the_top_of_all_log_probabilities(count, min_length, constraints):
    logits = random_logits()
    logits[0, [PAD, START, END]] = 30  # All that may be forbidden stands before the rest.
    space = search_space([9] * 5, 9, min_length, constraints=constraints)
    states = space.start(np.full((5, 2), END + 1, "int32"))  # Two tokens are written.
    log_probs, ids = space.best_tokens(states, logits, count)
    everything = np.array(space.log_probabilities(states, logits))
    ranked = np.argsort(-everything, axis=1, kind="stable")[:, :count]
    np.testing.assert_allclose(log_probs, np.take_along_axis(everything, ranked, axis=1), rtol=1e-5)
    allowed = np.isfinite(np.take_along_axis(everything, ranked, axis=1))
    np.testing.assert_array_equal(np.array(ids)[allowed], ranked[allowed])
    assert np.array(ids).dtype == "int32"


def test_tokens_that_never_come_leave_room_for_the_others():
    """Tags that are more probable than all else are not among the best tokens, and none of these is lost for them."""
    never = [4, 7, 9, 10]
    logits = random_logits()
    logits[:, [PAD, START, *never]] = 30
    space = SearchSpace(START, END, PAD, np.array([9] * 5), 9, never=never)
    everything = np.array(space.log_probabilities((), logits))
    assert not np.isfinite(everything[:, never]).any()
    log_probs, ids = space.best_tokens((), logits, 5)
    np.testing.assert_array_equal(ids, np.argsort(-everything, axis=1, kind="stable")[:, :5])
    assert np.isfinite(np.array(log_probs)).all()


def test_of_equal_tokens_the_lower_id_comes_first():
    logits = np.zeros((1, 9), "float32")
    _, ids = search_space([4], 4).best_tokens((), logits, 3)
    np.testing.assert_array_equal(ids, [[END, END + 1, END + 2]])


def test_log_probabilities_are_the_models_own_whatever_is_forbidden():
    logits = np.log(np.array([[0.5, 0.2, 0.2, 0.1]], "float32"))  # pad has half of all probability
    log_probs, ids = search_space([4], 4).best_tokens((), logits, 1)
    np.testing.assert_array_equal(ids, [[END]])
    np.testing.assert_allclose(log_probs, np.log([[0.2]]), rtol=1e-6)


def test_renormalized_probabilities_are_shares_of_what_may_come_next():
    logits = np.log(np.array([[0.5, 0.2, 0.2, 0.1]], "float32"))  # the end and a letter, 0.2 and 0.1, may come
    space = SearchSpace(START, END, PAD, np.array([4]), 4, renormalize=True)
    log_probs, ids = space.best_tokens((), logits, 2)
    np.testing.assert_array_equal(ids, [[END, END + 1]])
    np.testing.assert_allclose(np.exp(log_probs), [[2 / 3, 1 / 3]], rtol=1e-6)


@pytest.mark.parametrize(("rules", "forced"), [(["end", "prefix"], END), (["prefix", "end"], 4)])
def test_of_two_tokens_that_are_forced_the_first_one_counts(rules, forced):
    """At the limit of two tokens, one rule wants the end there, and one the second token of a prefix."""
    made = {"end": ForcedEnd(np.array([2]), END, PAD), "prefix": Prefix(np.array([[3, 4]]), PAD)}
    space = SearchSpace(START, END, PAD, np.array([2]), 2, [made[rule] for rule in rules])
    states = space.start(np.array([[3]], "int32"))
    logits = np.zeros((1, 5), "float32")
    log_probs, ids = space.with_forced(states, logits, *space.best_tokens(states, logits, 1))
    np.testing.assert_array_equal(ids, [[forced]])
    np.testing.assert_allclose(np.exp(log_probs), [[1 / 5]], rtol=1e-6)


@pytest.mark.parametrize(("start", "possible"), [(PAD, [1, 2, 3, 4]), (END, [1, 2, 3, 4]), (1, [2, 3, 4])])
def test_a_start_that_is_padding_or_the_end_forbids_no_more_than_these(start, possible):
    space = SearchSpace(start, END, PAD, np.array([9]), 9, constraints=[MinLength(2)])
    logits = np.zeros((1, 5), "float32")
    for length, end in ((2, [END]), (1, [])):  # at first a row has enough tokens to end
        states = space.start(np.full((1, length), 3, "int32"))
        allowed = [token for token in possible if token != END or end]
        found = np.flatnonzero(np.isfinite(np.array(space.log_probabilities(states, logits))[0]))
        assert found.tolist() == allowed
        log_probs, ids = space.best_tokens(states, logits, 4)
        assert np.array(ids)[np.isfinite(np.array(log_probs))].tolist() == allowed
