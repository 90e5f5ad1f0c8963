"""What a run notes of the lengths of its training texts."""

import pytest

from kformer.config import DecodingConfig
from kformer.data import encode_pairs
from kformer.data.corpus_facts import CorpusFacts
from kformer.tokenizers import SymbolTokenizer
from kformer.training.text_lengths import lengths_report, search_of_data

pytestmark = pytest.mark.tensorflow_only

TOKENIZER = SymbolTokenizer(["a"])  # a token a word
# Sources of 1 to 101 words.
PAIRS = [("a " * number, "a" * number) for number in range(1, 101)] + [("a " * 101, "a" * 20)]


def search(task, pairs=PAIRS):
    encoded = encode_pairs(pairs, TOKENIZER, TOKENIZER, max_length=2000)
    return search_of_data(task, CorpusFacts.of(pairs, []).short_ratio, encoded)


def test_a_translator_divides_lines_longer_than_95_in_100_sources_and_sentences_longer_than_all():
    found = search("translate")
    assert (found.max_source_length, found.max_sentence_length) == (97, 102)  # with the end: 96 words of 101, and 101
    assert found == DecodingConfig(max_source_length=97, max_sentence_length=102, short_ratio=found.short_ratio)
    assert search("translate", PAIRS[:10]).max_source_length == 11  # one of ten sources would be more than 5 in 100
    assert lengths_report("translate", found) == (
        "The translator divides lines of more than 97 source tokens into sentences, and sentences of more than 102 "
        "into parts: at most 5 % of the training sources are longer than the first, and none is longer than the second"
    )
    assert lengths_report("translate", DecodingConfig()).endswith("into parts")  # where nobody has measured


def test_a_translation_is_short_if_it_is_shorter_for_its_source_than_999_in_1000_targets():
    pairs = [("a b c d", "a b")] * 1999 + [("a b c d", "a")]
    assert search("translate", pairs).short_ratio == pytest.approx(3 / 7, abs=1e-3)
    # 1 in 1,000 of 500 lies half-way from the first ratio, 1 / 7, to the second.
    pairs = [("a b c d", "a b")] * 499 + [("a b c d", "a")]
    assert search("translate", pairs).short_ratio == pytest.approx(2 / 7, abs=2e-3)


def test_blanks_at_the_ends_and_pairs_without_a_text_do_not_count_among_the_ratios():
    pairs = [("  a b c d  ", "a b  ")] * 500 + [("a b c d", " ")] * 500 + [(" ", "a b")] * 500
    assert search("translate", pairs).short_ratio == pytest.approx(3 / 7, abs=1e-3)


def test_one_long_word_of_letters_is_no_longer_than_a_sentence():
    words = [("a " * 7, "a")] * 999 + [("a " * 20, "a")]
    found = search("translate", words)
    assert (found.longest_line, found.longest_source) == (8, 21)


def test_other_models_read_at_once_what_they_read_in_training():
    assert search("language-model") == DecodingConfig(max_source_length=102)
    assert search("classify") == search("tag") == DecodingConfig(max_source_length=256)
    assert search("tag", [("a " * 999, "a")]) == DecodingConfig(max_source_length=1000)
    assert lengths_report("tag", search("tag")) == "The model reads at most 256 tokens at once"
