"""Long texts are cut into pieces before they are tokenized."""

import itertools

import pytest

from kformer.tasks.text_parts import pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", ["one two", " three"]),
        ("onetwothree", ["onetwoth", "ree"]),  # no blank
        (" onetwothree", [" onetwot", "hree"]),  # the first letter is the only blank: a cut there would go on for ever
        ("one onetwothree", ["one", " onetwot", "hree"]),
        ("one two", ["one two"]),
        ("", [""]),
    ],
)
def test_a_text_is_cut_at_the_last_blank_within_reach_or_else_anywhere(text, expected):
    found = list(itertools.islice(pieces(text, 8), 10))
    assert found == expected
    assert "".join(found) == text
