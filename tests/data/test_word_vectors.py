"""Files of word vectors, and the vectors of a vocabulary."""

import numpy as np
import pytest
from gensim.models import KeyedVectors

from kformer.data.word_vectors import WordVectors, find_vectors, read_word_vectors
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer, WordTokenizer

pytestmark = pytest.mark.tensorflow_only
WORDS = ["the", "été", "猫", "10:30", "--"]


@pytest.fixture(scope="module")
def given():
    vectors = KeyedVectors(3)
    vectors.add_vectors(WORDS, np.random.default_rng(0).normal(size=(5, 3)).astype("float32"))
    return vectors


@pytest.mark.parametrize(
    "form",
    [{"binary": False}, {"binary": True}, {"binary": False, "write_header": False}],
    ids=["word2vec text", "word2vec binary", "GloVe"],
)
def test_what_gensim_writes_is_read_in_every_format(form, given, tmp_path):
    given.save_word2vec_format(tmp_path / "vectors", **form)
    read = read_word_vectors(tmp_path / "vectors")
    assert list(read.words) == WORDS
    np.testing.assert_array_equal(read.vectors, given.vectors)


def test_blanks_at_the_end_of_a_line_and_words_that_repeat(tmp_path):
    (tmp_path / "fasttext.vec").write_bytes(b"3 2\nthe 0.5 1.5 \r\n2 3 4 \nthe 9 9\n")
    read = read_word_vectors(tmp_path / "fasttext.vec")
    assert (read.words, read.vectors.tolist()) == ({"the": 0, "2": 1}, [[0.5, 1.5], [3, 4]])


BINARY = (
    b"2 2\nab \xcd\xcc\xcc=\xcd\xcc\xcc=\ncd \xcd\xcc\xcc=\xcd\xcc\xcc=\n"  # 0.1 has no byte that is a control sign
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, or its first line is no vector. Expected is a file in word2vec's text or binary format or"),
        (b"Hello, this is a letter.\n", "is empty, or its first line is no vector"),
        (b"\x1f\x8b\x08\x00", "is compressed by gzip. Decompress it first"),
        (b"\xef\xbb\xbfa 1 2\n", "begins with a byte order mark .U.FEFF.. Remove it"),
        (b"2 2\n", "promises 2 words with 2 numbers each, but 0 follow. Complete the file"),
        (b"0 2\n", "promises 0 words"),
        (b"3 2\na 1 2\nb 3 4\n", "promises 3 words with 2 numbers each, but 2 follow"),
        (b"1 2\na 1 2\nb 3 4\n", "promises 1 word with 2 numbers each, but 2 follow"),  # gensim reads one
        (b"2 2\na 1 2\nb 3\n", "Line 3 of .* has 1 number, but 2 are expected"),  # gensim reads 3 twice
        (b"a 1 2\nb c 3 4\n", "Line 2 of .* has 3 numbers, but 2 are expected.*Correct or remove this line"),
        (b"a 1 2\n\xe9t\xe9 3 4\n", "The word in line 2 of .* is not UTF-8.*Convert the file, for example by iconv"),
        (b"2 2\n\xe9t\xe9 1 2\nb 3 4\n", "The word in line 2 of .* is not UTF-8"),
        (b"a 1 2\nb 3 x\n", "cannot be read: could not convert string to float: 'x'.*Write it again"),
        (b"a 1 2\nb nan 4\n", "has numbers that are not finite; the first word with such numbers is 'b'"),
        (BINARY.replace(b"2 2", b"900000000 2"), "promises 900,000,000 words with 2 numbers each, but too few bytes"),
        (BINARY.replace(b"2 2", b"1 2"), "promises 1 word, and 12 bytes are left after them. Correct the first line"),
        (BINARY[:-3], "cannot be read: unexpected end of input"),
        (BINARY.replace(b"cd", b"\xe9d"), "cannot be read: 'utf-8' codec can't decode"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused(content, message, tmp_path):
    (tmp_path / "vectors").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_word_vectors(tmp_path / "vectors")


def test_the_binary_example_above_is_right_as_it_is(tmp_path):
    (tmp_path / "vectors").write_bytes(BINARY)
    np.testing.assert_array_equal(read_word_vectors(tmp_path / "vectors").vectors, np.full((2, 2), 0.1, "float32"))


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file .*gone. Name a file of word vectors"):
        read_word_vectors(tmp_path / "gone")


def rows(**words):
    return WordVectors({word: row for row, word in enumerate(words)}, np.array(list(words.values()), "float32"))


def test_a_word_is_looked_up_as_it_is_then_in_lower_case_then_in_the_next_file():
    tokenizer = WordTokenizer(["The", "God", "cat", "x", "y"])
    found = find_vectors(tokenizer, rows(the=[1, 2], god=[3, 4], God=[5, 6]), rows(the=[7, 8], y=[9, 10]))
    assert found.ids.tolist() == [4, 5, 8]
    assert found.vectors.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert found.missing == ["cat", "x"]
    assert found.report() == "3 of 5 words have a vector, 2 are missing"


def test_a_subword_that_begins_a_word_is_looked_up_with_its_mark_and_without():
    tokenizer = SentencePieceTokenizer.train(["number over"] * 9, vocab_size=282)
    found = find_vectors(tokenizer, rows(number=[1.0], **{"▁over": [2.0], "over": [3.0]}))
    pieces = [tokenizer.spellings()[token_id] for token_id in found.ids]
    assert dict(zip(pieces, found.vectors[:, 0].tolist(), strict=True)) == {
        ("▁number", "number"): 1.0,
        ("▁over", "over"): 2.0,
    }
    assert len(found.missing) == 282 - 260 - 2  # special ids and bytes stand for no word


def test_vectors_of_another_language():
    with pytest.raises(ValueError, match="None of the 2 words of the vocabulary has a vector; the first ones are 'a'"):
        find_vectors(SymbolTokenizer(["a", "b"]), rows(the=[1.0]))
