"""Strings in, strings out: what is defined for every input, and independence of the batch."""

import hostile
import numpy as np
import pytest
import tensorflow as tf
import toy

from kformer.config import DecodingConfig
from kformer.runs.folder import RunFolder
from kformer.translation.translator import Translator

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def greedy(numbers_run):
    return Translator.from_run(numbers_run, DecodingConfig(beam_size=1))


def test_a_text_gives_a_text_and_a_list_gives_a_list(numbers_translator):
    assert numbers_translator("one two three") == "tres dos uno"
    assert numbers_translator(["two one", "five six"]) == ["uno dos", "seis cinco"]


def test_scores_are_log_probabilities_of_confident_translations(numbers_translator):
    scores = numbers_translator.translate(tf.constant(["one two", "six"]))["score"].numpy()
    assert scores.dtype == np.float32
    assert np.all(scores <= 0)
    assert np.all(scores > -2)


def test_later_calls_of_any_size_do_not_trace_again(numbers_translator):
    for texts in (["one"], ["one two", "three"], [], ["four"] * 5):
        numbers_translator(texts)
    assert numbers_translator.translate.experimental_get_tracing_count() == 1


def test_an_empty_batch_gives_an_empty_batch(numbers_translator, greedy):
    assert numbers_translator([]) == []
    assert greedy([]) == []


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u2003"])
def test_nothing_said_gives_nothing_with_score_zero(numbers_translator, text):
    found = numbers_translator.translate(tf.constant([text, "one two"]))
    assert found["translation"].numpy().tolist() == [b"", b"dos uno"]
    assert found["score"].numpy()[0] == 0.0


def test_bytes_that_are_not_utf8_are_read_as_replacement_characters(numbers_translator):
    found = numbers_translator.translate(tf.constant([b"one \xff two", "one \ufffd two".encode()]))
    first, second = found["translation"].numpy()
    assert first == second
    first.decode("utf-8")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_is_no_longer_than_asked_for(numbers_run, beam_size):
    def tokens(max_length):
        translator = Translator.from_run(numbers_run, DecodingConfig(beam_size=beam_size, max_length=max_length))
        translation = translator("one two three four five")
        return translator.target_tokenizer.tokenize(tf.constant([translation])).row_lengths().numpy()[0]

    assert tokens(max_length=None) > 3
    assert tokens(max_length=3) <= 3


def test_the_rest_of_an_over_long_text_is_left_out(numbers_run):
    translator = Translator.from_run(numbers_run, DecodingConfig(max_source_length=8))
    ids = translator.source_tokenizer.tokenize(tf.constant(["one two three four five six one two"]))[:, :7]
    kept = translator.source_tokenizer.detokenize(ids).numpy()[0].decode("utf-8")
    assert translator("one two three four five six one two") == translator(kept)


def test_translations_end_at_source_length_plus_the_extra_length(numbers_run):
    translator = Translator.from_run(numbers_run, DecodingConfig(beam_size=1, max_extra_length=1, min_length=40))
    source = tf.constant(["one two three"])
    tokens = int(translator.source_tokenizer.tokenize(source).row_lengths()[0]) + 1
    produced = translator.target_tokenizer.tokenize(translator.translate(source)["translation"])
    assert int(produced.row_lengths()[0]) <= tokens


def test_a_batch_translates_as_its_sentences_do_one_by_one(numbers_translator, greedy):
    sources = [source for source, _ in toy.corpus().train[:150]]
    for translator in (numbers_translator, greedy):
        assert translator(sources) == [translator(source) for source in sources]


def test_hostile_texts_all_get_an_answer(greedy):
    texts = hostile.texts()
    assert len(texts) == 200
    found = greedy.translate(tf.constant(texts))
    assert np.all(np.isfinite(found["score"].numpy()))
    for translation in found["translation"].numpy():
        translation.decode("utf-8")


def test_n_best_begins_with_the_best(numbers_translator):
    texts = tf.constant(["one two", "three"])
    best, several = numbers_translator.translate(texts), numbers_translator.translate_n_best(texts)
    assert several["translation"].shape == (2, 4)
    assert several["translation"].numpy()[:, 0].tolist() == best["translation"].numpy().tolist()
    assert len(set(several["translation"].numpy()[0])) == 4


def test_sampling_repeats_under_one_seed_and_varies_between_seeds(greedy):
    texts = ["one two three four"] * 3
    hot = [greedy.sample(texts, seed=seed, temperature=5.0) for seed in (1, 1, 2)]
    assert hot[0] == hot[1]
    assert hot[0] != hot[2]
    assert greedy.sample(texts, seed=1, top_k=1) == greedy(texts)


def test_a_folder_without_a_run_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a run folder: it has no transformer.json"):
        Translator.from_run(tmp_path)


def test_a_run_without_weights_is_said(tmp_path):
    toy.TRANSFORMER.save(RunFolder(tmp_path).transformer_file)
    with pytest.raises(FileNotFoundError, match="has not reached its first validation"):
        Translator.from_run(tmp_path)


def test_a_tokenizer_of_another_size_is_refused(numbers_translator):
    with pytest.raises(ValueError, match="differ in their vocabulary. Received: a tokenizer of 320 ids"):
        Translator(
            numbers_translator.model,
            toy.TRANSFORMER,
            numbers_translator.source_tokenizer,
            numbers_translator.target_tokenizer,
        )
