"""The operations on texts that tokenizers share."""

import itertools
import re

from kformer.tokenizers.text_ops import collapse_whitespace
from kformer.writing_systems import WHITESPACE


def test_each_run_of_white_space_becomes_one_blank() -> None:
    runs = ["".join(run) for length in range(4) for run in itertools.product(" \t\u3000", repeat=length)]
    texts = [f"{run}a{other}b{run}" for run in runs for other in runs] + [f"a{space}b" for space in WHITESPACE]
    expected = [re.sub(f"[{WHITESPACE}]+", " ", text).strip(" ") for text in texts]
    assert [text.decode() for text in collapse_whitespace(texts).numpy()] == expected
