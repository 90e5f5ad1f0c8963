"""Whole words and punctuation marks."""

import pytest
import tensorflow as tf

from kformer.config import TrainingConfig
from kformer.data import train_tokenizers
from kformer.tokenizers import SentencePieceTokenizer, WordTokenizer


def written(tokenizer: WordTokenizer, text: str) -> str:
    return tokenizer.normalize(tf.constant([text])).numpy()[0].decode()


def split(text: str) -> list[str]:
    """The tokens of a text, shown by a tokenizer that knows them all."""
    tokenizer = WordTokenizer.train([text])
    return [tokenizer.symbols[number - 4] for number in tokenizer.tokenize(tf.constant([text])).to_list()[0]]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, world!", "Hello , world !"),
        ("¿Qué dijo?—«Nada...»", "¿ Qué dijo ? — « Nada . . . »"),
        ("don't l’été Beth-el dogs' -5", "don't l’été Beth-el dogs ' - 5"),
        ("3.50€ at 10:30, 1,000.", "3.50 € at 10:30 , 1,000 ."),
        ("e\u0301te\u0301 שָׁלוֹם, привет", "été שָׁלוֹם , привет"),  # NFC; marks belong to their letters
        ("ok👩‍👩‍👧!", "ok 👩‍👩‍👧 !"),
        (" \u3000a\nb\t", "a b"),
        ("\ufeffa\ufeffb", "a b"),
    ],
)
def test_words_and_marks_are_tokens(text: str, tokens: str) -> None:
    assert split(text) == tokens.split(" ")


def test_a_nul_ends_no_text() -> None:
    tokenizer = WordTokenizer(["one", "two"])
    assert tokenizer.tokenize(["one\0two one", "\0", "one"]).to_list() == [[4, 3, 5, 4], [3], [4]]
    spans = tokenizer.tokenize_with_offsets(tf.constant(["one\0 two"]))
    assert (spans.start.to_list(), spans.end.to_list()) == ([[0, 3, 5]], [[3, 4, 8]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello , world !", "Hello, world!"),
        ("( a [ b ] ) ; ¿ c ? ¡ d ! “ e ” « f »", "(a [b]); ¿c? ¡d! “e” «f»"),
        ('he said " yes " and " no " .', 'he said "yes" and "no".'),
        ('" a', '"a'),
        ("dogs ' 5 - 3 & x % wait . . .", "dogs' 5 - 3 & x% wait..."),
    ],
)
def test_punctuation_attaches_again(text: str, expected: str) -> None:
    tokenizer = WordTokenizer.train([text])
    assert written(tokenizer, text) == expected
    assert written(tokenizer, expected) == expected  # and is split as before


def test_every_text_of_the_tests_is_written_the_same_when_it_is_read_again(texts: list[str]) -> None:
    tokenizer = WordTokenizer.train(texts, vocab_size=20)
    once = tokenizer.normalize(tf.constant(texts))
    assert tokenizer.normalize(once).numpy().tolist() == once.numpy().tolist()


def test_quotation_marks_are_counted_in_each_text_alone() -> None:
    tokenizer = WordTokenizer(["a", '"'])
    assert tokenizer.normalize(tf.constant(['" a', '" a "'])).numpy().tolist() == [b'"a', b'"a"']


def test_train_keeps_the_most_frequent_words() -> None:
    texts = ["b a, a", "c b a é"]
    assert WordTokenizer.train(texts).symbols == ("a", "b", ",", "c", "é")
    tokenizer = WordTokenizer.train(texts, vocab_size=6)  # two words beside the four special ids
    assert (tokenizer.symbols, tokenizer.vocab_size) == (("a", "b"), 6)
    assert tokenizer.tokenize(tf.constant(["a b, c"])).to_list() == [[4, 5, 3, 3]]
    assert written(tokenizer, "a b, c") == "a b ⁇ ⁇"
    with pytest.raises(ValueError, match=r"vocab_size must be more than 4, the number of special ids. Received: vocab"):
        WordTokenizer.train(texts, vocab_size=4)


def test_the_configuration_chooses_words() -> None:
    config = TrainingConfig(tokenizer="words", vocab_size=6, shared_vocabulary=False)
    source, target = train_tokenizers([("a b a", "x y, y"), ("a c b", "y")], config)
    assert (type(source), source.symbols, target.symbols) == (WordTokenizer, ("a", "b"), ("y", ","))


def test_spellings_are_the_words_that_ids_stand_for(bpe: SentencePieceTokenizer) -> None:
    assert WordTokenizer(["a", ","]).spellings() == [(), (), (), (), ("a",), (",",)]
    spellings = bpe.spellings()
    assert len(spellings) == bpe.vocab_size
    mark, *_, last = bpe.tokenize(tf.constant([" ."])).to_list()[0]
    assert (spellings[mark], spellings[last]) == (("▁",), (".",))
    assert ("▁number", "number") in spellings
    assert all(spellings[number] == () for number in (0, 1, 2, *bpe.fallback_ids()))
