"""Searches whose sequences begin with given tokens."""

import numpy as np
import pytest
from decoding_fakes import END, PAD, HistoryModel, ids, search_space, spelling_model, words
from keras import ops

from kformer.decoding import beam_search, greedy_search, sample

# "t" is more probable than "b", and "ba" ends less probably than "bi".
SPELLING = {"": {"b": 0.3, "t": 0.7}, "b": {"a": 0.4, "i": 0.6}, "t": {"o": 0.5, "e": 0.5}}
FIRST = np.zeros(1, "int32")  # the state of one sentence: the empty prefix


def spelled(prefix, search=greedy_search, rows=1, limit=5, **options):
    space = search_space([limit], 5, prefix=prefix)
    return search(spelling_model(SPELLING), np.repeat(FIRST, rows), space, **options)


def test_greedy_search_goes_on_behind_the_prefix():
    assert words(spelled(None)) == [["te."]]  # e before o: the lower id
    assert words(spelled(ids("b"))) == [["bi."]]
    assert words(spelled(ids("ba"))) == [["ba."]]
    assert words(spelled(ids(""))) == [["te."]]


def test_the_prefix_counts_for_score_and_length():
    found = spelled(ids("ba"))
    np.testing.assert_allclose(found.scores, [[np.log(0.3 * 0.4)]], rtol=1e-6)
    assert found.lengths.shape == (1, 1)
    assert int(found.lengths[0, 0]) == 3


def test_what_is_behind_the_limit_is_cut_off():
    found = spelled(ids("bat"), limit=2)
    assert words(found) == [["ba"]]
    np.testing.assert_allclose(found.scores, [[np.log(0.3 * 0.4)]], rtol=1e-6)


def test_a_prefix_that_the_model_never_writes_has_no_probability():
    found = spelled(ids("z"))
    assert words(found)[0][0].startswith("z")
    assert float(found.scores[0, 0]) == -np.inf


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
def test_a_wide_beam_finds_the_best_of_all_that_begin_so(length_penalty):
    limits, prefixes = [4, 4, 3, 2, 4], ids("a", "", "cb", "b", "abc")
    model = HistoryModel(seed=11, sentences=5, vocab_size=6, max_length=4)
    space = search_space(limits, 4, prefix=prefixes)
    found = beam_search(
        model.next_logits,
        model.state(range(5), 27),
        space,
        beam_size=27,
        length_penalty=length_penalty,
        n_best=3,
    )
    for sentence, (limit, prefix) in enumerate(zip(limits, prefixes, strict=True)):
        start = tuple(token for token in prefix if token != PAD)
        every = model.all_hypotheses(sentence, limit, length_penalty=length_penalty)
        expected = [pair for pair in every if pair[0][: len(start)] == start][:3]
        tokens = [tuple(token for token in row if token != PAD) for row in np.array(found.tokens[sentence])]
        assert [row for row in tokens if row] == [row for row, _ in expected]
        np.testing.assert_allclose(found.scores[sentence, : len(expected)], [score for _, score in expected], rtol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_sentence_gets_what_it_gets_alone(beam_size):
    prefixes = ids("ab", "", "c", "aca", "b", "bb", "")
    model = HistoryModel(seed=5, sentences=7, vocab_size=6, max_length=5)

    def search(rows):
        space = search_space([5] * len(rows), 5, prefix=prefixes[rows])
        return beam_search(model.next_logits, model.state(rows, beam_size), space, beam_size=beam_size)

    together = search(list(range(7)))
    for row in range(7):
        alone = search([row])
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-5)


def test_samples_begin_with_the_prefix_and_are_drawn_behind_it():
    number = 4001
    space = search_space([5] * number, 5, prefix=np.repeat(ids("b"), number, axis=0))
    found = sample(spelling_model(SPELLING), np.repeat(FIRST, number), space, seed=3)
    spelt = [row[0] for row in words(found)]
    assert {*spelt} == {"ba.", "bi."}
    deviation = np.sqrt(0.4 * 0.6 / number)
    assert abs(spelt.count("ba.") / number - 0.4) < 4 * deviation
    np.testing.assert_allclose(found.scores[spelt.index("ba."), 0], np.log(0.3 * 0.4), rtol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_compiled_search_takes_the_prefix_as_an_input(compiled, beam_size):
    def spell(prefix):
        return spelled(prefix, beam_search, beam_size, beam_size=beam_size).tokens

    assert ops.convert_to_numpy(compiled(spell)(ids("ba")))[0, 0].tolist()[:3] == [*ids("ba")[0], END]


@pytest.mark.parametrize("prefix", [np.zeros(3, "int32"), np.zeros((2, 3), "int32")])
def test_a_prefix_of_another_shape_is_refused(prefix):
    with pytest.raises(ValueError, match=r"prefix must have shape \(sentences, tokens\)"):
        spelled(prefix)
