"""Subwords that are drawn anew: the same texts, with SentencePiece's probabilities, from given random numbers alone."""

import collections
import functools
import itertools

import numpy as np
import pytest
import sentencepiece
from own_models import model_bytes, write_model

from kformer.data import load_corpus
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer, WordTokenizer, read_sentencepiece
from kformer.tokenizers.subword_sampling import BPEDropout, Subwords, UnigramSampling

VERSES = 1500
SYMBOLS = ("<2es>", "{0}")
ODD = [
    *("<2es> Send {0} to x{0}y.", "naïve 東京 🙂🙂 ñandú", "<s> <0x41> ▁ a▁b", "a", "aaaaaaaa", "x" * 99),
    *("1234567890", "Ω", "¡Ω! Ωmega Ω", "a\tb  c", "東京都に行った", "don't—stop"),
]
LIKELIEST = 1e5  # an alpha with which the best division is always drawn
UNLIMITED = 1 << 40


@functools.cache
def verses():
    return [*itertools.chain.from_iterable(itertools.islice(load_corpus("bible-en-es").train, VERSES))]


@functools.cache
def learned(kind):
    """A vocabulary with bytes for rare characters and symbols of the user's."""
    return SentencePieceTokenizer.train(verses(), 1500, kind, user_symbols=SYMBOLS)


def read(folder, texts, **options):
    """A user's own model. It has no bytes: rare characters are unknown."""
    return read_sentencepiece(write_model(folder / "own.model", texts, **options))


@pytest.fixture(scope="module")
def texts():
    return [*verses(), *ODD]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return learned(request.param)


@pytest.fixture(scope="module", params=["bpe", "unigram", "own bpe", "own unigram"])
def vocabulary(request, tmp_path_factory):
    kind = request.param.split()[-1]
    if request.param == kind:
        return learned(kind)
    options = {"model_type": kind, "vocab_size": 800, "user_defined_symbols": [*SYMBOLS]}
    return read(tmp_path_factory.mktemp("own"), verses(), **options)


def encoded(tokenizer, texts):
    """The usual ids of texts, end to end, and their numbers."""
    ids = tokenizer.tokenize(texts)
    return ids.values.numpy(), ids.row_lengths().numpy()


def sampler_of(tokenizer, strength):
    subwords = tokenizer.subwords()
    return {"bpe": BPEDropout, "unigram": UnigramSampling}[subwords.kind](subwords, strength)


def without_random_choices(tokenizer, ids, counts):
    """The ids, divided again by the same program, but with no merge left out, or with the best division."""
    subwords = tokenizer.subwords()
    if subwords.kind == "unigram":
        return UnigramSampling(subwords, LIKELIEST).sample(ids, counts, UNLIMITED, np.random.default_rng(0))[0]
    sampler, found = BPEDropout(subwords, 0.5), []
    for row in np.split(ids, np.cumsum(counts)[:-1]):
        for stays, some in itertools.groupby(row.tolist(), key=lambda number: not subwords.texts[number]):
            run = [*some]
            text = "".join(subwords.texts[number] for number in run)
            found += run if stays else sampler.divide(text, itertools.repeat(False))
    return np.array(found)


def test_without_random_choices_all_ids_are_those_of_sentencepiece(vocabulary, texts):
    ids, counts = encoded(vocabulary, texts)
    np.testing.assert_array_equal(without_random_choices(vocabulary, ids, counts), ids)


def test_other_ids_spell_the_same_text_and_leave_bytes_symbols_and_unknown_characters_as_they_are(vocabulary, texts):
    texts = texts[-200 - len(ODD) :]
    ids, counts = encoded(vocabulary, texts)
    sampler = sampler_of(vocabulary, 0.2)
    new, new_counts = sampler.sample(ids, counts, UNLIMITED, np.random.default_rng(0))
    assert new_counts.sum() == len(new) > 1.05 * len(ids)
    rows = [np.split(some, np.cumsum(sizes)[:-1]) for some, sizes in ((ids, counts), (new, new_counts))]
    assert sum(len(one) != len(other) for one, other in zip(*rows, strict=True)) > 100
    stay = [number for number, text in enumerate(vocabulary.subwords().texts) if not text]
    assert {vocabulary.tokens()[number] for number in np.intersect1d(ids, stay)} > {*SYMBOLS}  # and bytes or <unk>
    for usual, drawn, text in zip(*rows, texts, strict=True):
        np.testing.assert_array_equal(usual[np.isin(usual, stay)], drawn[np.isin(drawn, stay)], err_msg=text)
    before, after = (vocabulary.detokenize([row.tolist() for row in side]).numpy() for side in rows)
    np.testing.assert_array_equal(before, after)


def counted(sequences):
    return collections.Counter(map(tuple, sequences))


@pytest.mark.parametrize("strength", [0.1, 0.4])
@pytest.mark.parametrize("word", ["lord", "everlasting", "multitude of nations"])
def test_each_division_is_as_probable_as_in_sentencepiece(word, strength, tokenizer):
    """The two samples would come of one distribution: a chi-squared test.

    SentencePiece draws anew in each process, whatever its seed, so the bound is one that chance exceeds once in
    3 million times.
    """
    number = 16000
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    options = {"enable_sampling": True, "alpha": strength, "nbest_size": -1}
    theirs = counted(processor.encode(word, **options) for _ in range(number))
    ids, counts = encoded(tokenizer, [word] * number)
    new, new_counts = sampler_of(tokenizer, strength).sample(ids, counts, UNLIMITED, np.random.default_rng(2))
    ours = counted(row.tolist() for row in np.split(new, np.cumsum(new_counts)[:-1]))
    frequent = [division for division in ours | theirs if ours[division] + theirs[division] >= 20]
    rare = [number - sum(some[division] for division in frequent) for some in (ours, theirs)]
    pairs = [(ours[division], theirs[division]) for division in frequent] + [rare] * (sum(rare) >= 20)
    assert len(pairs) > 3
    statistic = sum((one - other) ** 2 / (one + other) for one, other in pairs)
    freedom = len(pairs) - 1
    spread = 2 / (9 * freedom)  # the cube root is nearly normal (Wilson and Hilferty, 1931); five standard deviations
    assert statistic < freedom * (1 - spread + 5 * np.sqrt(spread)) ** 3


def test_the_last_of_a_words_merges_may_be_left_out_alone():
    """▁ab comes of two merges, each of which is left out with a probability of 0.3."""
    subwords = Subwords("bpe", ("▁", "a", "b", "▁a", "▁ab"), (-9.0, -9.0, -9.0, -1.0, -2.0))
    new, counts = BPEDropout(subwords, 0.3).sample(np.full(10000, 4), np.ones(10000, int), 3, np.random.default_rng(0))
    found = counted(row.tolist() for row in np.split(new, np.cumsum(counts)[:-1]))
    assert set(found) == {(4,), (3, 2), (0, 1, 2)}  # "ab" is no subword, so without ▁a there is no other merge
    assert found[4,] / 10000 == pytest.approx(0.7 * 0.7, abs=0.02)
    assert found[3, 2] / 10000 == pytest.approx(0.7 * 0.3, abs=0.02)


def test_a_unigram_division_has_the_power_of_its_probability():
    """Of ▁a there are two divisions: one of probability 1/2, and one of 1/2 · 1/8."""
    logs = np.log([0.5, 0.5, 0.125]).tolist()
    subwords = Subwords("unigram", ("▁a", "▁", "a"), tuple(logs))
    _, counts = UnigramSampling(subwords, 1 / 3).sample(
        np.zeros(10000, int), np.ones(10000, int), 2, np.random.default_rng(0)
    )
    assert np.mean(counts == 1) == pytest.approx(2 / 3, abs=0.02)  # (1/2)^(1/3) : (1/16)^(1/3) is 2 : 1


def test_a_sequence_that_would_be_too_long_keeps_its_usual_ids(tokenizer, texts):
    ids, counts = encoded(tokenizer, texts[:200])
    sampler = sampler_of(tokenizer, 0.1)
    free, free_counts = sampler.sample(ids, counts, UNLIMITED, np.random.default_rng(3))
    longest = int(np.median(free_counts))
    limited, limited_counts = sampler.sample(ids, counts, longest, np.random.default_rng(3))
    parts = ((ids, counts), (free, free_counts), (limited, limited_counts))
    usual, free_rows, limited_rows = (np.split(some, np.cumsum(sizes)[:-1]) for some, sizes in parts)
    assert 0 < sum(free_counts > longest) < 200
    for number, row in enumerate(limited_rows):
        expected = usual[number] if free_counts[number] > longest else free_rows[number]
        np.testing.assert_array_equal(row, expected)


def test_the_random_numbers_decide_and_nothing_that_came_before(tokenizer, texts):
    ids, counts = encoded(tokenizer, texts[:50])
    fresh, used = sampler_of(tokenizer, 0.3), sampler_of(tokenizer, 0.3)
    used.sample(*encoded(tokenizer, texts[50:99]), UNLIMITED, np.random.default_rng(8))
    first, again = (one.sample(ids, counts, UNLIMITED, np.random.default_rng(7))[0] for one in (fresh, used))
    other, _ = fresh.sample(ids, counts, UNLIMITED, np.random.default_rng(9))
    np.testing.assert_array_equal(first, again)
    assert len(other) != len(first) or np.any(other != first)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_model_with_subwords_of_several_words_has_them_after_sampling_too(model_type, tmp_path):
    texts = verses()[:300]
    options = {"model_type": model_type, "split_by_whitespace": False, "vocab_size": 500}
    tokenizer = read(tmp_path, texts, **options)
    assert any("▁" in text[1:] for text in tokenizer.subwords().texts)
    ids, counts = encoded(tokenizer, texts)
    np.testing.assert_array_equal(without_random_choices(tokenizer, ids, counts), ids)
    new, new_counts = sampler_of(tokenizer, 0.3).sample(ids, counts, UNLIMITED, np.random.default_rng(0))
    before, after = (np.split(some, np.cumsum(sizes)[:-1]) for some, sizes in ((ids, counts), (new, new_counts)))
    assert sum(len(one) < len(other) for one, other in zip(before, after, strict=True)) > 250
    assert any("▁" in tokenizer.subwords().texts[number][1:] for number in new)
    spelled = [tokenizer.detokenize([row.tolist() for row in rows]).numpy().tolist() for rows in (before, after)]
    assert spelled[0] == spelled[1]


def test_a_subword_of_two_words_is_drawn_where_the_usual_ones_are_two():
    """The two words together have a probability of e^-3, and one after the other e^-2."""
    subwords = Subwords("unigram", ("▁a", "▁b", "▁a▁b"), (-1.0, -1.0, -3.0))
    _, counts = UnigramSampling(subwords, 1.0).sample(
        np.tile([0, 1], 10000), np.full(10000, 2), 2, np.random.default_rng(0)
    )
    assert np.mean(counts == 1) == pytest.approx(1 / (1 + np.e), abs=0.02)


def test_symbols_and_words_have_no_subwords():
    assert SymbolTokenizer(["K"]).subwords() is None
    assert WordTokenizer.train(["one two"], 9).subwords() is None


def test_a_model_tells_its_kind(texts):
    for kind in ("unigram", "bpe", "word", "char"):
        model = model_bytes(texts[:50], model_type=kind, vocab_size=90, pad_id=3)
        assert SentencePieceTokenizer(model).subwords().kind == kind


def test_a_subword_with_a_character_that_is_no_subword_stays_as_it_is():
    """Such vocabularies come from other toolkits, which have cut off rare pieces."""
    subwords = Subwords("bpe", ("▁", "a", "▁a", "▁ab"), (-9.0, -9.0, -1.0, -2.0))
    new, _ = BPEDropout(subwords, 0.9).sample(np.array([3, 2] * 9), np.array([18]), 99, np.random.default_rng(0))
    assert np.sum(new == 3) == 9
    assert {1, 0} <= {*new.tolist()}
