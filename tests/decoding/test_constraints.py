"""Searches under constraints, beside searches in NumPy that know the rule of each constraint as a function."""

import collections
import itertools

import numpy as np
import pytest
from decoding_fakes import END, HistoryModel, ids, search_space, spelling_model, words
from keras import ops

from kformer.decoding import Constraint, MinLength, NoRepeatedNGrams, beam_search, greedy_search, sample
from kformer.decoding.beam_search import BeamSearch
from kformer.decoding.greedy import GreedySearch
from kformer.decoding.search import gather_rows, run

VOWEL = 3  # the letter a


class Alternating(Constraint):
    """Vowels and consonants take turns, and a word ends behind a vowel. The state is (N,) int32, 0 at the start."""

    def start(self, tokens, beams, buffer_length):
        return ops.zeros((ops.shape(tokens)[0] * beams,), "int32")

    def advance(self, state, tokens):
        return ops.where(ops.equal(tokens, VOWEL), 1, 2)

    def allowed(self, state, vocab_size):
        kinds = ops.where(ops.equal(ops.arange(vocab_size), VOWEL), 1, 2)
        return ops.not_equal(ops.expand_dims(state, 1), kinds) | ops.equal(ops.arange(vocab_size), END)

    def may_end(self, state):
        return ops.equal(state, 1)


def alternates(tokens, token):
    if token == END:
        return tokens[-1:] == (VOWEL,)
    return not tokens or (tokens[-1] == VOWEL) != (token == VOWEL)


def no_ngram_twice(size):
    def may_follow(tokens, token):
        earlier = [tokens[first : first + size] for first in range(len(tokens) - size + 1)]
        return (*tokens, token)[-size:] not in earlier

    return may_follow


def both(tokens, token):
    return alternates(tokens, token) and no_ngram_twice(3)(tokens, token)


RULES = {
    "no token twice": ([NoRepeatedNGrams(1)], no_ngram_twice(1)),
    "no bigram twice": ([NoRepeatedNGrams(2)], no_ngram_twice(2)),
    "no trigram twice": ([NoRepeatedNGrams(3)], no_ngram_twice(3)),
    "alternating": ([Alternating()], alternates),
    "two rules": ([Alternating(), NoRepeatedNGrams(3)], both),
}
every_rule = pytest.mark.parametrize(("constraints", "may_follow"), RULES.values(), ids=RULES)
LIMITS = [6, 5, 6, 1, 4, 0, 6]


@pytest.fixture(scope="module")
def model():
    """With two letters, so that n-grams soon repeat."""
    return HistoryModel(seed=47, sentences=7, vocab_size=5, max_length=6)


def greedy_in_numpy(model, sentence, limit, may_follow):
    """The tokens and their score; where nothing may follow, the end token and -inf."""
    tokens = ()
    while len(tokens) < limit and tokens[-1:] != (END,):
        longer = [(*tokens, token) for token in range(END, model.vocab_size) if may_follow(tokens, token)]
        if not longer:
            return (*tokens, END), -np.inf
        tokens = max(longer, key=lambda tokens: model.token_log_probs(sentence, tokens)[-1])
    return tokens, model.token_log_probs(sentence, tokens).sum()


def beam_search_in_numpy(model, sentence, limit, may_follow, beam_size, length_penalty):
    """The finished hypotheses that a beam reaches, and those that were cut off, with their scores; best first each."""

    def log_prob(tokens):
        return model.token_log_probs(sentence, tokens).sum()

    def score(tokens):
        return log_prob(tokens) / ((5 + len(tokens)) / 6) ** length_penalty

    live, finished = [()], []
    for _ in range(limit):
        longer = [
            (*tokens, token) for tokens in live for token in range(END, model.vocab_size) if may_follow(tokens, token)
        ]
        best = sorted(longer, key=log_prob, reverse=True)[: 2 * beam_size]
        finished += [tokens for tokens in best if tokens[-1] == END]
        live = [tokens for tokens in best if tokens[-1] != END][:beam_size]
    ranked = [*sorted(finished, key=score, reverse=True), *live]
    return [(tokens, score(tokens)) for tokens in ranked if tokens]


def hypotheses(result, sentence):
    """The tokens of each hypothesis that exists."""
    rows = zip(np.array(result.tokens)[sentence], np.array(result.lengths)[sentence], strict=True)
    return [tuple(tokens[:length]) for tokens, length in rows if length]


@every_rule
def test_greedy_search_takes_the_best_token_that_is_allowed(model, constraints, may_follow):
    state, space = model.state(range(7)), search_space(LIMITS, 6, constraints=constraints)
    found = greedy_search(model.next_logits, state, space)
    expected = [greedy_in_numpy(model, sentence, limit, may_follow) for sentence, limit in enumerate(LIMITS)]
    assert [hypotheses(found, sentence) for sentence in range(7)] == [[row] if row else [] for row, _ in expected]
    np.testing.assert_allclose(found.scores[:, 0], [score for _, score in expected], rtol=1e-4)
    free = greedy_search(model.next_logits, state, search_space(LIMITS, 6))
    assert np.any(np.array(free.tokens) != np.array(found.tokens))


@every_rule
@pytest.mark.parametrize(("beam_size", "length_penalty"), [(2, 0.0), (3, 0.7), (4, 3.0)])
def test_a_narrow_beam_finds_what_it_finds_in_numpy(model, constraints, may_follow, beam_size, length_penalty):
    def is_long_enough_and_may_follow(tokens, token):
        return (token != END or len(tokens) >= 4) and may_follow(tokens, token)

    found = beam_search(
        model.next_logits,
        model.state(range(7), beam_size),
        search_space(LIMITS, 6, min_length=4, constraints=constraints),
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=beam_size,
    )
    for sentence, limit in enumerate(LIMITS):
        expected = beam_search_in_numpy(
            model, sentence, limit, is_long_enough_and_may_follow, beam_size, length_penalty
        )
        assert hypotheses(found, sentence) == [tokens for tokens, _ in expected[:beam_size]]
        scores = [score for _, score in expected[:beam_size]]
        np.testing.assert_allclose(found.scores[sentence, : len(scores)], scores, rtol=1e-4)


@every_rule
@pytest.mark.parametrize(("min_length", "length_penalty", "n_best"), [(0, 0.6, 4), (2, 2.5, 9)])
def test_a_wide_beam_equals_exhaustive_search(constraints, may_follow, min_length, length_penalty, n_best):
    limits, prefixes = [4, 4, 3, 4, 2, 1], ids("", "ab", "b", "aab", "a", "c")
    model = HistoryModel(seed=11, sentences=6, vocab_size=6, max_length=4)
    found = beam_search(
        model.next_logits,
        model.state(range(6), 27),
        search_space(limits, 4, min_length, prefixes, constraints),
        beam_size=27,
        length_penalty=length_penalty,
        n_best=n_best,
    )
    for sentence, (limit, prefix) in enumerate(zip(limits, prefixes, strict=True)):
        start = tuple(prefix[prefix > 0])

        def is_found(tokens, start=start):
            free = range(len(start), len(tokens))
            return tokens[: len(start)] == start[: len(tokens)] and all(
                may_follow(tokens[:place], tokens[place]) for place in free
            )

        everything = model.all_hypotheses(sentence, limit, min_length, length_penalty)
        expected = [pair for pair in everything if is_found(pair[0])][:n_best]
        assert hypotheses(found, sentence) == [tokens for tokens, _ in expected]
        np.testing.assert_allclose(found.scores[sentence, : len(expected)], [score for _, score in expected], rtol=1e-4)


# After "a" (0.6) and "b" (0.4), "ba" (0.36) stands before "ab" (0.33): each beam continues the other one.
CROSSING = {
    "": {"a": 0.6, "b": 0.4},
    "a": {"b": 0.55, "c": 0.45},
    "b": {"a": 0.9, "c": 0.1},
    "ba": {"b": 0.7, "c": 0.3},
    "ab": {"a": 0.6, "c": 0.4},
}


@pytest.mark.parametrize(
    ("constraints", "expected", "probabilities"),
    [
        ([], ["bab.", "aba."], [0.36 * 0.7, 0.33 * 0.6]),
        ([NoRepeatedNGrams(1)], ["abc.", "bac."], [0.33 * 0.4, 0.36 * 0.3]),
    ],
)
def test_the_state_follows_its_hypothesis_where_beams_cross(constraints, expected, probabilities):
    found = beam_search(
        spelling_model(CROSSING),
        np.zeros(2, "int32"),
        search_space([4], 4, constraints=constraints),
        beam_size=2,
        length_penalty=0.0,
        n_best=2,
    )
    assert words(found) == [expected]
    np.testing.assert_allclose(found.scores, np.log([probabilities]), rtol=1e-5)


def test_samples_without_a_token_twice_are_permutations_all_equally_frequent():
    rows = 4001
    logits = ops.where(ops.arange(6) == END, -100.0, ops.zeros((rows, 6)))
    space = search_space([3] * rows, 3, constraints=[NoRepeatedNGrams(1)])
    found = sample(lambda tokens, state: (logits, state), (), space, seed=3)
    frequencies = collections.Counter(word for (word,) in words(found))
    assert set(frequencies) == {"".join(letters) for letters in itertools.permutations("abc")}
    # Hoeffding: P(|frequency - p| >= t) <= 2 exp(-2 n t^2); for 6 words with a total of 1e-9: t = 0.054.
    np.testing.assert_allclose(np.array([*frequencies.values()]) / rows, 1 / 6, atol=0.054)
    # The model gives pad and start ids and each letter 1 / 5.
    np.testing.assert_allclose(found.scores, np.full((rows, 1), 3 * np.log(1 / 5)), rtol=1e-5)


def test_what_is_forced_may_repeat_ngrams_and_what_follows_may_not():
    # Behind "abab" the letter a is the favourite, but the bigram ba is there already.
    beginning = {"abab"[:length]: {"abab"[length]: 1.0} for length in range(4)}
    model = spelling_model({**beginning, "abab": {"a": 0.9, "b": 0.1}})
    for constraints, expected in [([], "ababa."), ([NoRepeatedNGrams(2)], "ababb.")]:
        space = search_space([9], 9, prefix=ids("abab"), constraints=constraints)
        assert words(greedy_search(model, np.zeros(1, "int32"), space)) == [[expected]]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_what_was_read_at_once_counts(model, beam_size):
    prefixes, read = ids("ab", "aba", "ba"), 2
    space = search_space([6, 6, 5], 6, 1, prefixes, [NoRepeatedNGrams(1)])
    step_by_step = beam_search(model.next_logits, model.state(range(3), beam_size), space, beam_size=beam_size)
    search = GreedySearch(space) if beam_size == 1 else BeamSearch(space, beam_size, 0.6, 1, gather_rows)
    log_probs = [model.token_log_probs(sentence, prefixes[sentence, :read]).sum() for sentence in range(3)]
    tokens = ops.convert_to_tensor(np.pad(prefixes[:, :read], [[0, 0], [1, 0]], constant_values=1))
    first = search.after(tokens, ops.convert_to_tensor(log_probs, "float32"))
    # The history of the model begins with the first token: the second one is the next that it gets.
    state = {**model.state(range(3), beam_size), "position": np.int32(read)}
    state["history"] = [np.repeat(prefixes[:, 0], beam_size)]
    found = run(search, model.next_logits, state, first)
    np.testing.assert_array_equal(found.tokens, step_by_step.tokens)
    norm = 1 if beam_size == 1 else ((5 + np.array(found.lengths)) / 6) ** 0.6
    total = [model.token_log_probs(sentence, *hypotheses(found, sentence)).sum() for sentence in range(3)]
    np.testing.assert_allclose(found.scores[:, 0], total / np.ravel(norm), rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_compiled_equals_eager(compiled, model, beam_size):
    def search(limits, prefix):
        space = search_space(limits, 6, 2, prefix, [NoRepeatedNGrams(2), Alternating()])
        return beam_search(model.next_logits, model.state(range(4), beam_size), space, beam_size=beam_size)

    inputs = ops.convert_to_tensor([6, 4, 5, 2], "int32"), ops.convert_to_tensor(ids("ab", "", "b", "aaa"))
    for eager, graph in zip(search(*inputs), compiled(search)(*inputs), strict=True):
        np.testing.assert_allclose(eager, graph, rtol=1e-6)


def test_each_beam_has_the_least_length_of_its_sentence():
    rule = MinLength(np.array([0, 1, 2]))
    state = rule.start(np.zeros((3, 0)), beams=2, buffer_length=5)
    may_end = []
    for _ in range(3):
        may_end.append(np.asarray(rule.may_end(state)).astype(int).tolist())
        state = rule.advance(state, np.full(6, VOWEL))
    assert may_end == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]


class TestWhereNothingMayFollow:
    """There is one letter, which may not come twice, and a word may not end before it has two."""

    SPACE = search_space([5], 5, min_length=2, constraints=[NoRepeatedNGrams(1)])

    @staticmethod
    def next_logits(tokens, state):
        return ops.zeros((ops.shape(tokens)[0], 4)), state

    def test_one_sequence_ends_with_the_score_minus_infinity(self):
        for found in (
            greedy_search(self.next_logits, (), self.SPACE),
            sample(self.next_logits, (), self.SPACE, seed=1),
            sample(self.next_logits, (), self.SPACE, seed=1, top_k=2, top_p=0.9),
        ):
            assert words(found) == [["a."]]
            assert float(found.scores[0, 0]) == -np.inf

    def test_a_beam_finds_nothing(self):
        found = beam_search(self.next_logits, (), self.SPACE, beam_size=2)
        assert words(found) == [[""]]
        assert float(found.scores[0, 0]) == -np.inf
        assert int(found.lengths[0, 0]) == 0


@pytest.mark.parametrize(
    ("constraint", "number", "message"),
    [
        (MinLength, -1, "min_length must be at least 0. Received: min_length=-1. Pass 0 for no minimum"),
        (MinLength, np.zeros((1, 1)), r"have shape \(sentences,\).* Received: shape \(1, 1\)"),
        (NoRepeatedNGrams, 0, "size of an n-gram must be at least 1. Received: size=0. Leave out the constraint"),
    ],
)
def test_numbers_out_of_range_are_refused(constraint, number, message):
    with pytest.raises(ValueError, match=message):
        constraint(number)
