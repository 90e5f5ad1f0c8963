"""Scores are those of the rules of the search, also where a text is divided, and where a translation is given."""

import numpy as np
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only

LINES = ["one two three", "six five"]
NORMS = {
    "paper": lambda length: ((5 + length) / 6) ** 1.5,
    "opennmt": lambda length: ((5 + length) / 6) ** 1.5,
    "transformers": lambda length: length**1.5,
}


@pytest.fixture(scope="module", params=NORMS)
def rules(request):
    return request.param


@pytest.fixture(scope="module")
def translator(numbers_run, rules):
    return Translator.from_run(numbers_run, DecodingConfig(beam_size=3, length_penalty=1.5, beam_rules=rules))


def test_the_score_of_a_given_translation_is_that_of_the_search(translator):
    found = translator.translate(tf.constant(LINES))
    given = translator.score(LINES, [text.decode() for text in found["translation"].numpy()])
    np.testing.assert_allclose(given["score"], found["score"], rtol=1e-4)


def check_two_lines(translator, norm, method="translate"):
    alone = translator.translate(tf.constant(LINES))
    given = translator.score(LINES, [text.decode() for text in alone["translation"].numpy()])
    tokens = given["tokens"].numpy().tolist()
    log_probability = sum(score * norm(length) for score, length in zip(alone["score"].numpy(), tokens, strict=True))
    together = getattr(translator, method)(tf.constant(["\n".join(LINES)]))
    assert together["score"].numpy()[0] == pytest.approx(log_probability / norm(sum(tokens)), rel=1e-4)


def test_the_score_of_two_lines_is_that_of_one_long_translation(translator, rules):
    check_two_lines(translator, NORMS[rules])


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["translate_detailed", pytest.param("translate_with_options", marks=pytest.mark.in_ci)]
)
def test_other_methods_score_two_lines_alike(numbers_run, method):
    decoding = DecodingConfig(beam_size=2, length_penalty=1.5, beam_rules="transformers")
    check_two_lines(Translator.from_run(numbers_run, decoding), NORMS["transformers"], method)


def test_a_first_token_that_is_given_costs_nothing(numbers_run):
    source, target = LINES[0], "tres dos uno"
    free = Translator.from_run(numbers_run, DecodingConfig(beam_size=2, length_penalty=1.0, beam_rules="transformers"))
    first = int(free.target_tokenizer.tokenize(tf.constant([target])).values[0])
    given = Translator.from_run(numbers_run, free.decoding.replace(first_id=first))
    found = given.translate(tf.constant([source]))
    assert found["translation"].numpy().tolist() == [target.encode()]
    np.testing.assert_allclose(given.score([source], [target])["score"], found["score"], rtol=1e-4)
    assert free.score([source], [target])["score"].numpy() < found["score"].numpy()  # the first token costs there


def test_another_first_token_than_the_given_one_costs_what_it_costs(numbers_run):
    free = Translator.from_run(numbers_run, DecodingConfig(beam_size=2, beam_rules="transformers"))
    (first,) = free.target_tokenizer.tokenize(tf.constant(["tres"])).to_list()
    given = Translator.from_run(numbers_run, free.decoding.replace(first_id=first[0]))
    scores = [one.score(["one"], ["uno"])["log_probability"].numpy() for one in (free, given)]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_in_greedy_search_a_first_token_that_is_given_costs_what_it_costs(numbers_run):
    source, target = LINES[0], "tres dos uno"
    greedy = Translator.from_run(numbers_run, DecodingConfig(beam_size=1, beam_rules="transformers"))
    first = int(greedy.target_tokenizer.tokenize(tf.constant([target])).values[0])
    given = Translator.from_run(numbers_run, greedy.decoding.replace(first_id=first))
    for translator in (greedy, given):
        found = translator.translate(tf.constant([source]))
        assert found["translation"].numpy().tolist() == [target.encode()]
        np.testing.assert_allclose(translator.score([source], [target])["score"], found["score"], rtol=1e-4)
