import numpy as np
import pytest
from decoding_fakes import END, PAD, START, HistoryModel, search_space, spelling_model, word, words
from keras import ops

from kformer.decoding import SearchSpace, greedy_search

SPELLING = {
    "": {"s": 0.9, "t": 0.1},
    "s": {"e": 0.8, "o": 0.2},
    "se": {"q": 1.0},
    "seq": {"u": 1.0},
    "sequ": {"e": 1.0},
    "seque": {"n": 1.0},
    "sequen": {"c": 1.0},
    "sequenc": {"e": 1.0},
    "sequence": {".": 0.5, "s": 0.25, "d": 0.25},
}
ROOT = np.zeros(3, "int32")  # Three rows at the empty prefix.


def test_spells_a_word_and_scores_it():
    result = greedy_search(spelling_model(SPELLING), ROOT[:1], search_space([11], 11))
    assert words(result) == [["sequence."]]
    np.testing.assert_allclose(result.scores, [[np.log(0.9 * 0.8 * 0.5)]], rtol=1e-6)
    np.testing.assert_array_equal(result.lengths, [[9]])
    assert [str(np.array(part).dtype) for part in result] == ["int32", "float32", "int32"]


def test_each_row_stops_at_its_own_limit_without_an_end_token():
    result = greedy_search(spelling_model(SPELLING), ROOT, search_space([3, 0, 11], 13))
    assert words(result) == [["seq"], [""], ["sequence."]]
    np.testing.assert_array_equal(result.lengths, [[3], [0], [9]])
    np.testing.assert_allclose(result.scores[:2], [[np.log(0.9 * 0.8)], [0.0]], rtol=1e-6)
    assert result.tokens.shape == (3, 1, 13)
    assert not np.any(np.array(result.tokens)[0, 0, 3:])  # Pad ids behind the limit.


def test_limits_beyond_the_buffer_count_as_the_buffer():
    result = greedy_search(spelling_model(SPELLING), ROOT[:1], search_space([11], 5))
    assert words(result) == [["seque"]]
    np.testing.assert_array_equal(result.lengths, [[5]])
    np.testing.assert_allclose(result.scores, [[np.log(0.9 * 0.8)]], rtol=1e-6)


def test_finished_rows_are_fed_pad_ids_and_stay_as_they_are():
    # Row 0 ends at once, and would write "a" if it were asked again. Row 1 writes "b" once row 0 is fed pad ids:
    # after the start token (step 0) and the end token (step 1).
    def next_logits(tokens, step):
        first = ops.where(step == 0, END, 3)
        second = ops.where(ops.equal(tokens[0], PAD), 4, 3)
        return ops.one_hot(ops.stack([first, second]), 5) * 50.0, step + 1

    result = greedy_search(next_logits, 0, search_space([5, 5], 5))
    assert words(result) == [["."], ["aabbb"]]
    np.testing.assert_array_equal(result.tokens[0], [[END, 0, 0, 0, 0]])
    np.testing.assert_array_equal(result.lengths, [[1], [5]])


def test_pad_and_start_are_never_chosen_and_scores_stay_the_models_own():
    # Softmax over logits log(4, 3, 2, 1): the best allowed token has probability 2 / 10, not 2 / 3.
    logits = np.log(np.array([[4.0, 3.0, 1.0, 2.0]], "float32"))
    result = greedy_search(lambda tokens, state: (logits, state), (), search_space([2], 2))
    assert words(result) == [["aa"]]
    np.testing.assert_allclose(result.scores, [[2 * np.log(0.2)]], rtol=1e-6)


@pytest.mark.parametrize(("min_length", "expected"), [(0, "."), (1, "a."), (3, "aaa."), (5, "aaaaa"), (9, "aaaaa")])
def test_min_length_counts_tokens_before_the_end_token(min_length, expected):
    logits = np.array([[0.0, 0.0, 2.0, 1.0]], "float32")  # The end token is always the favourite.
    result = greedy_search(lambda tokens, state: (logits, state), (), search_space([5], 5, min_length))
    assert words(result) == [[expected]]


def test_each_sentence_may_have_its_own_min_length():
    logits = np.tile(np.array([[0.0, 0.0, 2.0, 1.0]], "float32"), (4, 1))
    space = search_space([5] * 4, 5, np.array([3, 0, 9, 1]))
    result = greedy_search(lambda tokens, state: (logits, state), (), space)
    assert words(result) == [["aaa."], ["."], ["aaaaa"], ["a."]]


def test_the_lower_id_wins_a_tie():
    logits = np.array([[0.0, 0.0, -1.0, 1.0, 2.0, 2.0]], "float32")
    result = greedy_search(lambda tokens, state: (logits, state), (), search_space([3], 3))
    assert words(result) == [["bbb"]]


def test_half_precision_logits_are_scored_in_float32():
    logits = ops.cast([[0.0, 0.0, 0.0, 8.0]], "float16")

    result = greedy_search(lambda tokens, state: (logits, state), (), search_space([7], 7))
    # log P(a) = -log(1 + 3 exp(-8)); in float16 it would be 3 % off.
    np.testing.assert_allclose(result.scores, [[-7 * np.log1p(3 * np.exp(-8.0))]], rtol=1e-3)


def test_rows_do_not_depend_on_the_batch():
    model, limits = HistoryModel(seed=3, sentences=5, vocab_size=5, max_length=5), [5, 1, 4, 2, 3]
    together = greedy_search(model.next_logits, model.state(range(5)), search_space(limits, 5))
    for row in range(5):
        alone = greedy_search(model.next_logits, model.state([row]), search_space(limits[row : row + 1], 5))
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
        np.testing.assert_array_equal(alone.lengths[0], together.lengths[row])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-6)
        tokens = np.array(alone.tokens)[0, 0, : int(alone.lengths[0, 0])]
        np.testing.assert_allclose(alone.scores[0, 0], model.token_log_probs(row, tokens).sum(), rtol=1e-5)


def test_compiled_equals_eager(compiled):
    model = HistoryModel(seed=5, sentences=3, vocab_size=7, max_length=3)

    def search(limits):
        return greedy_search(model.next_logits, model.state(range(3)), search_space(limits, 3))

    limits = ops.convert_to_tensor([3, 1, 2], "int32")
    for eager, graph in zip(search(limits), compiled(search)(limits), strict=True):
        np.testing.assert_allclose(eager, graph, rtol=1e-6)


def test_word_reads_ids():
    assert word([3, 4, 2, 0]) == "ab."


def run(**changes):
    arguments = {"start_id": START, "end_id": END, "pad_id": PAD, "max_lengths": [3], "buffer_length": 3, **changes}
    logits = np.zeros((1, 5), "float32")
    return greedy_search(lambda tokens, state: (logits, state), (), SearchSpace(**arguments))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad_id": 2}, "pad_id must differ from end_id. Received: start_id=1, end_id=2, pad_id=2"),
        ({"start_id": -1}, "must be at least 0, .* Received: start_id=-1, end_id=2, pad_id=0"),
        ({"end_id": 5}, "below the vocabulary size 5 .* Received: start_id=1, end_id=5, pad_id=0"),
        ({"buffer_length": 0}, "buffer_length must be at least 1. Received: buffer_length=0"),
        ({"max_lengths": 3}, r"max_lengths must have shape \(sentences,\).* Received: shape \(\)"),
    ],
)
def test_arguments_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        run(**changes)


def test_logits_of_another_rank_are_refused():
    logits = np.zeros((1, 1, 5), "float32")
    with pytest.raises(ValueError, match=r"logits of shape \(rows, vocabulary\).* Received: shape \(1, 1, 5\)"):
        greedy_search(lambda tokens, state: (logits, state), (), search_space([3], 3))
