"""Long texts in parts, and the translations of parts in texts again."""

import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import SearchResult
from kformer.text.codec import TextCodec
from kformer.text.parts import Parts, divide, gaps_before, join
from kformer.text.translate_texts import BATCH_TOKENS, translate_texts
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

WORDS = [*"abcdefgh", "A", "B", "so", "so.", "it!", "end.", "Mr.", "He", "说。", "。", '"Go', 'now."', "A.", "..."]
TOKENIZER = SymbolTokenizer(WORDS)  # a token a word


def divided(text: str, longest_line: int, longest: int | None = None) -> list[tuple[str, str]]:
    """The parts of one text: what stands before each, and its tokens, shown as words."""
    parts = divide(tf.constant([text]), TOKENIZER, longest_line, longest or longest_line)
    assert parts.text.numpy().tolist() == [0] * len(parts.gap)
    texts = TOKENIZER.detokenize(parts.ids).numpy()
    return [(gap.decode(), part.decode()) for gap, part in zip(parts.gap.numpy(), texts, strict=True)]


def test_a_short_text_is_one_part_however_many_sentences_it_has():
    assert divided("a so. He b it! A c", 9) == [("", "a so. He b it! A c")]
    assert divided("  a b \t ", 9) == [("", "a b")]
    assert divided("\ufeffa b\ufeff", 9) == [("", "a b")]
    assert divided("", 9) == [("", "")]
    assert divided(" \n ", 9) == [("", "")]


def test_lines_are_parts_and_the_white_space_between_them_is_kept():
    assert divided("a b\nc", 9) == [("", "a b"), ("\n", "c")]
    assert divided(" a\r\n\n  b \n", 9) == [("", "a"), ("\r\n\n  ", "b")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a so.  He b it! A c", [("", "a so."), ("  ", "He b it!"), (" ", "A c")]),
        ('"Go now." He so end.', [("", '"Go now."'), (" ", "He so end.")]),
        ("a b ... He c", [("", "a b ..."), (" ", "He c")]),
    ],
)
def test_a_line_that_is_too_long_is_divided_into_sentences(text, expected):
    assert divided(text, 4) == expected


def test_a_sentence_may_be_longer_than_a_line_that_is_not_divided():
    assert divided("a b c d so. He b", 4, 5) == [("", "a b c d so."), (" ", "He b")]
    assert divided("a b c d e", 4, 5) == [("", "a b c d e")]
    assert divided("a b c d e so. He b", 4, 5) == [("", "a b"), (" ", "c d"), (" ", "e so."), (" ", "He b")]
    assert divided("a so. He b c", 4, 5) == [("", "a so."), (" ", "He b c")]  # a line, not a sentence
    assert divided("a b c d e f g h", 2, 6) == [("", "a b c"), (" ", "d e f"), (" ", "g h")]


@pytest.mark.parametrize(
    "end", [".", "..", "!", "?", "…", "؟", "۔", "।", *(f".{closing}" for closing in "\"'”’»)]"), '!")']
)
def test_a_sentence_may_end_with_any_of_these_signs(end):
    parts = divide(tf.constant([f"a so{end} He b"]), TOKENIZER, 3, 3)
    assert parts.ids.row_lengths().numpy().tolist() == [2, 2]
    assert parts.gap.numpy().tolist() == [b"", b" "]


@pytest.mark.parametrize("end", ["。", "！", "？", "！？", *(f"。{closing}" for closing in "”’」』）")])
def test_a_chinese_sentence_may_end_with_any_of_these_signs(end):
    characters = _Characters(["说", "好", "H", *end])
    sentence = len(end) + 1
    for after, gap in (("好好", ""), ("He", " ")):
        parts = divide(tf.constant([f"说{end}{gap}{after}"]), characters, sentence + 1, sentence + 1)
        assert parts.ids.row_lengths().numpy().tolist() == [sentence, 2]
        assert parts.gap.numpy().tolist() == [b"", gap.encode()]


def test_a_sentence_does_not_end_with_an_abbreviation_or_an_initial_or_before_a_small_letter():
    # Neither is a sentence, so the line falls into groups of words, of half the longest length.
    for line in ("Mr. B a b c d", "He A. B a b c", "a it! b c d e"):
        words = line.split()
        assert divided(line, 5) == [("", " ".join(words[:2])), (" ", " ".join(words[2:4])), (" ", " ".join(words[4:]))]


def test_chinese_sentences_need_no_blank_between_them():
    letters = SymbolTokenizer(["说。", "好。"])
    parts = divide(tf.constant(["说。好。"]), _Characters(["说", "好", "。"]), 2, 2)
    assert letters.vocab_size == 6
    assert parts.gap.numpy().tolist() == [b"", b""]
    assert parts.ids.to_list() == [[4, 6], [5, 6]]


@pytest.mark.parametrize(
    ("translations", "joined"),
    [
        (["I spoke.", "Good."], "I spoke. Good."),
        (["I spoke!\u201d", "\u201cGood."], "I spoke!\u201d \u201cGood."),
        (["말했다.", "좋다."], "말했다. 좋다."),  # Korean has blanks
        (["言った。", "よい。"], "言った。よい。"),
        (["言った!", "よい!"], "言った!よい!"),
        (["言った。", "Good."], "言った。Good."),
        (["I spoke.", ""], "I spoke."),
        (["", "Good."], "Good."),
        (["I spoke. ", "Good."], "I spoke. Good."),
    ],
)
def test_translations_of_chinese_sentences_have_a_blank_between_them_where_their_script_has_any(translations, joined):
    parts = divide(tf.constant(["说。好。"]), _Characters(["说", "好", "。"]), 2, 2)
    rows = tf.constant(translations)[:, tf.newaxis]
    nothing, lengths = tf.zeros((2, 1)), tf.ones((2, 1), tf.int32)
    found = join(parts, tf.constant(1), rows, nothing, lengths, lambda tokens: tf.ones_like(tokens, tf.float32))
    assert found["translation"].numpy()[0, 0].decode() == joined


def test_two_texts_without_white_space_between_their_parts_stay_apart():
    parts = divide(tf.constant(["好", "好"]), _Characters(["说", "好", "。"]), 2, 2)
    assert gaps_before(parts, tf.constant([["Good."], ["Good."]])).numpy().tolist() == [[b""], [b""]]


class _Characters(SymbolTokenizer):
    """A token a character."""

    def tokenize(self, text):
        return super().tokenize(tf.strings.regex_replace(text, "(.)", r"\1 "))


def test_a_word_that_is_too_long_is_divided_anywhere_into_equal_parts():
    parts = divide(tf.constant(["a abcdefg b"]), _Characters([*"abcdefg"]), 4, 4)
    shown = ["".join("abcdefg"[i - 4] for i in row) for row in parts.ids.to_list()]
    assert shown == ["a", "abcd", "efg", "b"]
    assert parts.gap.numpy().tolist() == [b"", b" ", b" ", b" "]
    whole = divide(tf.constant(["abcde"]), _Characters([*"abcdefg"]), 4, 5)  # it is longer than a line alone
    assert whole.ids.row_lengths().numpy().tolist() == [5]


def test_only_the_lines_that_are_too_long_are_divided():
    parts = divide(tf.constant(["a so. He b", "c", "a so. He b it! A c\nd"]), TOKENIZER, 4, 4)
    assert TOKENIZER.detokenize(parts.ids).numpy().tolist() == [
        b"a so. He b",
        b"c",
        b"a so.",
        b"He b it!",
        b"A c",
        b"d",
    ]
    assert parts.text.numpy().tolist() == [0, 1, 2, 2, 2, 2]
    assert parts.gap.numpy().tolist() == [b"", b"", b"", b" ", b" ", b"\n"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "\n", "  ", "\x00", "é", "\xff"]), max_size=30), min_size=1, max_size=4),
    st.integers(1, 7),
    st.integers(0, 3),
)
def test_no_token_is_lost_and_no_part_is_too_long(texts, longest_line, more):
    lines = [" ".join(words) for words in texts]
    longest = longest_line + more
    parts = divide(tf.constant(lines), TOKENIZER, longest_line, longest)
    expected = TOKENIZER.tokenize(tf.constant(lines)).to_list()
    found = [[] for _ in lines]
    for owner, ids in zip(parts.text.numpy(), parts.ids.to_list(), strict=True):
        assert len(ids) <= longest
        found[owner] += ids
    assert found == expected


def test_scores_are_those_of_one_long_hypothesis():
    parts = Parts(tf.ragged.constant([[4], [5], [6]]), tf.constant([0, 1, 1]), tf.constant(["", "", "\n"]))
    norm = lambda length: np.power((5 + np.asarray(length, "float32")) / 6, np.float32(0.6))  # noqa: E731
    log_probs, lengths = np.array([[-1.0], [-2.0], [-4.0]], "float32"), np.array([[3], [2], [5]], "int32")
    scores = (log_probs / norm(lengths)).astype("float32")
    found = join(parts, tf.constant(2), tf.constant([["x"], ["y"], ["z"]]), scores, lengths, norm)
    assert found["translation"].numpy().tolist() == [[b"x"], [b"y\nz"]]
    np.testing.assert_allclose(found["score"], [[-1.0 / norm(3)], [(-2.0 - 4.0) / norm(2 + 5)]], rtol=1e-6)


def test_the_best_translation_of_all_parts_is_first():
    """By the sums of the log probabilities; a text of one part keeps the order of its hypotheses."""
    parts = Parts(tf.ragged.constant([[4], [5], [6]]), tf.constant([0, 0, 1]), tf.constant(["", " ", ""]))
    rows = [["a1", "a2", "a3"], ["b1", "b2", "b3"], ["c1", "c2", "c3"]]
    scores = np.array([[-1, -2, -3], [-1, -4, -1.5], [-1, -1, -2]], "float32")
    ones = tf.ones((3, 3), tf.int32)
    found = join(
        parts, tf.constant(2), tf.constant(rows), scores, ones, lambda lengths: tf.ones_like(lengths, tf.float32)
    )
    assert found["translation"].numpy().tolist() == [[b"a1 b1", b"a3 b3", b"a2 b2"], [b"c1", b"c2", b"c3"]]
    assert found["score"].numpy().tolist() == [[-2, -4.5, -6], [-1, -1, -2]]


def codec(max_source_length: int, **decoding) -> TextCodec:
    config = TransformerConfig(source_vocab_size=len(WORDS) + 4, target_vocab_size=len(WORDS) + 4)
    return TextCodec(
        TOKENIZER,
        TOKENIZER,
        config,
        DecodingConfig(**{"beam_size": 1, "max_source_length": max_source_length, **decoding}),
    )


class Echo:
    """A search whose translation is the source, twice the best hypothesis with another score; it notes its batches."""

    def __init__(self) -> None:
        self.shapes = []

    def __call__(self, source, limits, starts):
        self.shapes.append(tuple(source.shape))
        lengths = tf.reduce_sum(tf.cast(source != 0, tf.int32), axis=1)
        score = -tf.cast(lengths, tf.float32)
        return SearchResult(
            tf.stack([source, source], axis=1),
            tf.stack([score, 2 * score], axis=1),
            tf.stack([lengths, lengths], axis=1),
        )


def test_texts_come_back_in_order_whatever_batches_they_were_in():
    generator = random.Random(5)
    texts = [" ".join(generator.choices("abcdefgh", k=generator.randrange(1, 40))) for _ in range(211)]
    search = Echo()
    found = translate_texts(codec(256), search, tf.constant(texts), n_best=2)
    assert found["translation"].numpy().tolist() == [[text.encode()] * 2 for text in texts]
    tokens = np.array([len(text.split()) + 1 for text in texts])
    np.testing.assert_array_equal(found["score"], np.stack([-tokens, -2 * tokens], axis=1))
    assert [rows for rows, _ in search.shapes] == [64, 64, 64, 19]
    assert sorted([length for _, length in search.shapes], reverse=True) == [length for _, length in search.shapes]


def test_a_batch_of_long_texts_has_fewer_of_them():
    search = Echo()
    translate_texts(codec(2000), search, tf.constant([" ".join("a" * 1000)] * 9), n_best=2)
    assert [rows for rows, _ in search.shapes] == [4, 4, 1]
    assert all(rows * length <= BATCH_TOKENS for rows, length in search.shapes)


def test_the_end_of_a_text_counts_among_the_tokens_of_a_batch():
    search = Echo()
    translate_texts(codec(2000), search, tf.constant([" ".join("a" * 512)] * 9), n_best=2)
    assert search.shapes == [(7, 513), (2, 513)]  # eight of them would be 8 more than 4,096


def test_a_line_is_divided_into_sentences_though_one_sentence_may_be_longer():
    search = Echo()
    texts = tf.constant(["a so. He b c", "a b c d e"])
    found = translate_texts(codec(4, max_sentence_length=6), search, texts, n_best=2)
    assert found["translation"].numpy()[:, 0].tolist() == texts.numpy().tolist()
    assert search.shapes == [(3, 6)]  # two sentences, and one that is as long as both


def test_the_score_of_a_text_of_two_parts_has_the_length_penalty_of_the_model():
    two_parts = codec(9, beam_size=4, length_penalty=1.0)
    found = translate_texts(two_parts, Echo(), tf.constant(["a b c\nd"]), n_best=2)
    # Lengths of 4 and 2 have the penalties 9/6 and 7/6. Together they are 6, with the penalty 11/6.
    log_probability = -4 * 9 / 6 - 2 * 7 / 6
    np.testing.assert_allclose(found["score"][0, 0], log_probability / (11 / 6), rtol=1e-6)


def test_an_empty_batch_needs_no_search():
    search = Echo()
    found = translate_texts(codec(9), search, tf.constant([], tf.string), n_best=2)
    assert found["translation"].shape == found["score"].shape == (0, 2)
    assert search.shapes == []
