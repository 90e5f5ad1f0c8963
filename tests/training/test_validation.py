"""Translations while a model learns."""

import numpy as np
import pytest
import toy

from kformer.config import MONITORS, DecodingConfig
from kformer.models import build_transformer
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights_file as load_weights
from kformer.text.attention import read_attention
from kformer.text.batches import Hypothesis
from kformer.tokenizers import load_tokenizers
from kformer.training import live_translation
from kformer.training.live_translation import LiveTranslator, ScoreTranslations, attention_picture

BOTH = ("bleu", "chrf", "bleu a", "chrf a", "bleu b", "chrf b")


def live(run, **lengths):
    folder = RunFolder(run)
    model = build_transformer(folder.transformer_config(), dtype="float32")
    load_weights(folder.best_weights_file, model)
    return model, LiveTranslator(
        model, folder.transformer_config(), load_tokenizers(folder.tokenizer_folder), DecodingConfig(**lengths)
    )


@pytest.mark.parametrize(
    ("corpora", "names"), [(["a"], {"val_bleu", "val_chrf"}), (["a", "b"], {f"val_{of}" for of in BOTH})]
)
def test_scores_of_each_corpus_are_there_if_there_are_several(corpora, names):
    def translate(texts):
        return [[Hypothesis("uno dos tres cuatro", 0.0)] for _ in texts]

    parts = {name: [("one two three four", "uno dos tres cuatro")] for name in corpora}
    scores = ScoreTranslations(
        translate, parts, symbols=False, limit=9, bleu_tokenizer="13a", monitor=MONITORS["loss"]
    )()
    assert {*scores} == names
    assert scores["val_bleu"] == pytest.approx(100)


def test_bleu_of_each_corpus_is_by_the_tokenizer_that_suits_it():
    """A Chinese corpus beside a longer English one, for which all are scored together as English is."""
    parts = {"en": [("1", "a sentence of five words " * 9)], "zh": [("2", "他去了城里的市场。")]}

    def translate(texts):
        return [[Hypothesis({b"1": parts["en"][0][1], b"2": "他去了城市的市场。"}[text], 0.0)] for text in texts]

    scores = ScoreTranslations(translate, parts, symbols=False, limit=9, bleu_tokenizer=None, monitor=MONITORS["loss"])
    assert scores()["val_bleu zh"] == pytest.approx(59.69, abs=0.01)  # each character is a word
    scores.bleu_tokenizer = "13a"
    assert scores()["val_bleu zh"] == 0


@pytest.fixture(scope="module")
def learned(numbers_run):
    return live(numbers_run)


@pytest.fixture(scope="module")
def of_parts(numbers_run):
    """Reads four tokens at once."""
    return live(numbers_run, max_source_length=4)[1]


def texts_of(translate, sources):
    return [hypotheses[0].text for hypotheses in translate([source.encode() for source in sources])]


def test_it_follows_the_weights(learned):
    model, translate = learned
    sources = [source for source, _ in toy.corpus().test[:5]]
    right = [toy.translation(source) for source in sources]
    assert texts_of(translate, sources) == right
    weights = model.get_weights()
    model.set_weights([np.zeros_like(weight) for weight in weights])
    assert texts_of(translate, sources) != right
    model.set_weights(weights)
    assert texts_of(translate, sources) == right


def test_texts_of_every_length_are_decoded_by_one_graph(learned):
    _, translate = learned
    for words in range(1, 4):
        sources = ["one " * words] * words
        assert texts_of(translate, sources) == [toy.translation(source) for source in sources]
    assert translate._decode.experimental_get_tracing_count() == 1


def test_a_text_that_is_too_long_is_translated_in_parts(of_parts):
    assert texts_of(of_parts, ["six", "one two three\nfour five", "two"]) == [
        "seis",
        "tres dos uno\ncinco cuatro",
        "dos",
    ]
    assert texts_of(of_parts, ["one two three four"]) == ["uno dos tres cuatro"]  # a word is a part here


def test_many_parts_are_translated_in_several_batches(of_parts, monkeypatch):
    monkeypatch.setattr(live_translation, "BATCH_SIZE", 2)
    sources = ["one two three\nfour five\nsix\none two\ntwo one", "six", "two three"]
    searched, find = [], of_parts._find

    def counting(source, *others):
        searched.append(len(source))
        return find(source, *others)

    monkeypatch.setattr(of_parts, "_find", counting)
    assert texts_of(of_parts, sources) == ["tres dos uno\ncinco cuatro\nseis\ndos uno\nuno dos", "seis", "tres dos"]
    assert max(searched) == 2


def test_attention_is_over_the_tokens_of_one_text_and_of_its_translation(learned):
    model, translate = learned
    (scores,) = translate.attention("one two three")
    heads, target, source = scores.shape
    assert heads == 4
    codec = translate.codec
    assert source == len(codec.source_tokenizer.tokenize(["one two three"])[0]) + 1  # with the end token
    assert target == len(codec.target_tokenizer.tokenize(["tres dos uno"])[0]) + 1
    np.testing.assert_allclose(scores.sum(axis=-1), 1, atol=1e-5)
    _, _, cross = read_attention(codec, model, "one two three", "tres dos uno")
    np.testing.assert_allclose(scores, cross.weights[0], atol=1e-5)


def test_the_picture_has_a_row_a_layer_and_a_column_a_head():
    scores = np.zeros((2, 3, 5))  # 2 heads, 3 target and 5 source tokens
    scores[1, 2, 4] = 1.0
    picture = attention_picture([scores, scores, scores])
    assert picture.shape == (3 * (3 * 8 + 4), 2 * (5 * 8 + 4))
    dark = np.argwhere(picture == 0)
    assert len(dark) == 3 * 8 * 8
    assert dark[0].tolist() == [2 * 8, (5 * 8 + 4) + 4 * 8]
