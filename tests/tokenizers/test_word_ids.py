"""The ids of many texts are those of one text after another, though words are remembered."""

import concurrent.futures
import functools
import io
import random

import numpy as np
import pytest
import sentencepiece

from kformer.tokenizers import SentencePieceTokenizer, Tokenizer
from kformer.tokenizers.text_ops import string_tensor
from kformer.tokenizers.word_ids import WordIds

# What stands between blanks: words, characters that show nothing, white space that is no blank, signs of SentencePiece.
PARTS = [
    *(
        "fox",
        "señor",
        "sen\u0303or",
        "\u0303",
        "a\xadb",
        "<2es>",
        "x<2es>y",
        "7:30",
        "市場",
        "▁",
        "a▁b",
        "\ufdd01",
        "<s>",
    ),
    *("", "", "\xad", "\u200b", "\u200c", "\u200d", "\u180e", "\u200c\u200d", "a\u200cb", "\u200d\xad", "\u200c\t"),
    *("\t", "a\tb", "\xa0", "a\u3000", "\ufeff", "\ufeffa", "\x1f", "\0", "\ud800", "a\udfff", "\U0001f600"),
]


def texts(number: int) -> list[str]:
    draw = random.Random(7)
    return [" ".join(draw.choices(PARTS, k=draw.randrange(5))) for _ in range(number)]


def ids_of_each(tokenizer: Tokenizer, some: list[str]) -> list[list[int]]:
    ids, counts = tokenizer.ids_of(some)
    assert len(ids) == sum(counts)
    return [row.tolist() for row in np.split(ids, np.cumsum(counts)[:-1])] if len(counts) else []


@functools.cache
def trained(kind: str) -> SentencePieceTokenizer:
    words = ["the fox jumps over the river at 7:30, señor", "a dog sleeps in the market at 市場"] * 9
    return SentencePieceTokenizer.train(words, {"bpe": 330, "unigram": 290}[kind], kind, user_symbols=["<2es>"])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_they_are_those_of_tokenize_at_the_first_time_and_the_second(kind: str) -> None:
    tokenizer = trained(kind)
    some = [*PARTS, *texts(3000)]
    expected = tokenizer.tokenize(string_tensor(some)).to_list()
    for _ in range(2):
        assert ids_of_each(tokenizer, some) == expected
    assert ids_of_each(tokenizer, some[:1]) == expected[:1]
    assert ids_of_each(tokenizer, []) == []


class Letters:
    """Gives each letter its number in Unicode, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, some: list[str]) -> tuple[np.ndarray, np.ndarray]:
        self.asked += some
        joined = [text.replace(" ", "") for text in some]
        return np.array([*map(ord, "".join(joined))], np.int32), np.array([*map(len, joined)], np.int64)


def read(words: WordIds, *some: str) -> list[str]:
    ids, counts = words.ids_of(some)
    letters, ends = "".join(map(chr, ids)), np.cumsum(counts)
    return [letters[end - count : end] for end, count in zip(ends, counts, strict=True)]


def test_a_word_is_divided_once() -> None:
    letters = Letters()
    words = WordIds(letters)
    assert read(words, "ab c ab", "c", "") == ["abcab", "c", ""]
    assert read(words, "c ab", "d") == ["cab", "d"]
    assert sorted(letters.asked) == ["", "ab", "c", "d"]


def test_only_so_many_characters_are_remembered() -> None:
    letters = Letters()
    words = WordIds(letters, most_characters=4)
    for text in ("ab", "cd", "ab", "e", "ab"):  # with e they are five: all are forgotten
        assert read(words, text) == [text]
    assert letters.asked == ["ab", "cd", "e", "ab"]


def test_threads_share_it_while_words_are_forgotten() -> None:
    tokenizer = trained("bpe")
    words = WordIds(lambda some: Tokenizer.ids_of(tokenizer, some), most_characters=9)
    some = texts(200)
    whole = [tokenizer.tokenize(string_tensor(some[place : place + 5])).to_list() for place in range(0, 200, 5)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: words.ids_of(some[place : place + 5]), range(0, 200, 5)))
    assert [ids.tolist() for ids, _ in found] == [[one for row in rows for one in row] for rows in whole]


def test_a_unigram_model_reads_long_texts_whole() -> None:
    """Its scores of a long text are rounded, so that a word may be divided in another way than alone."""
    draw = random.Random(3)
    words = ["".join(draw.choices("abc", k=draw.randrange(2, 9))) for _ in range(4000)]
    tokenizer = SentencePieceTokenizer.train(words[:1000], 300, "unigram")
    long = " ".join(words)
    whole = Tokenizer.ids_of(tokenizer, [long])[0].tolist()
    assert tokenizer.ids_of([long])[0].tolist() == whole
    assert WordIds(lambda some: Tokenizer.ids_of(tokenizer, some)).ids_of([long])[0].tolist() != whole


def test_a_model_from_elsewhere_may_have_pieces_of_several_words() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["in the river", "in the market"] * 9),
        model_writer=model,
        vocab_size=30,
        model_type="bpe",
        split_by_whitespace=False,
        pad_id=3,
        minloglevel=2,
    )
    tokenizer = SentencePieceTokenizer(model.getvalue())
    assert "▁in▁the" in tokenizer.tokens()
    assert ids_of_each(tokenizer, ["in the", "the in"]) == tokenizer.tokenize(["in the", "the in"]).to_list()
