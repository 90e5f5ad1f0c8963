"""What is told of the lines of a file after they were translated."""

import pytest

from kformer.inference.line_counts import ShortTranslations
from kformer.text.batches import Hypothesis


@pytest.mark.parametrize("line", ["one two three", "раз два три", "一二三四五六七八"])
def test_lengths_are_counted_in_characters_in_every_script(line):
    """In UTF-8, a Cyrillic letter has two bytes and a Chinese one three."""
    short = ShortTranslations(0.5)
    half = -(-len(line) // 2)
    short(f"  {line}\t".encode(), [Hypothesis("x" * half, -1.0)])
    assert short.count == 0
    short(line.encode(), [Hypothesis("x" * (half - 1), -1.0)])
    assert (short.count, short.first) == (1, 2)
