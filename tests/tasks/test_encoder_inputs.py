"""The ids of one text or of a pair of texts."""

import pytest
import tensorflow as tf

from kformer.tasks.encoder_inputs import encode_texts
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

LETTERS = SymbolTokenizer(["a", "b", "c"])
START, END = LETTERS.start_id, LETTERS.end_id
A, B, C = LETTERS.tokenize(["a b c"]).to_list()[0]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a b", [START, A, B, END]),
        ("a\tb c", [START, A, END, B, C, END]),
        ("a\tb\tc", [START, A, END, B, C, END]),  # no model has learned three texts: further tabs are blanks
        ("", [START, END]),
    ],
)
def test_a_tab_divides_two_texts(text, ids):
    assert encode_texts(tf.constant([text, "c"]), LETTERS).to_list() == [ids, [START, C, END]]
