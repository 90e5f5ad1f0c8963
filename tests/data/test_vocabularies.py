"""The vocabularies of a run: what is learned from its pairs, and models that users bring."""

import itertools

import pytest
from own_models import write_model

from kformer.config import TrainingConfig
from kformer.data import load_corpus, train_tokenizers
from kformer.tokenizers import read_sentencepiece

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["one two three four", "six five four three", "two one six", "<2es> one five"]
PAIRS = [(text, text.upper()) for text in TEXTS]


def test_each_side_has_its_vocabulary_or_both_share_one():
    pairs = [("a b", "X"), ("b", "Y X")]
    config = TrainingConfig(tokenizer="symbols", shared_vocabulary=False)
    source, target = train_tokenizers(pairs, config)
    assert (source.symbols, target.symbols) == (("b", "a"), ("X", "Y"))
    source, target = train_tokenizers(pairs, config.replace(shared_vocabulary=True))
    assert source is target
    assert source.symbols == ("X", "b", "Y", "a")


def test_what_is_surely_too_long_is_left_out():
    config = TrainingConfig(tokenizer="symbols", shared_vocabulary=False, max_length=2)
    pairs = [("a", "b"), ("c" * 2000, "d"), ("e" * 2001, "f"), ("g", "h" * 2001)]
    source, target = train_tokenizers(pairs, config)
    assert (source.symbols, target.symbols) == (("a", "c" * 2000), ("b", "d"))
    with pytest.raises(
        ValueError, match=r"all 2 pairs are longer than max_length=2 tokens\. Check that line feeds end"
    ):
        train_tokenizers(pairs[2:], config)


def test_subwords_are_learned():
    texts = [source for source, _ in itertools.islice(load_corpus("bible-en-es").train, 300)]
    config = TrainingConfig(tokenizer="unigram", vocab_size=400)
    source, target = train_tokenizers([(text, text) for text in texts], config)
    assert source is target
    assert source.vocab_size == 400


def test_one_model_is_that_of_both_sides_and_two_are_two(tmp_path):
    one, other = (str(write_model(tmp_path / name, TEXTS)) for name in ("one.model", "other.model"))
    config = TrainingConfig(vocab_size=300)
    source, target = train_tokenizers(PAIRS, config.replace(source_tokenizer=one))
    assert source is target
    source, target = train_tokenizers(PAIRS, config.replace(target_tokenizer=one))
    assert source is target
    source, target = train_tokenizers(PAIRS, config.replace(source_tokenizer=one, target_tokenizer=one))
    assert source is target
    source, target = train_tokenizers(PAIRS, config.replace(source_tokenizer=one, target_tokenizer=other))
    assert source is not target
    apart = config.replace(source_tokenizer=one, shared_vocabulary=False, user_symbols="ONE")
    source, target = train_tokenizers(PAIRS, apart)
    assert source.model_bytes == read_sentencepiece(one).model_bytes
    assert "ONE" in target.tokens()
