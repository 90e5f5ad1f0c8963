"""How probable given answers are, with a model whose numbers a reader can see."""

import math

import numpy as np
import pytest

from kformer.text.batches import RefusedTextError
from kformer.text.given_answers import scored


def run(signature, inputs):
    """A token for each word and one for the end; each costs 1 in a right translation, which repeats the source."""
    assert signature == "score"
    answers = inputs.get("translation", inputs["text"])
    tokens = [len(answer.split()) + 1 for answer in answers]
    costs = [1 if answer == text else 10 for answer, text in zip(answers, inputs["text"], strict=True)]
    return {
        "log_probability": np.array([-one * cost for one, cost in zip(tokens, costs, strict=True)], np.float32),
        "tokens": np.array(tokens, np.int32),
        "truncated": np.array([len(text) > 9 for text in inputs["text"]]),
    }


def test_a_pair_has_the_log_probability_of_its_translation():
    [[right], [wrong]] = scored(run, has_sources=True)([b"one two\tone two", b"one\ttwo one two"])
    assert (right.text, right.score, right.tokens) == ("one two", -3, 3)
    assert (wrong.text, wrong.score, wrong.tokens) == ("two one two", -40, 4)


def test_a_text_may_have_a_tab_where_there_are_no_sources():
    [[found]] = scored(run, has_sources=False)([b"one\ttwo"])
    assert (found.text, found.score, found.tokens) == ("one\ttwo", -3, 3)


def test_blank_lines_keep_their_places_and_no_model_sees_them():
    found = scored(run, has_sources=True)([b"", b"a\ta", b" \t", b"b\tb"])
    assert [one.text for [one] in found] == ["", "a", "", "b"]
    assert [math.isnan(one.score) for [one] in found] == [True, False, True, False]
    assert scored(lambda signature, inputs: 1 / 0, has_sources=True)([b" "])[0][0].tokens == 0


def test_an_empty_translation_is_one():
    [[found]] = scored(run, has_sources=True)([b"one\t"])
    assert (found.text, found.score, found.tokens) == ("", -10, 1)


@pytest.mark.parametrize(("line", "columns"), [(b"one", "1 column"), (b"one\ttwo\tthree", "3 columns")])
def test_a_line_that_is_no_pair_is_refused_by_its_own_name(line, columns):
    with pytest.raises(
        RefusedTextError, match=f"{columns} where 2 were expected: a source and its translation"
    ) as error:
        scored(run, has_sources=True)([b"a\tb", line])
    assert error.value.text == line


def test_lines_whose_end_is_not_read_are_told():
    cut = []
    scored(run, has_sources=True, on_cut=cut.append)([b"0123456789\tone", b"", b"0\tone"])
    assert cut == [b"0123456789\tone"]
