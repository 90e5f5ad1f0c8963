"""Texts to source ids and limits, and target ids to texts."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

END = 2
A, B, C, D = range(4, 8)  # the ids of the letters


def codec(positions="sinusoidal", num_positions=1024, **decoding):
    config = TransformerConfig(
        source_vocab_size=8, target_vocab_size=8, positional_encoding=positions, max_length=num_positions
    )
    letters = SymbolTokenizer(["a", "b", "c", "d"])
    return TextCodec(letters, letters, config, DecodingConfig(**decoding))


def encoded(texts, **options):
    source, limits = codec(**options).encode(tf.constant(texts))
    return source.numpy().tolist(), limits.numpy().tolist()


def test_a_source_ends_with_the_end_id_and_may_grow_by_the_extra_length():
    source, limits = encoded(["a b c", "d"], max_extra_length=5)
    assert source == [[A, B, C, END], [D, END, 0, 0]]
    assert limits == [3 + 5, 1 + 5]


@pytest.mark.parametrize(
    ("text", "expected"), [("a", [A, END]), ("a b", [A, B, END]), ("a b c", [A, B, END]), ("a b c d", [A, B, END])]
)
def test_a_source_has_at_most_max_source_length_tokens_with_its_end_id(text, expected):
    source, limits = encoded([text], max_source_length=3, max_extra_length=5)
    assert source == [expected]
    assert limits == [len(expected) - 1 + 5]


def test_learned_positions_limit_source_and_translation():
    source, limits = encoded(["a b c d", "a"], positions="learned", num_positions=4, max_extra_length=1)
    assert source == [[A, B, C, END], [A, END, 0, 0]]
    assert limits == [4, 2]
    assert encoded(["a b c d"], positions="learned", num_positions=4, max_extra_length=9)[1] == [4]


def test_no_line_is_longer_than_the_positions_that_the_model_has():
    """Otherwise a line that is not divided into its sentences would lose its end."""
    few = codec(positions="learned", num_positions=4, max_source_length=9)
    assert (few.longest_line, few.longest_part) == (3, 3)
    assert codec(max_source_length=9, max_sentence_length=20).longest_line == 8


def test_a_translation_has_at_most_max_length_tokens():
    assert encoded(["a b c", "a"], max_extra_length=2, max_length=4)[1] == [4, 3]


def test_an_empty_source_gets_an_empty_translation():
    source, limits = codec().encode(tf.constant(["", "a"]))
    assert source.numpy().tolist() == [[END, 0], [A, END]]
    assert limits.numpy().tolist() == [0, 1 + 50]
    # Whatever a search writes into the row of the empty source.
    result = SearchResult(tokens=[[[A, B]], [[A, B]]], scores=[[-1.5], [-0.5]], lengths=[[2], [2]])
    best = codec().decode_best(result, limits)
    assert best["translation"].numpy().tolist() == [b"", b"a b"]
    np.testing.assert_array_equal(best["score"], [0.0, -0.5])


def test_every_hypothesis_becomes_a_text():
    tokens = np.array([[[A, B, END, 0], [C, END, 0, 0]], [[D, D, D, D], [END, 0, 0, 0]]], "int32")
    result = SearchResult(tokens, scores=np.array([[-1.0, -2.0], [-3.0, -4.0]], "float32"), lengths=[[3, 2], [4, 1]])
    found = codec().decode(result, limits=tf.constant([9, 9]))
    assert found["translation"].numpy().tolist() == [[b"a b", b"c"], [b"d d d d", b""]]
    np.testing.assert_array_equal(found["score"], result.scores)
    assert codec().decode_best(result, tf.constant([9, 9]))["translation"].numpy().tolist() == [b"a b", b"d d d d"]


@pytest.mark.parametrize(
    ("closing", "expected"),
    [
        ((END,), [[A, B, END], [C, END, 8], [END, 8, 8]]),
        ((END, D), [[A, B, END, D], [C, END, D, 8], [END, D, 8, 8]]),
        ((), [[A, B, 8], [C, 8, 8], [8, 8, 8]]),  # blank texts alone would have no position
    ],
)
def test_a_source_is_closed_as_its_tokenizer_says_and_filled_up_with_the_models_padding(closing, expected):
    class Letters(SymbolTokenizer):
        closing_ids = closing

    letters = Letters(["a", "b", "c", "d"])
    config = TransformerConfig(source_vocab_size=9, target_vocab_size=9, pad_id=8)
    source, limits = TextCodec(letters, letters, config, DecodingConfig()).encode(tf.constant(["a b", "c", ""]))
    assert source.numpy().tolist() == expected
    assert limits.numpy().tolist() == [2 + 50, 1 + 50, 0]


@pytest.mark.parametrize(
    ("closing", "positions", "line", "part"),
    [
        ((END,), None, 6, 8),
        ((END, D), None, 5, 7),
        ((), None, 7, 9),
        ((END,), 5, 4, 4),  # the end has the fifth position
        ((END, D), 5, 3, 3),
        ((), 5, 4, 4),  # the padding that each source gets has the fifth
    ],
)
def test_the_ids_that_close_a_source_count_among_those_that_are_read_at_once(closing, positions, line, part):
    class Letters(SymbolTokenizer):
        closing_ids = closing

    letters = Letters(["a", "b", "c", "d"])
    limited = {} if positions is None else {"positional_encoding": "learned", "max_length": positions}
    config = TransformerConfig(source_vocab_size=9, target_vocab_size=9, **limited)
    found = TextCodec(letters, letters, config, DecodingConfig(max_source_length=7, max_sentence_length=9))
    assert (found.longest_line, found.longest_part) == (line, part)
    longest, _ = found.encode(tf.constant(["a " * 20]))
    assert longest.shape[1] == part + max(1, len(closing))


@pytest.mark.parametrize(
    ("decoding", "asked", "norms"),
    [
        ({}, None, [1.0, 2**0.6]),  # ((5 + length) / 6) ** 0.6
        ({"length_penalty": 2.0}, None, [1.0, 4.0]),
        ({"length_penalty": 2.0}, 1.0, [1.0, 2.0]),
        ({"length_penalty": 2.0}, 0.0, [1.0, 1.0]),
        ({"length_penalty": 2.0, "beam_rules": "transformers"}, None, [1.0, 49.0]),  # length ** 2
        ({"length_penalty": 2.0, "beam_size": 1}, None, [1.0, 1.0]),  # greedy search divides by none
        ({"beam_size": 1}, 2.0, [1.0, 1.0]),
    ],
)
def test_scores_are_divided_by_the_length_penalty_that_was_asked_for_or_else_the_models(decoding, asked, norms):
    np.testing.assert_allclose(codec(**decoding).score_norm(tf.constant([1, 7]), asked), norms, rtol=1e-6)
