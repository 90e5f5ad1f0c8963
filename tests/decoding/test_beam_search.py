import numpy as np
import pytest
from decoding_fakes import END, PAD, START, HistoryModel, echo_model, search_space, spelling_model, words
from keras import ops

from kformer.decoding import beam_search, greedy_search


def spell(probabilities, *, beam_size, limit=9, sentences=1, **options):
    return beam_search(
        spelling_model(probabilities),
        np.zeros(sentences * beam_size, "int32"),
        search_space([limit] * sentences, limit),
        beam_size=beam_size,
        **options,
    )


def assert_equals_exhaustive(model, result, limits, min_length, length_penalty):
    """The n best of all sequences that exist, each sentence for itself."""
    n_best = result.tokens.shape[1]
    for sentence, limit in enumerate(limits):
        expected = model.all_hypotheses(sentence, limit, min_length, length_penalty)[:n_best]
        expected += [((), -np.inf)] * (n_best - len(expected))
        for rank, (tokens, score) in enumerate(expected):
            padded = [*tokens, *[PAD] * (result.tokens.shape[2] - len(tokens))]
            np.testing.assert_array_equal(result.tokens[sentence, rank], padded)
            np.testing.assert_allclose(result.scores[sentence, rank], score, rtol=1e-4)
            assert int(result.lengths[sentence, rank]) == len(tokens)


@pytest.mark.parametrize(
    ("vocab_size", "beam_size", "limits", "min_length", "length_penalty", "n_best"),
    [
        # A beam holds every live prefix of the longest limit: letters ** (limit - 1), letters = V - 3.
        (6, 27, [4, 1, 3, 2], 0, 0.0, 1),
        (6, 27, [4, 1, 3, 2], 0, 0.6, 5),
        (6, 27, [4, 2, 3, 0], 2, 1.0, 7),
        (6, 81, [4, 1, 3, 4], 0, 2.5, 81),  # n-best reaches the cut ones, and -inf where nothing is left.
        (5, 16, [5, 3, 5, 4], 0, 0.6, 16),
        (5, 16, [5, 3, 5, 4], 5, 0.6, 3),  # min_length leaves no finished hypothesis: all are cut.
        (8, 25, [3, 3, 2, 1], 1, 0.3, 11),
    ],
)
def test_a_wide_beam_equals_exhaustive_search(vocab_size, beam_size, limits, min_length, length_penalty, n_best):
    model = HistoryModel(seed=11, sentences=4, vocab_size=vocab_size, max_length=max(limits))
    result = beam_search(
        model.next_logits,
        model.state(range(4), beam_size),
        search_space(limits, 5, min_length),
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
    )
    assert_equals_exhaustive(model, result, limits, min_length, length_penalty)


@pytest.mark.parametrize("beam_size", [2, 3])
def test_a_narrow_beam_scores_what_it_returns(beam_size):
    model, limits = HistoryModel(seed=13, sentences=7, vocab_size=6, max_length=4), [4, 4, 3, 2, 4, 3, 1]
    result = beam_search(
        model.next_logits,
        model.state(range(7), beam_size),
        search_space(limits, 4),
        beam_size=beam_size,
        length_penalty=0.7,
        n_best=beam_size,
    )
    for sentence in range(7):
        for rank in range(beam_size):
            length = int(result.lengths[sentence, rank])
            tokens = np.array(result.tokens)[sentence, rank]
            expected = model.token_log_probs(sentence, tokens[:length]).sum() / ((5 + length) / 6) ** 0.7
            np.testing.assert_allclose(result.scores[sentence, rank], expected, rtol=1e-4)
            assert length == limits[sentence] or tokens[length - 1] == END
            assert not tokens[length:].any()
            assert not set(tokens[:length]) & {PAD, START}


# Greedy takes "t" and can only get P("to.") = 0.6 * 0.4 = 0.24; "be." has 0.4.
TO_BE = {"": {"t": 0.6, "b": 0.4}, "t": {"o": 0.4, "i": 0.3, "a": 0.3}, "b": {"e": 1.0}}


def test_finds_what_greedy_misses():
    assert words(spell(TO_BE, beam_size=1, length_penalty=0.0)) == [["to."]]
    result = spell(TO_BE, beam_size=2, length_penalty=0.0, n_best=2)
    assert words(result) == [["be.", "to."]]
    np.testing.assert_allclose(result.scores, np.log([[0.4, 0.24]]), rtol=1e-5)


# "no." has probability 0.4 and 3 tokens, "sequence." 0.35 and 9; "s" leads by a word that beam search never meets.
NO_SEQUENCE = {
    "": {"n": 0.4, "s": 0.35, "x": 0.25},
    "n": {"o": 1.0},
    **{"sequence"[:length]: {"sequence"[length]: 1.0} for length in range(1, 8)},
}


@pytest.mark.parametrize(
    ("length_penalty", "expected", "score"),
    [
        (0.0, "no.", np.log(0.4)),
        # lp(3) = 8 / 6, lp(9) = 14 / 6: log(0.4) / lp(3) = -0.69, log(0.35) / lp(9) = -0.45.
        # When "no." ends, "seq" stands at log(0.35) / lp(3) = -0.79: whoever compares with that stops too early.
        (1.0, "sequence.", np.log(0.35) / (14 / 6)),
    ],
)
def test_a_live_hypothesis_may_still_win_by_its_length(length_penalty, expected, score):
    result = spell(NO_SEQUENCE, beam_size=2, length_penalty=length_penalty)
    assert words(result) == [[expected]]
    np.testing.assert_allclose(result.scores, [[score]], rtol=1e-5)


def test_finished_hypotheses_do_not_starve_the_live_ones():
    # Two of the three best extensions end at the first steps; "ccccc." is found although the beam is 2 wide.
    endings = {"c" * length: {".": 0.6, "c": 0.4} for length in range(1, 5)}
    model = {"": {"c": 1.0}, **endings, "ccccc": {".": 1.0}}
    result = spell(model, beam_size=2, length_penalty=0.0, n_best=2)
    assert words(result) == [["c.", "cc."]]
    # P(c^k .) = 0.4^(k-1) * 0.6 for k < 5, and 0.4^4 for k = 5. With a strong penalty the longest word wins:
    # log(0.4^4) / (11 / 6)^6 = -0.097, log(0.6 * 0.4^3) / (10 / 6)^6 = -0.152.
    result = spell(model, beam_size=2, length_penalty=6.0, n_best=2)
    assert words(result) == [["ccccc.", "cccc."]]
    np.testing.assert_allclose(
        result.scores, [[4 * np.log(0.4) / (11 / 6) ** 6, np.log(0.6 * 0.4**3) / (10 / 6) ** 6]], rtol=1e-5
    )


def test_a_finished_hypothesis_ranks_before_a_cut_one():
    # At limit 3 "abc" is cut with P = 0.9; "x." is finished with P = 0.1.
    model = {"": {"a": 0.9, "x": 0.1}, "a": {"b": 1.0}, "ab": {"c": 1.0}}
    result = spell(model, beam_size=2, limit=3, length_penalty=0.0, n_best=2)
    assert words(result) == [["x.", "abc"]]
    np.testing.assert_allclose(result.scores, np.log([[0.1, 0.9]]), rtol=1e-5)
    np.testing.assert_array_equal(result.lengths, [[2, 3]])


def test_hypotheses_that_do_not_exist_have_score_minus_infinity_and_no_tokens():
    result = spell({"": {"a": 1.0}}, beam_size=3, limit=5, n_best=3)
    assert words(result) == [["a.", "", ""]]
    np.testing.assert_array_equal(result.scores[:, 1:], [[-np.inf, -np.inf]])
    np.testing.assert_array_equal(result.lengths, [[2, 0, 0]])


def test_the_lower_id_wins_a_tie():
    thirds = {"": {"b": 0.4, "c": 0.4, "a": 0.2}}
    assert words(spell(thirds, beam_size=3, n_best=3, sentences=2)) == [["b.", "c.", "a."]] * 2
    # After one step, where a second tie in the wrong order cannot make up for the first.
    assert words(spell(thirds, beam_size=3, n_best=3, limit=1)) == [["b", "c", "a"]]


# Every row of these models has one letter or two equal ones: log probabilities are exact multiples of log(1 / 2).
def test_of_equal_scores_the_shorter_hypothesis_comes_first():
    # P(".") = P("a.") = 1 / 2.
    result = spell({"": {".": 0.5, "a": 0.5}}, beam_size=2, length_penalty=0.0, n_best=2)
    assert words(result) == [[".", "a."]]
    assert float(result.scores[0, 0]) == float(result.scores[0, 1])


def test_of_equal_scores_the_better_beam_comes_first():
    # All of ax, ay, bc and bd have 1 / 4. The beam of "a" stands before that of "b", although c and d have lower ids.
    model = {"": {"a": 0.5, "b": 0.5}, "a": {"x": 0.5, "y": 0.5}, "b": {"c": 0.5, "d": 0.5}}
    result = spell(model, beam_size=2, length_penalty=0.0, n_best=2)
    assert words(result) == [["ax.", "ay."]]


def test_a_beam_wider_than_the_vocabulary():
    assert words(spell(TO_BE, beam_size=37, n_best=4)) == [["be.", "to.", "ta.", "ti."]]


def test_the_state_follows_its_hypothesis():
    free, beam_size = 3, 5
    rows = 2 * beam_size
    result = beam_search(
        echo_model(free),
        (np.zeros((rows, 2 * free + 1), "int32"), np.int32(0)),
        search_space([7, 7], 7),
        beam_size=beam_size,
        n_best=beam_size,
    )
    for hypotheses in words(result):
        assert len(set(hypotheses)) == beam_size
        assert all(text == text[:free] * 2 + "." for text in hypotheses)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 3.0])
def test_one_beam_is_greedy_with_a_normalised_score(length_penalty):
    model, limits = HistoryModel(seed=17, sentences=7, vocab_size=5, max_length=5), [5, 5, 5, 4, 3, 5, 1]
    space = search_space(limits, 5)
    greedy = greedy_search(model.next_logits, model.state(range(7)), space)
    beam = beam_search(model.next_logits, model.state(range(7)), space, beam_size=1, length_penalty=length_penalty)
    np.testing.assert_array_equal(beam.tokens, greedy.tokens)
    np.testing.assert_array_equal(beam.lengths, greedy.lengths)
    norm = ((5 + np.array(greedy.lengths)) / 6) ** length_penalty
    np.testing.assert_allclose(beam.scores, np.array(greedy.scores) / norm, rtol=1e-5)


@pytest.mark.parametrize("min_length", [0, 5, [2, 0, 5, 1, 3]])
def test_sentences_do_not_depend_on_the_batch(min_length):
    # min_length 5 lets nothing finish: each sentence is cut at its own limit while others go on.
    model, limits = HistoryModel(seed=19, sentences=5, vocab_size=6, max_length=5), [5, 1, 4, 2, 3]

    def search(sentences):
        least = min_length if isinstance(min_length, int) else np.array(min_length)[list(sentences)]
        return beam_search(
            model.next_logits,
            model.state(sentences, 3),
            search_space([limits[sentence] for sentence in sentences], 5, least),
            beam_size=3,
            n_best=3,
        )

    together, backwards = search(range(5)), search(range(4, -1, -1))
    for sentence in range(5):
        alone = search([sentence])
        for batch, row in [(together, sentence), (backwards, 4 - sentence)]:
            np.testing.assert_array_equal(alone.tokens[0], batch.tokens[row])
            np.testing.assert_array_equal(alone.lengths[0], batch.lengths[row])
            # Vector units round a row by its place in the batch: equal up to the last bits.
            np.testing.assert_allclose(alone.scores[0], batch.scores[row], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.in_ci
def test_compiled_equals_eager(compiled):
    model = HistoryModel(seed=23, sentences=3, vocab_size=7, max_length=4)

    def search(limits):
        return beam_search(model.next_logits, model.state(range(3), 3), search_space(limits, 4), beam_size=3, n_best=2)

    limits = ops.convert_to_tensor([4, 1, 3], "int32")
    for eager, graph in zip(search(limits), compiled(search)(limits), strict=True):
        np.testing.assert_allclose(eager, graph, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 0}, "beam_size must be at least 1. Received: beam_size=0"),
        (
            {"length_penalty": -0.1},
            "length_penalty must be a finite number of at least 0. Received: length_penalty=-0.1",
        ),
        ({"length_penalty": float("nan")}, "Received: length_penalty=nan"),
        ({"n_best": 3}, "n_best must be from 1 to beam_size. Received: n_best=3, beam_size=2"),
        ({"n_best": 0}, "Received: n_best=0"),
    ],
)
def test_arguments_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        spell(TO_BE, **{"beam_size": 2, **changes})


def test_a_state_not_repeated_for_every_beam_is_refused():
    with pytest.raises(ValueError, match=r"leading dimension 6 \(sentences x beams\).* shape \(2,\)"):
        beam_search(
            spelling_model(TO_BE),
            np.zeros(2, "int32"),
            search_space([3, 3], 3),
            beam_size=3,
        )
