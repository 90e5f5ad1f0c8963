"""Words that belong together, from the attention of tokens."""

import numpy as np
import pytest

from kformer.text.batches import Hypothesis
from kformer.text.word_alignment import aligned, with_alignments


def test_a_word_takes_the_sum_of_its_tokens():
    """Target words 0 (token 0) and 1 (tokens 1 and 2); source words 0 (token 0) and 1 (tokens 1 and 2)."""
    weights = np.array([[0.4, 0.3, 0.3], [0.9, 0.1, 0.0], [0.2, 0.1, 0.7]])
    # word 0: 0.4 and 0.3 + 0.3 = 0.6; word 1: 0.9 + 0.2 = 1.1 and 0.1 + 0.1 + 0.7 = 0.9
    assert aligned(weights, source=np.array([0, 1, 1]), target=np.array([0, 1, 1])) == "0-1 1-0"


@pytest.mark.parametrize(
    ("weights", "pairs"),
    [
        ([[0.0, 0.0], [0.3, 0.7]], "1-1"),  # word 0 of the target attends to nothing but the end
        ([[0.5, 0.5], [0.0, 0.1]], "0-0 1-1"),  # the first of equals
        ([[0.2, 0.8], [0.1, 0.9]], "1-0 1-1"),  # word 0 of the source belongs to none
    ],
)
def test_a_word_belongs_to_the_first_to_which_it_attends_most_if_to_any(weights, pairs):
    assert aligned(np.array(weights), source=np.array([0, 1]), target=np.array([0, 1])) == pairs


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u3000", " \u202f "])
def test_any_white_space_divides_words(blank):
    """ "one", blank, "two" as three tokens, the blank one of which belongs to no word."""
    text, size = f"one{blank}two", len(blank.encode())
    source = [(0, 3), (3, 3 + size), (3 + size, 6 + size)]
    weights = [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]
    found = with_alignments(
        [[Hypothesis("dos uno", -1.0)]], [text.encode()], outputs(source, [(0, 3), (3, 7)], weights, [0, 0])
    )
    assert found[0][0].alignment == "0-1 1-0"


@pytest.mark.parametrize("empty", ["source", "target"])
def test_no_words_have_no_alignment(empty):
    words = {"source": np.array([0]), "target": np.array([0])} | {empty: np.array([-1])}
    assert aligned(np.ones((1, 1)), **words) == ""


def outputs(source, target, alignment, alignment_start):
    """The outputs of `translate_detailed` for one text whose tokens are these spans."""
    names = {"source": source, "target": target}
    spans = {
        f"{side}_{end}": np.array([[span[place] for span in spans]])
        for side, spans in names.items()
        for place, end in enumerate(("start", "end"))
    }
    return spans | {"alignment": np.array([alignment]), "alignment_start": np.array([alignment_start])}


def test_tokens_belong_to_the_words_in_which_they_begin():
    """ "one two" as o, ne, " two"; "uno dos" as "uno", " dos", and an end without bytes."""
    source, target = [(0, 1), (1, 3), (3, 7)], [(0, 3), (3, 7), (7, 7)]
    weights = [[0.3, 0.3, 0.4], [0.1, 0.0, 0.9], [1.0, 0.0, 0.0]]
    found = with_alignments([[Hypothesis("uno dos", -1.0)]], [b"one two"], outputs(source, target, weights, [0, 0, 0]))
    assert found == [[Hypothesis("uno dos", -1.0, "0-0 1-1")]]


def test_a_divided_text_has_its_parts_one_after_the_other():
    """The second part's weights begin at its first source token."""
    spans = [(0, 1), (1, 3), (3, 5), (5, 7)]  # "a b c d"
    weights = [[0.1, 0.9], [0.8, 0.2], [0.1, 0.9], [0.8, 0.2]]
    found = with_alignments([[Hypothesis("A B C D", -1.0)]], [b"a b c d"], outputs(spans, spans, weights, [0, 0, 2, 2]))
    assert found[0][0].alignment == "0-1 1-0 2-3 3-2"
