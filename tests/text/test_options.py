"""Translations with options that come with each request, over a model that turns number words around."""

import math
import re

import numpy as np
import pytest
import tensorflow as tf
import toy

from kformer.config import DecodingConfig
from kformer.export.operations import read
from kformer.models import build_transformer
from kformer.tasks.translator import Translator
from kformer.text.option_tensors import asked_lengths, option_tensors
from kformer.text.options import OPTIONS
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

TEXTS = [source for source, _ in toy.corpus().test[:23]]
# Of the 8 tokens that a part may have here, its end included.
DECODING = DecodingConfig(beam_size=3, length_penalty=0.6, max_length=8)


@pytest.fixture(scope="module")
def translator(numbers_translator):
    return _with_search(numbers_translator, DECODING)


def _with_search(translator, decoding):
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return Translator(translator.model, translator.config, *tokenizers, decoding)


def translated(translator, texts, **options):
    found = translator.translate_with_options(tf.constant(texts, tf.string, shape=[len(texts)]), **options)
    return [text.decode() for text in found["translation"].numpy()], found["score"].numpy()


@pytest.mark.slow
@pytest.mark.in_ci
def test_without_options_it_is_translate(translator):
    texts = [*TEXTS, "", "one two\n\nthree"]
    texts, scores = translated(translator, texts), translator.translate(tf.constant(texts))
    assert texts[0] == [text.decode() for text in scores["translation"].numpy()]
    np.testing.assert_allclose(texts[1], scores["score"], rtol=1e-5)


def test_an_empty_batch_gives_an_empty_one(translator):
    assert translated(translator, [])[0] == []


def test_translations_begin_with_the_prefix(translator):
    found, _ = translated(translator, ["one two three", "two", ""], target_prefix="seis tres")
    assert [text.startswith("seis tres") for text in found] == [True, True, False]
    assert found[2] == ""


def test_each_text_has_its_own_prefix(translator):
    found, scores = translated(translator, ["one two three"] * 3, target_prefix=["tres", "", "dos"])
    assert found[:2] == ["tres dos uno"] * 2
    assert found[2].startswith("dos")
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)  # the model would have begun like this
    assert scores[2] < scores[1] - 0.5


def test_a_prefix_stands_in_place_of_the_first_token_of_all_translations(translator):
    """A tokenizer that begins each text with that token begins the prefix with it, too."""
    (tres,) = translator.target_tokenizer.tokenize(["tres"]).to_list()[0]
    begun = _with_search(translator, DECODING.replace(first_id=tres))
    found, _ = translated(begun, ["one two"] * 2, target_prefix=["", "seis"])
    assert [text.split()[0] for text in found] == ["tres", "seis"]
    assert translated(begun, ["one two"])[0] == found[:1]


@pytest.mark.parametrize("prefix", ["tres ocho", ["tres", "ocho"]])
def test_a_prefix_that_is_not_in_the_vocabulary_is_refused(prefix):
    symbols = SymbolTokenizer(["one", "two", "dos", "tres"])
    config = toy.TRANSFORMER.replace(source_vocab_size=symbols.vocab_size, target_vocab_size=symbols.vocab_size)
    untrained = Translator(build_transformer(config), config, symbols, symbols, DECODING)
    assert translated(untrained, ["one"], target_prefix="tres dos")[0][0].startswith("tres dos")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="target_prefix must have only words or symbols of the mod"
    ):
        translated(untrained, ["one", "two"], target_prefix=prefix)


@pytest.mark.parametrize("nothing", ["\u200b", "\u200e\u200b"])
def test_a_line_that_shows_nothing_takes_no_prefix(translator, nothing):
    """Text of web pages may begin so. The model translates the next line as the first one."""
    expected = translated(translator, ["one two\ntwo one"], target_prefix="tres")[0][0]
    found, _ = translated(translator, [f"{nothing}\none two\ntwo one", nothing], target_prefix="tres")
    assert found == [f"\n{expected}", ""]


def test_of_several_parts_the_first_one_has_the_prefix(translator):
    found, _ = translated(translator, ["one two\ntwo one", "five"], target_prefix="tres")
    lines = found[0].split("\n")
    assert lines[0].startswith("tres")
    assert lines[1] == "uno dos"


def test_the_largest_length_counts_tokens_of_each_part(numbers_translator):
    # Greedily: among several hypotheses, one that ends at once may be better than one that is cut off.
    translator = _with_search(numbers_translator, DecodingConfig(beam_size=1, max_length=8))
    text = "one two three four\n\nfive"
    found, _ = translated(translator, [text], max_length=2)
    assert found == ["cuatro tres\n\ncinco"]
    longest, _ = translated(translator, [text], max_length=100)
    assert longest == ["cuatro tres dos uno\n\ncinco"]


@pytest.mark.parametrize(
    ("asked", "most", "least"),
    [
        ({"max_length": 5, "min_length": 2}, [3, 6], 3),
        ({"max_length": 2**31 - 1, "min_length": 0}, [3, 8], 1),
        ({"max_length": 0, "min_length": 0}, [3, 8], 1),
    ],
)
def test_asked_lengths_count_behind_what_is_given_and_stay_below_the_models_own(asked, most, least):
    options = option_tensors(DECODING, asked)
    found = asked_lengths(options, DECODING.replace(min_length=1), tf.constant([3, 8]), given=tf.constant([1, 1]))
    assert [lengths.numpy().tolist() for lengths in found] == [most, [least, least]]


def words_in(texts):
    """The numbers of words, each of which is one token."""
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize("drawing", [{}, {"temperature": 0.01, "seed": 3}])
def test_the_least_length_counts_tokens_before_the_end(translator, drawing):
    texts = ["one", "one two three", ""]
    found, _ = translated(translator, texts, min_length=5, **drawing)
    assert min(words_in(found[:2])) >= 5
    assert found[2] == ""
    assert max(words_in(translated(translator, texts)[0])) == 3


@pytest.mark.parametrize("options", [{"min_length": 4, "max_length": 4}, {"min_length": 8}])
def test_a_least_length_without_room_for_the_end_is_refused(options, translator):
    with pytest.raises(tf.errors.InvalidArgumentError, match="min_length must be less than max_length and 8, because"):
        translated(translator, ["one"], **options)


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_limit_that_is_below_the_least_length_leaves_room_for_the_end(translator, numbers_translator):
    decoding = DECODING.replace(max_length=None, max_extra_length=3)
    assert words_in(translated(_with_search(translator, decoding), ["one two"], min_length=30)[0]) == [4]
    longer = _with_search(translator, DECODING.replace(min_length=6))
    found, scores = translated(longer, ["one two"], max_length=3)
    expected, as_asked = translated(translator, ["one two"], max_length=3)
    assert found == expected == ["dos uno"]
    np.testing.assert_allclose(scores, as_asked, rtol=1e-5)


def test_the_least_length_counts_the_prefix_and_holds_for_each_part(translator):
    (found,), _ = translated(translator, ["two\none"], target_prefix="seis tres", min_length=3)
    first, second = found.split("\n")
    assert first.startswith("seis tres ")
    assert min(words_in([first, second])) >= 3


@pytest.mark.slow
@pytest.mark.in_ci
def test_without_a_least_length_it_is_the_models_own(translator):
    longer = _with_search(translator, DECODING.replace(min_length=4))
    found, _ = translated(longer, TEXTS)
    assert found == longer(TEXTS)
    assert min(words_in(found)) == 4
    assert translated(longer, TEXTS, min_length=1)[0] == translator(TEXTS)


def test_the_length_penalty_divides_the_score(translator):
    text = ["one two three four", "one"]
    plain, log_probabilities = translated(translator, text, length_penalty=0.0)
    penalized, scores = translated(translator, text, length_penalty=2.0)
    assert plain == penalized
    tokens = np.array([5, 2])
    np.testing.assert_allclose(scores, log_probabilities / ((5 + tokens) / 6) ** 2, rtol=1e-5)


def test_the_seed_decides_what_is_drawn(translator):
    drawn = [translated(translator, TEXTS, seed=seed, temperature=1.5)[0] for seed in (3, 3, 2**40 + 3, -(2**40) + 3)]
    assert drawn[0] == drawn[1]
    assert len({tuple(texts) for texts in drawn}) == 3


def test_what_is_drawn_goes_on_behind_the_prefix(translator):
    found, _ = translated(translator, TEXTS, temperature=1.5, seed=3, target_prefix="seis tres")
    assert all(text.startswith("seis tres") for text in found)


def test_the_score_of_what_was_drawn_has_no_length_penalty(translator):
    options = {"temperature": 1.5, "seed": 3}
    texts = ["one two three", "one two\ntwo one"]  # scores of several parts are put together
    plain, log_probabilities = translated(translator, texts, length_penalty=0.0, **options)
    penalized, scores = translated(translator, texts, length_penalty=2.0, **options)
    assert plain == penalized
    np.testing.assert_array_equal(scores, log_probabilities)


def test_the_ends_of_the_ranges_are_allowed(translator):
    (found,), _ = translated(translator, ["one two"], length_penalty=10.0, top_p=1.0)
    assert found.startswith("dos uno")  # so large a penalty makes it long


@pytest.mark.parametrize(
    "options", [{"temperature": 1e-3}, {"temperature": 1.5, "top_k": 1}, {"temperature": 1.5, "top_p": 1e-6}]
)
def test_what_cuts_all_tokens_off_but_one_leaves_the_most_probable(translator, options):
    assert translated(translator, TEXTS, **options)[0] == translated(translator, TEXTS)[0]


def test_batches_of_one_request_draw_unlike_each_other(translator):
    found, _ = translated(translator, ["one two three"] * 128, temperature=3.0)  # two batches of 64
    assert found[:64] != found[64:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_penalty": -1.0}, "length_penalty must be a number from 0 to 10. Received:"),
        ({"length_penalty": 11.0}, "length_penalty must be a number from 0 to 10. Received:"),
        ({"length_penalty": float("nan")}, "length_penalty must be a number from 0 to 10. Received:"),
        ({"max_length": -1}, "max_length must be at least 0"),
        ({"min_length": -1}, "min_length must be at least 0; 0 means that of the model. Received:"),
        ({"temperature": -0.5}, "temperature must be a finite number of at least 0; 0 means a search"),
        ({"temperature": float("inf")}, "temperature must be a finite number of at least 0; 0 means a search"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"target_prefix": ["uno", "dos"]}, "target_prefix must have one entry, or one for each text"),
    ],
)
def test_options_out_of_range_are_refused(translator, options, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        translated(translator, ["one"] * 3, **options)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("length_penalty", [0.0, 10.0], [-0.1, 10.1, math.nan]),
        ("max_length", [0, 2**31 - 1], [-1, 2**31]),
        ("min_length", [0, 2**31 - 1], [-1, 2**31]),
        ("temperature", [0.0, 1e-45, 1e30], [-0.1, 1e-46, 1e39, math.inf, math.nan]),  # 1e-46 and 1e39 are no float32
        ("top_k", [0, 2**31 - 1], [-1, 2**31]),
        ("top_p", [1e-30, 1.0], [0.0, 1e-46, 1.1, math.nan]),
        ("seed", [-(2**63), 2**63 - 1], [-(2**63) - 1, 2**63]),
    ],
)
def test_the_table_knows_the_ends_of_each_range(name, inside, outside):
    """Commands ask it before a model is loaded."""
    allowed = [OPTIONS[name].allows(value) for value in (*inside, *outside)]
    assert allowed == [True] * len(inside) + [False] * len(outside)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_export_answers_as_the_translator(precision, numbers_translator, numbers_export, numbers_int8_export):
    translator = numbers_translator
    exported = {"float32": numbers_export, "int8": numbers_int8_export}[precision] / "1"
    loaded = tf.saved_model.load(str(exported))  # not its signatures alone: they do not keep the rest alive
    signature = loaded.signatures["translate_with_options"]
    definition = read(exported).meta_graphs[0].signature_def["translate_with_options"]
    defaults = {name: tf.constant(tf.make_ndarray(value)) for name, value in definition.defaults.items()}
    assert {name: value.numpy().tolist() for name, value in defaults.items()} == {
        "target_prefix": [b""],
        "tag": [b""],
        "length_penalty": pytest.approx(0.6),
        "max_length": 0,
        "min_length": 0,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 0,
    }
    text = tf.constant(TEXTS)
    found = signature(text=text, **defaults)
    assert [value.decode() for value in found["translation"].numpy()] == translated(translator, TEXTS)[0]
    given = {
        "target_prefix": tf.constant(["seis"]),
        "length_penalty": tf.constant(1.2),
        "max_length": tf.constant(3),
    }
    found = signature(text=text, **{**defaults, **given})
    expected, _ = translated(translator, TEXTS, target_prefix="seis", length_penalty=1.2, max_length=3)
    short = [value.decode() for value in found["translation"].numpy()]
    if precision == "float32":
        assert short == expected
    # In int8, the model may be of another mind behind a beginning that it would not have chosen.
    assert all(re.fullmatch("seis( [a-z]+){0,2}", text) for text in short)
    longer = signature(text=text, **{**defaults, "min_length": tf.constant(6)})["translation"].numpy()
    assert min(words_in(longer)) >= 6
    if precision == "float32":
        assert [value.decode() for value in longer] == translated(translator, TEXTS, min_length=6)[0]
    drawn = signature(text=text, **{**defaults, "temperature": tf.constant(1.5), "seed": tf.constant(3, tf.int64)})
    assert [value.decode() for value in drawn["translation"].numpy()] != expected
