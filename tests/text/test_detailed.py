"""Translations with their tokens, over a model that turns number words around."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy

from kformer.config import DecodingConfig, TransformerConfig
from kformer.models import build_model
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

TEXTS = [source for source, _ in toy.corpus().test[:23]]


def explained(translator, texts):
    found = translator.translate_detailed(tf.constant(texts, tf.string, shape=[len(texts)]))
    return {name: values.numpy() for name, values in found.items()}


def row_of(found, row):
    """One text's values without padding: the names that end in `length` say how many there are."""
    sizes = {"source": found["source_length"][row], "target": found["target_length"][row]}
    sizes |= {"log": sizes["target"], "alignment": sizes["target"]}
    kept = {name: sizes.get(name.split("_")[0]) if values.ndim > 1 else None for name, values in found.items()}
    return {name: values[row] if kept[name] is None else values[row][: kept[name]] for name, values in found.items()}


def with_decoding(translator, **options):
    return Translator(
        translator.model,
        translator.config,
        translator.source_tokenizer,
        translator.target_tokenizer,
        DecodingConfig(**options),
    )


def words_looked_at(text, row):
    """For each target token with bytes: the word of the source that holds the token it looks at most."""
    data = text.encode()
    words = []
    for token, weights, first in zip(row["target_token"], row["alignment"], row["alignment_start"], strict=True):
        if token:
            most = first + weights.argmax()
            begin = data.rfind(b" ", 0, row["source_start"][most] + 1) + 1
            words.append((token.decode().strip(), data[begin:].split()[0].decode()))
    return words


def test_translation_and_score_are_those_of_translate(numbers_translator):
    found = explained(numbers_translator, TEXTS)
    expected = numbers_translator.translate(tf.constant(TEXTS))
    assert found["translation"].tolist() == expected["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-5)


def test_tokens_are_slices_of_the_texts_and_cover_them(numbers_translator):
    texts = ["one two", "  three\tfour ", "", "one\n\ntwo  six", "e\u0301 one"]
    found = explained(numbers_translator, texts)
    for number, text in enumerate(texts):
        row = row_of(found, number)
        for side, data in (("source", text.encode()), ("target", row["translation"])):
            spans = zip(row[f"{side}_start"], row[f"{side}_end"], strict=True)
            assert [data[start:end] for start, end in spans] == row[f"{side}_token"].tolist()
            assert b"".join(b"".join(row[f"{side}_token"]).split()) == b"".join(data.split())


def test_log_probabilities_add_up_to_the_score(numbers_translator):
    found = explained(numbers_translator, TEXTS)
    for number in range(len(TEXTS)):
        row = row_of(found, number)
        tokens = row["target_length"]
        penalty = ((5 + tokens) / 6) ** numbers_translator.decoding.length_penalty
        np.testing.assert_allclose(row["log_probability"].sum() / penalty, row["score"], rtol=1e-4, atol=1e-5)
        assert tokens == len(row["translation"].split()) + 1  # a token a word, and the end
        assert row["target_token"][-1] == b""


def test_each_number_looks_at_the_number_that_it_translates(numbers_translator):
    """The model has one decoder layer, and turned the order around."""
    right = looked = 0
    for number, text in enumerate(TEXTS):
        row = row_of(explained(numbers_translator, [text]), 0)
        for written, word in words_looked_at(text, row):
            looked += 1
            right += toy.WORDS[word] == written
        assert row["alignment"].shape == (row["target_length"], row["source_length"]), number
        assert np.all(row["alignment"] >= 0)
        assert np.all(row["alignment"].sum(axis=1) <= 1 + 1e-5)
    assert right / looked > 0.9


def test_a_text_alone_has_what_it_has_among_others(numbers_translator):
    texts = [*TEXTS[:7], "one two\n\nthree four", ""]
    together = explained(numbers_translator, texts)
    for number, text in enumerate(texts):
        alone, among = row_of(explained(numbers_translator, [text]), 0), row_of(together, number)
        for name, values in alone.items():
            values, other = np.asarray(values), np.asarray(among[name])
            if name == "alignment":
                assert not other[:, values.shape[1] :].any()
                other = other[:, : values.shape[1]]
            if values.dtype.kind == "f":
                np.testing.assert_allclose(values, other, atol=1e-4, err_msg=name)
            else:
                np.testing.assert_array_equal(values, other, err_msg=name)


def test_the_parts_of_a_text_stand_one_behind_the_other(numbers_translator):
    row = row_of(explained(numbers_translator, ["one two\n\nthree"]), 0)
    assert row["translation"] == b"dos uno\n\ntres"
    assert row["divided"]
    assert not row["overlong"]
    assert [token.decode().strip() for token in row["target_token"]] == ["dos", "uno", "", "tres", ""]
    assert row["target_start"].tolist()[-2:] == [9, 13]
    line = row["source_length"] - (row["source_start"] >= 9).sum()  # source tokens of the first line
    assert row["alignment_start"].tolist() == [0, 0, 0, line, line]


def test_what_is_too_long_or_cut_is_told(numbers_translator):
    short = with_decoding(numbers_translator, max_source_length=5, max_length=3, beam_size=1)
    found = explained(short, ["one two", "one two three four five six one two", "one two three"])
    assert found["overlong"].tolist() == [False, True, False]
    assert found["divided"].tolist() == [False, True, False]
    assert [found["truncated"][row] for row in (0, 2)] == [False, True]
    assert [found["target_length"][row] for row in (0, 2)] == [3, 3]
    assert b"".join(b"".join(row_of(found, 1)["source_token"]).split()) == b"onetwothreefourfivesixonetwo"


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_translation_that_is_too_short_for_one_of_the_parts_is_told(numbers_translator):
    """ "six" and "seis" have 3 and 4 characters, "three" and "tres" 5 and 4."""
    texts = ["six", "three", "six\nthree", "", " "]
    for ratio, expected in ((0.7, [False, False, False]), (0.9, [False, True, True]), (1.5, [True, True, True])):
        found = explained(with_decoding(numbers_translator, short_ratio=ratio, beam_size=1), texts)
        assert found["short"].tolist() == [*expected, False, False]
    assert not explained(with_decoding(numbers_translator, beam_size=1), texts)["short"].any()


@pytest.mark.slow
def test_a_translation_is_too_short_by_its_characters_not_by_its_bytes():
    """Greek letters have two bytes. The weights are random, so what is written is some row of letters."""
    source, target = SymbolTokenizer(list("abcdef")), SymbolTokenizer(list("αβγδεζ"))
    config = TransformerConfig.of_size("tiny").replace(
        source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size, embedding_tying="none"
    )
    keras.utils.set_random_seed(0)
    decoding = DecodingConfig(beam_size=1, max_extra_length=1, short_ratio=2.0)
    translator = Translator(build_model(config), config, source, target, decoding)
    texts = ["a b c d", "e f", "a a a a a a", "f e d c b a"]
    found = explained(translator, texts)
    written = [translation.decode() for translation in found["translation"]]
    wanted = [2.0 * len(text) for text in texts]
    assert found["short"].tolist() == [len(one) < least for one, least in zip(written, wanted, strict=True)]
    assert any(len(one) < least <= len(one.encode()) for one, least in zip(written, wanted, strict=True))


def test_an_empty_batch_has_no_tokens(numbers_translator):
    found = explained(numbers_translator, [])
    assert {values.shape[0] for values in found.values()} == {0}
    nothing = explained(numbers_translator, ["", " "])
    assert nothing["target_length"].tolist() == nothing["source_length"].tolist() == [0, 0]
    assert nothing["truncated"].tolist() == [False, False]
