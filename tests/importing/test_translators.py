"""Small encoder-decoder models of Hugging Face, and what transformers answered with them."""

import numpy as np
import pytest
import tensorflow as tf
from importing.examples import TOLERANCE, Example
from quick import mostly_slow

from kformer.importing.languages import Languages
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only

# With their languages, where the files do not say them.
EXAMPLES = {
    "marian": None,
    "marian_separate": None,
    "m2m100": None,
    "nllb": Languages("eng_Latn", "spa_Latn"),
    "mbart": None,
    "bart": None,
    "t5": None,
    "t5_gated": None,
}


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request, tmp_path_factory):
    return Example(request.param, tmp_path_factory.mktemp("runs"), EXAMPLES[request.param])


def test_texts_have_the_same_ids(example):
    assert example.ids() == example.expected["ids"]


def test_logits_are_the_same(example):
    np.testing.assert_allclose(example.translation_logits(), example.expected["logits"], atol=TOLERANCE)


@pytest.mark.parametrize("example", mostly_slow(EXAMPLES, {"m2m100"}), indirect=True)
def test_greedy_search_finds_the_same_translations(example):
    assert example.answers(Translator, beam_size=1)[0] == example.expected["greedy"]


@pytest.mark.parametrize("example", mostly_slow(EXAMPLES, {"marian"}), indirect=True)
def test_beam_search_finds_the_same_translations(example):
    """The search of generation_config.json, with its four beams and its largest length."""
    texts, scores = example.answers(Translator)
    assert texts == example.expected["beam"]
    np.testing.assert_allclose(scores, example.expected["beam_scores"], atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("example", mostly_slow(EXAMPLES, {"marian"}), indirect=True)
def test_a_batch_is_translated_as_each_of_its_lines_and_in_detail(example):
    translator = Translator.from_run(example.run.path)
    lines = example.expected["lines"][:6]
    details = translator.translate_detailed(tf.constant(lines))
    together = [text.decode() for text in details["translation"].numpy()]
    assert together == example.expected["beam"][:6]
    assert [translator.translate(tf.constant([line]))["translation"].numpy()[0].decode() for line in lines] == together
    for row, text in enumerate(together):
        tokens = details["target_token"][row].numpy()
        assert b"".join(tokens).decode() == text
        assert details["target_length"][row].numpy() <= example.run.decoding_config().max_length
