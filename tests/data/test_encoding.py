"""Pairs of texts to flat arrays of ids."""

import keras_nlp
import numpy as np
import pytest
import tensorflow as tf

from kformer.data import encode_pairs
from kformer.data.encoded_ids import MemoryIds
from kformer.tokenizers import KerasNLPTokenizer, SymbolTokenizer


def test_ids_and_offsets(letters: SymbolTokenizer) -> None:
    encoded = encode_pairs([("a b", "c"), ("d", "e f a")], letters, letters, max_length=8)
    assert encoded.source_ids.tolist() == [4, 5, 2, 7, 2]
    assert encoded.source_offsets.tolist() == [0, 3, 5]
    assert encoded.target_ids.tolist() == [6, 2, 8, 9, 4, 2]
    assert encoded.target_offsets.tolist() == [0, 2, 6]
    assert (encoded.kept, encoded.skipped_blank, encoded.skipped_long) == (2, 0, 0)


def test_joined_corpora_come_apart_again(letters: SymbolTokenizer) -> None:
    corpora = [[("a b", "c"), ("d", "e f a")], [("b", "a")], [("c d e", "f"), ("f", "b b"), ("a", "c")]]
    store = MemoryIds([len(pairs) for pairs in corpora])
    joined = encode_pairs([pair for pairs in corpora for pair in pairs], letters, letters, max_length=8, store=store)
    apart = joined.apart()
    assert [one.parts for one in apart] == [()] * 3
    for one, pairs in zip(apart, corpora, strict=True):
        alone = encode_pairs(pairs, letters, letters, max_length=8)
        for name in ("source_ids", "source_offsets", "target_ids", "target_offsets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(alone, name))
        assert one.report() == alone.report()


def test_ids_take_two_bytes_where_the_vocabulary_allows(letters: SymbolTokenizer) -> None:
    most, more = (SymbolTokenizer([f"s{number}" for number in range(number)]) for number in (65532, 65533))
    assert (most.vocab_size, more.vocab_size) == (65536, 65537)  # four special ids
    encoded = encode_pairs([("s65531", "s65532")], most, more, max_length=8)
    assert (encoded.source_ids.dtype, encoded.target_ids.dtype) == (np.uint16, np.int32)
    assert (encoded.source_ids.tolist(), encoded.target_ids.tolist()) == ([65535, 2], [65536, 2])


@pytest.mark.parametrize("wrong", [65536, -1])
def test_an_id_that_two_bytes_cannot_hold_is_refused(letters: SymbolTokenizer, wrong: int) -> None:
    target = SymbolTokenizer(["x"])
    target.end_id = wrong
    with pytest.raises(ValueError, match=f"ids from .*{wrong}.* below its vocab_size, 5. Correct the tokenizer"):
        encode_pairs([("a", "x")], letters, target, max_length=8)


def test_special_ids_come_from_the_tokenizers(letters: SymbolTokenizer) -> None:
    target = SymbolTokenizer(["x"])
    target.pad_id, target.start_id, target.end_id = 7, 8, 9
    encoded = encode_pairs([("a", "x")], letters, target, max_length=8)
    assert (encoded.source_pad_id, encoded.target_pad_id, encoded.start_id) == (0, 7, 8)
    assert (encoded.source_ids.tolist(), encoded.target_ids.tolist()) == ([4, 2], [4, 9])


def test_blank_and_long_pairs_are_skipped_and_counted(letters: SymbolTokenizer) -> None:
    pairs = [("a", "b"), ("", "b"), ("a", " \u3000\n"), ("a b c", "b"), ("a b", "a b"), ("b", "a b c"), ("", "a b c")]
    encoded = encode_pairs(pairs, letters, letters, max_length=3)  # two tokens and the end id
    assert encoded.source_ids.tolist() == [4, 2, 4, 5, 2]
    assert encoded.target_ids.tolist() == [5, 2, 4, 5, 2]
    assert (encoded.kept, encoded.skipped_blank, encoded.skipped_long) == (2, 3, 2)
    assert encoded.report() == ("2 pairs kept (5 source and 5 target tokens); skipped: 3 blank, 2 longer than 3 tokens")


def test_white_space_is_blank_even_if_it_has_tokens(letters: SymbolTokenizer) -> None:
    spaces = KerasNLPTokenizer(keras_nlp.tokenizers.ByteTokenizer())  # keeps blanks as bytes
    encoded = encode_pairs([("a", "b"), ("a", " ")], letters, spaces, max_length=8)
    assert (encoded.kept, encoded.skipped_blank) == (1, 1)


def test_a_text_of_which_no_token_is_left_is_blank(letters: SymbolTokenizer) -> None:
    mark = "\ufeff"  # a byte order mark is no white space, and has no token
    encoded = encode_pairs([("a", "b"), (mark, "b"), ("a", mark), (mark, "a b c d")], letters, letters, 4)
    assert (encoded.kept, encoded.skipped_blank, encoded.skipped_long) == (1, 3, 0)


def test_a_source_is_closed_as_its_tokenizer_says_and_a_target_by_its_end(letters: SymbolTokenizer) -> None:
    class WithLanguage(SymbolTokenizer):
        closing_ids = (2, 9)

    source = WithLanguage(letters.symbols)
    encoded = encode_pairs([("a b", "c"), ("d", "e")], source, source, max_length=8)
    assert encoded.source_ids.tolist() == [4, 5, 2, 9, 7, 2, 9]
    assert encoded.source_offsets.tolist() == [0, 4, 7]
    assert encoded.target_ids.tolist() == [6, 2, 8, 2]


def test_more_pairs_than_one_call_takes(letters: SymbolTokenizer) -> None:
    pairs = [("a " * (n % 3 + 1), "b") for n in range(4001)]  # two full calls and one of a single text
    encoded = encode_pairs(pairs, letters, letters, max_length=8)
    assert np.diff(encoded.source_offsets).tolist() == [n % 3 + 2 for n in range(4001)]
    assert len(encoded.target_ids) == 2 * 4001


def test_lone_surrogates_are_unknown() -> None:
    signs = SymbolTokenizer(["a", "?"])
    encoded = encode_pairs([("a \ud800 ?", "a")], signs, signs, max_length=8)
    assert encoded.source_ids.tolist() == [4, 3, 5, 2]


class RefusesLongTexts(SymbolTokenizer):
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        longest = max(map(len, text.numpy()), default=0)
        assert longest <= 3100, f"{longest} bytes are tokenized"
        return super().tokenize(text)


def test_texts_that_are_surely_too_long_are_skipped_before_they_are_tokenized() -> None:
    tokenizer = RefusesLongTexts(["a", "b"])
    many, few = "a " * 3001, "a " * 1500  # more than 1,000 characters for each of three tokens; 1,500 of them
    pairs = [("a", "b"), (many, "b"), ("b", many), (many, ""), (few, "b"), ("x" * 3001, "b"), ("x" * 3000 + " ", "b")]
    encoded = encode_pairs(pairs, tokenizer, tokenizer, max_length=3)
    assert encoded.source_ids.tolist() == [4, 2, 3, 2]  # 3: the symbol of 3,000 characters is unknown
    assert (encoded.kept, encoded.skipped_blank, encoded.skipped_long) == (2, 1, 4)


def test_blanks_do_not_make_a_text_too_long(letters: SymbolTokenizer) -> None:
    encoded = encode_pairs([("a" + " \u3000" * 5000 + "b", "c")], letters, letters, max_length=3)
    assert encoded.source_ids.tolist() == [4, 5, 2]


@pytest.mark.parametrize("pairs", [[], [("", "a")], [("a b c", "a")]])
def test_nothing_left(pairs: list[tuple[str, str]], letters: SymbolTokenizer) -> None:
    with pytest.raises(ValueError, match=f"No pair of {len(pairs)} is left: 0 pairs kept .* or raise max_length"):
        encode_pairs(pairs, letters, letters, max_length=3)
