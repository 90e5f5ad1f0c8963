"""Strings in, strings out: what is defined for every input, and independence of the batch."""

import functools
import re

import hostile
import numpy as np
import pytest
import tensorflow as tf
import toy

from kformer.config import DecodingConfig
from kformer.models import build_transformer
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.tokenizers import WordTokenizer

pytestmark = pytest.mark.tensorflow_only

TEXT = "one two three four"


@pytest.fixture(scope="module")
def greedy(numbers_run):
    return Translator.from_run(numbers_run, DecodingConfig(beam_size=1))


def with_decoding(translator, **decoding):
    """A translator by greedy search with the same weights."""
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    return Translator(translator.model, translator.config, *tokenizers, DecodingConfig(beam_size=1, **decoding))


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


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u2003", "\u200b", " \u200e\n\u2060 \xad"])
def test_an_empty_text_gets_an_empty_translation_with_score_zero(numbers_translator, text):
    found = numbers_translator.translate(tf.constant([text, "one two"]))
    assert found["translation"].numpy().tolist() == [b"", b"dos uno"]
    assert found["score"].numpy()[0] == 0.0


def test_bytes_that_are_not_utf8_are_read_as_replacement_characters(numbers_translator):
    found = numbers_translator.translate(tf.constant([b"one \xff two", "one \ufffd two".encode()]))
    first, second = found["translation"].numpy()
    assert first == second
    first.decode("utf-8")


def beginnings(translator, *counts):
    """The texts of so many tokens with which the greedy translation of `TEXT` begins if it may not end."""
    endless = with_decoding(translator, min_length=99)
    tokens = endless.searcher.find(*endless.codec.encode(tf.constant([TEXT]))).tokens[:, 0]
    texts = [endless.target_tokenizer.detokenize(tokens[:, :count]).numpy()[0].decode("utf-8") for count in counts]
    assert len({*texts}) == len(counts)
    return texts


def test_a_translation_has_as_many_tokens_as_max_length_allows(greedy):
    _, expected, _ = beginnings(greedy, 5, 4, 6)
    assert with_decoding(greedy, min_length=4, max_length=5)(TEXT) == expected  # four, and the end


def test_a_translation_has_as_many_tokens_as_source_and_extra_length_allow(greedy):
    tokens = len(greedy.source_tokenizer.tokenize([TEXT])[0])
    _, expected, _ = beginnings(greedy, tokens + 3, tokens + 2, tokens + 4)  # the end counts, too
    assert with_decoding(greedy, min_length=99, max_extra_length=3)(TEXT) == expected


def test_an_over_long_text_is_translated_in_parts(greedy):
    assert len(greedy.source_tokenizer.tokenize([TEXT])[0]) == 4  # a token a word
    # Two tokens and the end id are read at once, and groups of words have half of them.
    short = with_decoding(greedy, max_source_length=3)
    assert short(TEXT) == " ".join(short(TEXT.split()))


def test_lines_are_translated_one_by_one(numbers_translator):
    first, second = numbers_translator(["one two", "three"])
    assert numbers_translator("one two\n\n  three\n") == f"{first}\n\n  {second}"
    texts = tf.constant(["one two\nthree", "one two", "three"])
    every = numbers_translator.translate_n_best(texts)["translation"].numpy()
    assert [*every[0]] == [left + b"\n" + right for left, right in zip(every[1], every[2], strict=True)]


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


@pytest.fixture(scope="module")
def short(greedy):
    """Translations of at most 6 tokens, since high temperatures know no end."""
    return with_decoding(greedy, max_length=6)


def test_sampling_repeats_under_one_seed_and_varies_between_seeds(short):
    hot = [short.sample([TEXT] * 3, seed=seed, temperature=5.0) for seed in (1, 1, 2)]
    assert hot[0] == hot[1]
    assert hot[0] != hot[2]
    assert len(set(hot[0])) == 3  # and between the texts of a batch


def test_batches_of_one_call_draw_unlike_each_other(short):
    found = short.sample([TEXT] * 128, seed=1, temperature=5.0)  # two batches of 64
    assert found[:64] != found[64:]


def test_neighbouring_seeds_draw_unlike_each_other(short):
    """Whoever draws many variants takes the seeds 0, 1, 2, ..., also as numbers of NumPy."""
    first = short.sample([TEXT] * 128, seed=np.int64(1), temperature=5.0)
    second = short.sample([TEXT] * 64, seed=np.uint32(2), temperature=5.0)
    assert first[64:] != second
    assert first == short.sample([TEXT] * 128, seed=1, temperature=5.0)


def test_with_another_search_it_stays_the_same_model_with_all_that_is_known_of_it(numbers_translator):
    tokenizers = (numbers_translator.source_tokenizer, numbers_translator.target_tokenizer)
    parts = (numbers_translator.model, numbers_translator.config, *tokenizers)
    known = Translator(*parts, samples=["one two"], facts={"licence": "Apache-2.0"})
    other = known.with_decoding(DecodingConfig(beam_size=2))
    assert other.decoding.beam_size == 2
    assert other.model is known.model
    assert (other.samples, other.facts) == (("one two",), {"licence": "Apache-2.0"})


def test_a_search_that_is_given_has_the_lengths_of_the_run(numbers_run):
    run = RunFolder(numbers_run)
    assert run.decoding_config().max_source_length is not None
    given = Translator.from_run(numbers_run, DecodingConfig(beam_size=1)).decoding
    assert (given.beam_size, given.max_source_length) == (1, run.decoding_config().max_source_length)


def test_every_sampling_option_arrives(short):
    hot = short.sample(TEXT, seed=1, temperature=5.0)
    assert hot not in (short(TEXT), short.sample(TEXT, seed=1))
    # Each of these leaves only the most probable token, at any temperature.
    assert short.sample(TEXT, seed=1, temperature=5.0, top_k=1) == short(TEXT)
    assert short.sample(TEXT, seed=1, temperature=5.0, top_p=1e-6) == short(TEXT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a finite number greater than 0. Received: temperature=-1.0"),
        ({"top_k": 0.5}, "top_k must be an int of at least 0. Received: top_k=0.5"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1. Received: top_p=0.0"),
        ({"seed": "one"}, "seed must be an int or an integer tensor .* Received: .*dtype string. Pass one seed"),
    ],
)
def test_sampling_options_out_of_range_are_refused(greedy, options, message):
    with pytest.raises(ValueError, match=message):
        greedy.sample(["one"], **{"seed": 1, **options})


def test_what_is_no_string_is_refused(greedy):
    message = "Every text must be a string. Received: 2 of type int at index 1. Pass one string, or a list of strings"
    for translate in (greedy, functools.partial(greedy.sample, seed=1)):
        with pytest.raises(ValueError, match=message):
            translate(["one", 2])


@pytest.mark.parametrize("text", [np.str_("one two"), b"one two", tf.constant("one two"), np.array("one two")])
def test_one_text_of_any_kind_gives_a_text(text, greedy):
    assert greedy(text) == "dos uno"
    assert greedy.sample(text, seed=1, top_k=1) == "dos uno"


@pytest.mark.parametrize(
    "texts",
    [
        ("one two", "six"),
        [b"one two", np.str_("six")],
        tf.constant(["one two", "six"]),
        [tf.constant("one two"), np.array("six")],
        np.array(["one two", "six"]),
        tf.data.Dataset.from_tensor_slices(["one two", "six"]),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_of_any_kind_give_a_list(texts, greedy):
    assert greedy(texts) == ["dos uno", "seis"]


def test_a_generator_of_texts_gives_a_list(greedy):
    assert greedy(text for text in ("one two", "six")) == ["dos uno", "seis"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (5, "Texts must be strings. Received: 5 of type int"),
        (None, "Texts must be strings. Received: None"),
        (["one", None], "Received: None of type NoneType at index 1"),
        ([["one"], ["two"]], r"Received: \['one'\] of type list at index 0"),
        (np.array([["one"], ["two"]]), "of type ndarray at index 0"),
        (tf.ragged.constant([["one"], []]), "of type RaggedTensor. Pass one string, or a list of strings"),
        (tf.constant([1, 2]), "at index 0. Pass one string, or a list of strings"),
        (np.array(["one", float("nan")], object), "Received: nan of type float at index 1"),
    ],
)
def test_what_holds_no_texts_is_refused(texts, message, greedy):
    with pytest.raises(ValueError, match=message):
        greedy(texts)


def test_within_a_graph_the_function_of_the_translator_is_named_and_works(greedy):
    texts = tf.data.Dataset.from_tensor_slices(["one two", "six"]).batch(2)
    with pytest.raises(ValueError, match="a tensor of a graph.*`translate` of a Translator"):
        texts.map(greedy)
    (found,) = texts.map(lambda text: greedy.translate(text)["translation"])
    assert found.numpy().tolist() == [b"dos uno", b"seis"]


def test_a_folder_without_a_run_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a run folder: it has no transformer.json. Name the folder"):
        Translator.from_run(tmp_path)
    tmp_path.joinpath("config.json").touch()
    with pytest.raises(FileNotFoundError, match="of another toolkit, `kformer import .* NEW` makes a run folder"):
        Translator.from_run(tmp_path)


def test_a_run_without_weights_is_said(tmp_path):
    toy.TRANSFORMER.save(RunFolder(tmp_path).transformer_file)
    with pytest.raises(FileNotFoundError, match="has not reached its first validation"):
        Translator.from_run(tmp_path)


def test_a_tokenizer_of_another_size_is_refused(numbers_translator):
    with pytest.raises(ValueError, match="differ in the size of their vocabulary. Received: a tokenizer of 320 ids"):
        Translator(
            numbers_translator.model,
            toy.TRANSFORMER,
            numbers_translator.source_tokenizer,
            numbers_translator.target_tokenizer,
        )


@pytest.mark.parametrize("texts", [["one", "two"], ["one", "two", "three"], ["one"]])
def test_another_number_of_translations_than_texts_is_refused(numbers_translator, texts):
    translations = ["uno"] if len(texts) > 1 else ["uno", "dos"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="translation must have one entry for each text"):
        numbers_translator.score(texts, translations)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda model: model.translate("one"),
            "text must be a list of strings or a (B,) string tensor. Received: 'one'.",
        ),
        (
            lambda model: model.translate(text=[1]),
            "text must be a list of strings or a (B,) string tensor. Received: [1].",
        ),
        (lambda model: model.translate_n_best([["one"]]), "Received: [['one']]."),
        (lambda model: model.score(["one"], "uno"), "translation must be a list of strings or a (B,) string tensor."),
        (lambda model: model.translate_with_options("one"), "text must be a list of strings"),
        (lambda model: model.translate_with_options(["one"], [1]), "target_prefix must be a list of strings"),
        (
            lambda model: model.translate_with_options(["one"], top_k=2.5),
            "top_k must be one number, int32. Received: 2.5.",
        ),
    ],
)
def test_inputs_of_another_type_or_rank_are_told_by_their_names(numbers_translator, call, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        call(numbers_translator)


def test_arguments_that_change_places_are_refused_by_their_names(numbers_translator):
    given = numbers_translator
    tokenizers = (given.source_tokenizer, given.target_tokenizer)
    with pytest.raises(ValueError, match="model must be a Model. Received: a TransformerConfig. The arguments of a"):
        Translator(given.config, given.model, *tokenizers)
    with pytest.raises(ValueError, match="config must be a TransformerConfig. Received: a Functional"):
        Translator(given.model, given.model, *tokenizers)


def test_a_long_sample_for_calibration_is_cut_where_the_positions_end():
    """Each of its sentences has a translation of its own, and together they are longer than the decoder reads."""
    words = WordTokenizer(["one", "two", "."])
    sizes = {"source_vocab_size": words.vocab_size, "target_vocab_size": words.vocab_size}
    config = toy.TRANSFORMER.replace(positional_encoding="learned", max_length=8, **sizes)
    decoding = DecodingConfig(beam_size=1, max_source_length=6, min_length=5, max_extra_length=9)
    translator = Translator(build_transformer(config), config, words, words, decoding)
    inputs = translator.calibration_inputs(tf.constant(["one two . " * 5]))
    assert inputs["target_in"].shape[1] == 8
    assert translator.model(inputs).shape[1] == 8
