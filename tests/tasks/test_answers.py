"""What trained models of each task answer, in Python, exported and on the command line."""

import gzip
import json
import math
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
import typer
from tasks.conftest import TRAINING, corpus_of, lengths, parity
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig, TrainingConfig, answer_outputs
from kformer.data import Corpus
from kformer.export.operations import read as read_graph
from kformer.export.saved_model import export_saved_model
from kformer.models import build_model
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.runtime.export_description import description
from kformer.tasks import Classifier, LanguageModel, Tagger, task_of
from kformer.tasks.language_model import behind
from kformer.tasks.translator import Translator
from kformer.text.option_tensors import option_tensors
from kformer.text.options import OPTIONS
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer
from kformer.training.run_setup import describe_corpus
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only

TEXTS = [source for source, _ in toy.corpus().test if len(source.split()) > 2][:20]


@pytest.fixture(scope="module")
def classifier(run_of):
    return Classifier.from_run(run_of("classify"))


@pytest.fixture(scope="module")
def tagger(run_of):
    return Tagger.from_run(run_of("tag"))


@pytest.fixture(scope="module")
def language_model(run_of):
    return LanguageModel.from_run(run_of("language-model"), DecodingConfig(beam_size=1, max_extra_length=9))


class TestClassifier:
    def test_it_has_learned_its_labels(self, classifier):
        assert classifier(TEXTS) == [parity(text) for text in TEXTS]
        assert classifier.labels == ("even", "odd")

    def test_probabilities_are_those_of_the_labels(self, classifier):
        found = classifier.function(tf.constant(TEXTS))
        probabilities = found["probabilities"].numpy()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(found["probability"], probabilities.max(axis=1))
        np.testing.assert_array_equal(classifier.probabilities(TEXTS), probabilities)
        assert classifier.probabilities(TEXTS[0]).shape == (1, 2)
        assert [classifier.labels[n] for n in probabilities.argmax(axis=1)] == classifier(TEXTS)

    def test_the_neighbours_in_a_batch_do_not_matter(self, classifier):
        together = classifier.function(tf.constant([*TEXTS, "one " * 30]))["probabilities"].numpy()
        alone = classifier.function(tf.constant(TEXTS[:1]))["probabilities"].numpy()
        np.testing.assert_allclose(together[:1], alone, atol=1e-5)

    @pytest.mark.filterwarnings("ignore:1 of 4 texts cannot be read as text")
    @pytest.mark.parametrize("texts", [[], ["", " \t ", "\x00", "二" * 700]])
    def test_it_answers_any_text(self, classifier, texts):
        assert len(classifier(texts)) == len(texts)

    def test_a_text_without_any_token_has_no_label(self, classifier):
        found = classifier.function(tf.constant(["", TEXTS[0], " \u200b \n"]))
        assert found["label"].numpy().tolist() == [b"", parity(TEXTS[0]).encode(), b""]
        assert found["probability"].numpy().tolist() == [0.0, pytest.approx(1.0, abs=0.5), 0.0]
        assert found["probabilities"].numpy()[[0, 2]].tolist() == [[0.0, 0.0]] * 2

    def test_a_model_of_single_texts_reads_a_tab_as_a_blank(self, classifier):
        texts = ["one two\tthree", "\tone two three", "one\t two\tthree\t"]
        np.testing.assert_array_equal(
            classifier.probabilities(texts), classifier.probabilities(["one two three"] * len(texts))
        )

    @pytest.mark.parametrize(
        ("trained_on", "counts"),
        [
            (("one\tone", "one two"), True),
            (("one two", "one three"), False),
            (None, True),  # nobody knows
        ],
    )
    def test_the_second_text_counts_where_the_model_was_trained_on_any_pair(self, classifier, trained_on, counts):
        facts = {}
        if trained_on is not None:
            pairs = [(source, "even") for source in trained_on]
            corpus = Corpus("pairs", pairs, [("one\ttwo", "odd")], [])
            facts = {"corpus": describe_corpus(corpus, corpus.facts(), TrainingConfig())}
        tokenizers = classifier.source_tokenizer, classifier.target_tokenizer
        classifier = Classifier(classifier.model, classifier.config, *tokenizers, facts=facts)
        found = classifier.function(tf.constant(["one two", "one\ttwo"]))["probability"].numpy()
        assert (found[0] != found[1]) == counts


class TestTagger:
    def test_it_has_learned_its_tags(self, tagger):
        assert tagger(TEXTS) == [lengths(text) for text in TEXTS]

    def test_every_word_gets_a_tag_also_a_word_of_many_tokens(self, tagger):
        texts = ["one", "", "  two   abracadabra\u2029three ", "\u200b", "二三四"]
        assert [len(tags.split()) for tags in tagger(texts)] == [1, 0, 3, 1, 1]

    def test_words_beyond_the_longest_text_get_no_tag(self, run_of):
        short = Tagger.from_run(run_of("tag"), DecodingConfig(max_source_length=4))
        assert short("one two six one two six").split()[-1] == "⁇"

    def test_words_beyond_the_longest_text_do_not_count_in_the_score(self, tagger, run_of):
        tokens = int(tagger.source_tokenizer.tokenize(["one two"]).row_lengths()[0])
        short = Tagger.from_run(run_of("tag"), DecodingConfig(max_source_length=tokens))
        whole, cut = short.function(tf.constant(["one two", "one two six one"]))["score"].numpy()
        assert cut == pytest.approx(whole, abs=1e-5)
        assert short("one two six one") == f"{short('one two')} ⁇ ⁇"
        assert whole < -1e-4  # each word more would change it

    @pytest.mark.parametrize("longest", range(1, 9))
    def test_a_word_gets_a_tag_if_its_first_token_is_read(self, tagger, run_of, longest):
        words = ["one", "two", "six", "four"]
        lengths = tagger.source_tokenizer.tokenize(words).row_lengths().numpy()
        read = sum(1 + first < longest for first in np.cumsum([0, *lengths[:-1]]))
        short = Tagger.from_run(run_of("tag"), DecodingConfig(max_source_length=longest))
        assert [tag == "⁇" for tag in short(" ".join(words)).split()] == [False] * read + [True] * (4 - read)

    def test_the_score_is_the_log_probability_of_all_tags(self, tagger):
        one, two = tagger.function(tf.constant(["one", "one two"]))["score"].numpy()
        assert 0 > one > two


@pytest.mark.parametrize(("earlier", "kept"), [("classify", True), ("tag", False), ("translate", False)])
def test_labels_of_an_earlier_run_are_kept_if_it_learned_the_same_task(earlier, kept):
    """Symbols of a translator are no labels, though all labels may be among them."""
    words, more = SymbolTokenizer(["one", "two"]), SymbolTokenizer(["odd", "even", "zero"])
    found = task_of("classify").keep_tokenizers((words, more), earlier, [("one", "odd"), ("one two", "even")])
    assert found[0] is words
    assert set(found[1].symbols) == ({"odd", "even", "zero"} if kept else {"odd", "even"})


@pytest.mark.parametrize(("kind", "task"), [(Classifier, "classify"), (Tagger, "tag")])
def test_the_search_of_the_run_folder_says_how_much_of_a_text_is_read(kind, task, run_of, tmp_path):
    run = shutil.copytree(run_of(task), tmp_path / "run")
    DecodingConfig(max_source_length=4).save(RunFolder(run).decoding_file)
    RunFolder(run).note_files()
    assert kind.from_run(run).longest == 4
    assert kind.from_run(run, DecodingConfig(max_source_length=5)).longest == 5


@pytest.mark.parametrize(
    "task", ["classify", "tag", pytest.param("masked-language-model", marks=pytest.mark.slow), "language-model"]
)
def test_what_an_export_is_measured_with_is_as_long_as_the_model_reads(task, run_of):
    predictor = task_of(task).load_for_export(run_of(task), DecodingConfig(max_source_length=4))
    (ids,) = predictor.calibration_inputs(tf.constant(["one two six one two six", "one"])).values()
    assert ids.shape == (2, 4)
    assert (ids.numpy()[1, -1], ids.numpy()[0, 0]) == (predictor.config.pad_id, predictor.config.start_id)


def test_a_preset_may_be_loaded_with_a_search_of_ones_own():
    assert Classifier.from_preset("bible-books", DecodingConfig(max_source_length=9)).longest == 9


def test_a_run_is_read_in_float32_whatever_the_policy_is(run_of):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = Classifier.from_run(run_of("classify")).model
    assert {layer.compute_dtype for layer in model.layers if layer.weights} == {"float32"}


def test_what_is_known_of_a_model_does_not_change_with_what_was_given(classifier):
    facts, samples = {"licence": "CC0"}, ["one"]
    tokenizers = classifier.source_tokenizer, classifier.target_tokenizer
    given = Classifier(classifier.model, classifier.config, *tokenizers, samples=samples, facts=facts)
    facts["licence"] = "none"
    samples.append("two")
    assert (given.samples, given.facts) == (("one",), {"licence": "CC0"})


@pytest.mark.parametrize(("kind", "task"), [(Classifier, "classify"), (Tagger, "tag")])
def test_a_text_that_just_fits_is_not_cut(kind, task, run_of):
    text = tf.constant(["one two six"])
    tokens = kind.from_run(run_of(task)).calibration_inputs(text)["source"].shape[1]
    for longest, is_cut in ((tokens, False), (tokens - 1, True)):
        predictor = kind.from_run(run_of(task), DecodingConfig(max_source_length=longest))
        assert predictor.is_cut(text).numpy().tolist() == [is_cut]


class TestLanguageModel:
    def test_it_goes_on_with_the_text(self, language_model):
        prompts = ["one two", "six", "five  five"]
        for prompt, text in zip(prompts, language_model(prompts), strict=True):
            assert text.startswith(prompt)
            assert set(text.split()) <= {*toy.WORDS}

    def test_texts_of_a_batch_are_continued_as_if_they_were_alone(self, language_model):
        prompts = ["one", "two six five", "six two"]
        assert language_model(prompts) == [language_model(prompt) for prompt in prompts]

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_a_prompt_is_read_at_once_as_if_it_was_read_token_by_token(self, beam_size, run_of):
        model = LanguageModel.from_run(
            run_of("language-model"), DecodingConfig(beam_size=beam_size, max_extra_length=9)
        )
        prompts = model.source_tokenizer.tokenize(["one two six five", "six two"])
        source, prefix = model.codec.pad(prompts)[0], prompts.to_tensor(model.config.pad_id)
        limits = tf.cast(prompts.row_lengths(), tf.int32) + 9
        shortest = tf.reduce_min(tf.cast(prompts.row_lengths(), tf.int32))
        slow = model.searcher.find(source, limits, prefix=prefix)
        for read in (tf.constant(0), shortest):
            fast = model.searcher.find(source, limits, prefix=prefix, read=read)
            np.testing.assert_array_equal(fast.tokens, slow.tokens)
            np.testing.assert_array_equal(fast.lengths, slow.lengths)
            np.testing.assert_allclose(fast.scores, slow.scores, atol=1e-4)

    def test_a_prompt_as_long_as_the_model_gets_no_new_token(self, run_of):
        model = LanguageModel.from_run(run_of("language-model"), DecodingConfig(beam_size=3, max_length=1))
        assert model(["one two", "six"]) == ["one two", "six"]

    def test_the_length_penalty_of_a_call_takes_the_place_of_the_models_own(self, run_of):
        """A penalty of 0 leaves the log probability as the score."""
        decoding = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_length=20)
        model = LanguageModel.from_run(run_of("language-model"), decoding)
        prompts = ["six", "one two"]
        tensors = option_tensors(decoding, {"length_penalty": 0.0})
        found = model.answer_with_options(tf.constant(prompts), *tensors.values())
        whole = model.score([text.decode() for text in found["text"].numpy()])
        np.testing.assert_allclose(found["score"], whole["log_probability"], atol=1e-4)

    @pytest.mark.parametrize("beam_size", [1, pytest.param(3, marks=pytest.mark.slow)])
    def test_a_prompt_of_the_largest_length_gets_no_new_token(self, beam_size, run_of):
        prompts = ["one two", "six one", "two six"]
        tokens = 2
        asked = DecodingConfig(beam_size=beam_size, max_length=tokens)
        model = LanguageModel.from_run(run_of("language-model"), asked)
        assert model.source_tokenizer.tokenize(prompts).row_lengths().numpy().tolist() == [tokens] * 3
        assert model(prompts) == prompts
        longer = LanguageModel.from_run(run_of("language-model"), asked.replace(max_length=tokens + 4))
        assert longer(prompts) != prompts

    def test_of_a_prompt_that_is_too_long_the_end_is_read(self, run_of):
        decoding = DecodingConfig(beam_size=3, max_source_length=5, max_extra_length=3)
        model = LanguageModel.from_run(run_of("language-model"), decoding)
        end = "one two three four"
        assert model.source_tokenizer.tokenize([end]).row_lengths()[0] == 4
        prompts = [f"six six five {end}", end, "six six five one"]
        found = model.function(tf.constant(prompts))
        added = [text.decode()[len(prompt) :] for text, prompt in zip(found["text"].numpy(), prompts, strict=True)]
        assert added[0] == added[1]
        scores = found["score"].numpy()  # those of all tokens that the model has read
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        assert abs(scores[0] - scores[2]) > 0.01

    @pytest.mark.parametrize(("most_new", "read", "new"), [(5, 14, 5), (50, 10, 9)])
    def test_behind_a_long_prompt_there_is_room_for_new_tokens_where_positions_end(self, most_new, read, new):
        """19 positions. A model of no training draws tokens, so that it does not end early."""
        symbols = [chr(number) for number in range(ord("a"), ord("z") + 1)]
        sizes = toy.TRANSFORMER.replace(task="language-model", positional_encoding="learned", max_length=19)
        config = sizes.replace(source_vocab_size=30, target_vocab_size=30, num_encoder_layers=0)
        decoding = DecodingConfig(beam_size=1, max_extra_length=most_new, min_length=18)
        model = LanguageModel(build_model(config), config, SymbolTokenizer(symbols), decoding)
        end = "b c d e f g h i j k l m n o p"
        long, other = (f"{beginning} {end}" for beginning in ("a a a a a a", "z"))
        short = " ".join(end.split()[-read:])
        found = [
            text[len(prompt) :] for text, prompt in zip(model([long, other, short]), (long, other, short), strict=True)
        ]
        assert found[0] == found[1] == found[2]
        assert len(found[0].split()) in (new, new - 1)  # one is the end

    @pytest.mark.parametrize(
        ("text", "prompt", "new", "whole", "expected"),
        [
            ("one", "one", "two", "one two", "one two"),
            ("one ", "one", "two", "one two", "one two"),  # and no second blank
            ("one\n", "one", "two", "one two", "one\ntwo"),
            ("one ", "one ", " two", "one  two", "one  two"),  # by a tokenizer that keeps blanks
            ("one", "one", "", "one", "one"),
            ("", "", "two", "two", "two"),
            ("e", "e", "\u0301", "\u00e9", "e\u0301"),  # an accent makes one letter of two tokens
            ("cafe", "cafe", "\u0301 two", "caf\u00e9 two", "cafe\u0301 two"),
        ],
    )
    def test_a_continuation_stands_behind_the_text_as_it_was_given(self, text, prompt, new, whole, expected):
        rows = [tf.constant([one, "other"]) for one in (text, prompt)] + [
            tf.constant([one, other]) for one, other in ((new, "s"), (whole, "others"))
        ]
        found = [one.decode() for one in behind(*rows).numpy()]
        assert found == [expected, "others"]

    def test_an_accent_may_be_the_first_new_token(self):
        """Of a model of no training that draws any of its tokens."""
        symbols = SentencePieceTokenizer.train(["e x ́ e x", "xe ex"] * 9, 270)
        sizes = {"source_vocab_size": symbols.vocab_size, "target_vocab_size": symbols.vocab_size}
        config = toy.TRANSFORMER.replace(task="language-model", num_encoder_layers=0, **sizes)
        model = LanguageModel(build_model(config), config, symbols, DecodingConfig(max_extra_length=2))
        found = model.sample(["e"] * 512, seed=1)
        assert all(text.startswith("e") for text in found)

    def test_by_the_rules_of_transformers_a_prompt_alone_has_the_score_0(self, run_of):
        """What is given counts neither for length nor for probability, and the length 0 divides nothing."""
        decoding = DecodingConfig(beam_size=3, max_length=1, beam_rules="transformers")
        found = LanguageModel.from_run(run_of("language-model"), decoding).function(tf.constant(["one two", "six"]))
        assert found["text"].numpy().tolist() == [b"one two", b"six"]
        assert found["score"].numpy().tolist() == [0.0, 0.0]

    def test_the_same_seed_draws_the_same_texts(self, language_model):
        first, again, other = (language_model.sample(["one"] * 8, seed=seed, max_length=6) for seed in (1, 1, 2))
        assert first == again != other
        assert len(set(first)) > 1  # rows draw for themselves

    def test_every_option_arrives_with_one_text(self, language_model):
        def draw(**options):
            text = language_model.sample("one", **{"seed": 1, "temperature": 9.0, "max_length": 8, **options})
            assert text.startswith("one")
            return text

        def new_tokens(text):
            return int(language_model.source_tokenizer.tokenize([text]).row_lengths()[0]) - 1

        (best,) = language_model.sample(["one"], temperature=0.0, max_length=8)
        assert draw() == draw() != best
        assert draw() == language_model.sample(["one"], seed=1, temperature=9.0, max_length=8)[0]
        assert draw(seed=2) != draw()
        # Each of these leaves only the most probable token.
        assert draw(temperature=0.0) == draw(top_k=1) == draw(top_p=1e-6) == best
        assert new_tokens(draw(max_length=2)) <= 2
        ends = [new_tokens(draw(seed=seed, temperature=1.0, min_length=7)) for seed in range(5)]
        assert min(ends) >= 7
        assert min(new_tokens(draw(seed=seed, temperature=1.0)) for seed in range(5)) < 7

    def test_batches_draw_for_themselves(self, language_model):
        texts = language_model.sample(["one"] * 128, seed=1, max_length=6)  # two batches
        assert texts[:64] != texts[64:]

    def test_top_k_1_is_greedy_search(self, language_model):
        assert language_model.sample(TEXTS, top_k=1) == language_model(TEXTS)

    def test_max_length_counts_new_tokens(self, language_model):
        tokens = language_model.source_tokenizer.tokenize
        (text,) = language_model.sample(["one two three"], seed=3, max_length=1)
        assert tokens([text]).row_lengths()[0] <= tokens(["one two three"]).row_lengths()[0] + 1

    def test_the_largest_max_length_is_no_limit(self, language_model):
        assert language_model.sample(TEXTS, top_k=1, max_length=2**31 - 1) == language_model(TEXTS)

    @pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
    def test_min_length_counts_new_tokens(self, temperature, run_of):
        model = LanguageModel.from_run(run_of("language-model"), DecodingConfig(beam_size=3, max_extra_length=9))
        prompts = ["one", "two six five four three", ""]
        options = {"temperature": temperature, "seed": 3}
        usual, longer = model.sample(prompts, **options), model.sample(prompts, **options, min_length=7)
        for too_many in (9, 2**31 - 1):
            with pytest.raises(tf.errors.InvalidArgumentError, match="min_length must be less than max_length and 9"):
                model.sample(prompts, **options, min_length=too_many)
        given, *found = (model.source_tokenizer.tokenize(texts).row_lengths() for texts in (prompts, usual, longer))
        assert [min(lengths - given) < 7 for lengths in found] == [True, False]
        if not temperature:
            assert longer == [model.sample(prompt, **options, min_length=7) for prompt in prompts]

    def test_scores_are_sums_of_log_softmax_over_the_tokens_and_the_end(self, language_model):
        ids = language_model.source_tokenizer.tokenize(["one two"]).to_list()[0]
        logits = language_model.model({"target_in": np.array([[1, *ids]])})[0]
        log_probs = tf.nn.log_softmax(logits).numpy()
        expected = sum(log_probs[place, token] for place, token in enumerate([*ids, 2]))
        found = language_model.score(["one two", "six six six one"])
        assert found["log_probability"][0] == pytest.approx(expected, abs=1e-4)
        assert found["tokens"][0] == len(ids) + 1

    def test_the_length_penalty_counts_the_tokens_of_the_prompt(self, run_of):
        decoding = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_length=20, max_source_length=64)
        model = LanguageModel.from_run(run_of("language-model"), decoding)
        prompts = ["six", "one two three four five six"]
        found = model.function(tf.constant(prompts))
        whole = model.score([text.decode() for text in found["text"].numpy()])
        expected = whole["log_probability"] / ((5 + whole["tokens"]) / 6) ** 0.6
        np.testing.assert_allclose(found["score"], expected, atol=1e-4)

    def test_bytes_that_are_not_utf_8_are_replaced(self, language_model):
        (text,) = language_model.function(tf.constant([b"one caf\xe9"]))["text"].numpy()
        assert text.decode().startswith("one caf\ufffd")

    def test_a_long_text_is_learned_in_parts(self):
        task = task_of("language-model")
        texts = [("one two three four " * 20, ""), ("one two", "")]
        pairs = task.pairs(texts)
        tokenizers = task.train_tokenizers(task.pairs(texts * 20), TRAINING)
        encoded = task.encode(pairs, tokenizers, max_length=32)
        whole = task.encode(pairs, tokenizers, max_length=1000)
        assert encoded.skipped_long == 0
        np.testing.assert_array_equal(encoded.target_ids, whole.target_ids)
        assert np.diff(encoded.target_offsets).max() == 32

    @pytest.mark.parametrize("words", range(1, 12))
    def test_no_part_of_a_long_text_is_only_its_end(self, words):
        task = task_of("language-model")
        pairs = task.pairs([("one " * words, "")])
        tokenizers = task.train_tokenizers([("one two", "one two")] * 20, TRAINING)
        encoded = task.encode(pairs, tokenizers, max_length=4)
        assert (encoded.skipped_blank, encoded.skipped_long) == (0, 0)
        assert np.diff(encoded.target_offsets).min() > 1

    def test_a_text_of_very_many_characters_is_learned_whole(self):
        task = task_of("language-model")
        text = "one two three four " * 2000
        tokenizers = task.train_tokenizers(task.pairs([("one two three four", "")] * 20), TRAINING)
        encoded = task.encode(task.pairs([(text, "")]), tokenizers, max_length=8)
        assert (encoded.skipped_blank, encoded.skipped_long) == (0, 0)
        texts = tokenizers[0].detokenize([encoded.target_ids[encoded.target_ids != 2]]).numpy()
        assert texts[0].decode().split() == text.split()

    def test_a_long_text_is_scored_in_parts(self, run_of):
        model = LanguageModel.from_run(run_of("language-model"), DecodingConfig(max_source_length=3))
        ids = model.source_tokenizer.tokenize(["one two six"]).to_list()[0]
        assert len(ids) == 3
        log_probs = 0.0
        for part, following in ((ids[:2], ids[:2]), (ids[2:], [*ids[2:], 2])):
            logits = model.model({"target_in": np.array([[1, *part]])})[0]
            log_probs += sum(tf.nn.log_softmax(logits).numpy()[place, token] for place, token in enumerate(following))
        found = model.score(["one two six", ""])
        assert model.score("one two six")["tokens"].tolist() == [len(ids) + 1]
        assert found["log_probability"][0] == pytest.approx(log_probs, abs=1e-4)
        assert found["tokens"].tolist() == [len(ids) + 1, 1]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("classifier", "int8"),
        ("tagger", "float32"),
        slow("classifier", "float32"),
        slow("classifier", "bfloat16"),
        slow("tagger", "bfloat16"),
        slow("tagger", "int8"),
    ],
)
def test_an_export_answers_as_the_model(name, precision, request, tmp_path):
    predictor = request.getfixturevalue(name)
    if (name, precision) == ("tagger", "float32"):
        path = request.getfixturevalue("tagger_export") / "1"
    else:
        path = export_saved_model(predictor, tmp_path, precision=precision)
    texts = [*TEXTS, *(text.replace(" ", "\t", 1) for text in TEXTS)]  # neither has learned that a tab means anything
    found = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(texts))
    assert [answer.decode() for answer in found[answer_outputs(predictor.task)[0]].numpy()] == predictor(TEXTS) * 2
    facts = description(path)
    assert facts["task"] == predictor.task
    assert tuple(facts["labels"]) == predictor.labels
    assert facts["symbols"] is False  # the texts are sentences; the labels are symbols


@pytest.mark.slow  # test_on_server.py asks another export of this model
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_an_exported_language_model_searches_and_draws(precision, language_model, tmp_path):
    path = export_saved_model(language_model, tmp_path, precision=precision, signatures=["generate_with_options"])
    signatures = tf.saved_model.load(str(path)).signatures
    definition = read_graph(path).meta_graphs[0].signature_def["generate_with_options"]
    defaults = {name: tf.constant(tf.make_ndarray(value)) for name, value in definition.defaults.items()}
    assert {*definition.inputs} == {"text", *defaults}
    assert {name: value.numpy().tolist() for name, value in defaults.items()} == {
        "length_penalty": pytest.approx(0.6),
        "max_length": 0,
        "min_length": 0,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 0,
    }
    given = {"temperature": tf.constant(1.0), "seed": tf.constant(5, tf.int64), "max_length": tf.constant(4)}
    inputs = {**defaults, **given}
    found = signatures["serving_default"](text=tf.constant(TEXTS))["text"].numpy()
    drawn = signatures["generate_with_options"](text=tf.constant(["one"] * 4), **inputs)["text"].numpy()
    assert all(text.startswith(b"one") for text in drawn)
    if precision == "float32":
        assert [text.decode() for text in found] == language_model(TEXTS)
        assert [text.decode() for text in drawn] == language_model.sample(["one"] * 4, seed=5, max_length=4)
        longer = signatures["generate_with_options"](text=tf.constant(TEXTS), **{**defaults, "min_length": 8})["text"]
        expected = language_model.sample(TEXTS, temperature=0.0, min_length=8)
        assert [text.decode() for text in longer.numpy()] == expected != language_model(TEXTS)


def test_only_translators_have_other_signatures_and_the_variant_xla(classifier, tmp_path):
    with pytest.raises(ValueError, match="There is no signature 'n_best'"):
        export_saved_model(classifier, tmp_path, signatures=["n_best"])
    with pytest.raises(ValueError, match="Only translators have the variant xla. Received: classify"):
        export_saved_model(classifier, tmp_path, variant="xla")
    assert not [*tmp_path.iterdir()]


class TestCommands:
    def run(self, capsys, tmp_path, command, model, texts, *options):
        return self.run_bytes(tmp_path, command, model, "".join(f"{text}\n" for text in texts).encode(), *options)

    def run_bytes(self, tmp_path, command, model, content, *options):
        (tmp_path / "in.txt").write_bytes(content)
        files = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")]
        app([command, str(model), *files, *options], standalone_mode=False)
        return (tmp_path / "out.txt").read_text().splitlines()

    def test_classify_and_tag(self, capsys, tmp_path, run_of):
        labels = self.run(capsys, tmp_path, "classify", run_of("classify"), TEXTS)
        assert labels == [parity(text) for text in TEXTS]
        scored = self.run(capsys, tmp_path, "classify", run_of("classify"), TEXTS, "--format", "tsv")
        assert [line.split("\t")[0] for line in scored] == labels
        assert all(0.5 <= float(line.split("\t")[1]) <= 1 for line in scored)
        assert self.run(capsys, tmp_path, "tag", run_of("tag"), TEXTS) == [lengths(text) for text in TEXTS]

    @pytest.mark.parametrize(
        ("command", "task"),
        [
            ("classify", "classify"),
            ("tag", "tag"),
            pytest.param("generate", "language-model", marks=pytest.mark.slow),
        ],
    )
    def test_every_command_reads_the_files_that_training_reads(self, command, task, capsys, tmp_path, run_of):
        answers = self.run(capsys, tmp_path, command, run_of(task), TEXTS)
        content = "\r\n".join(TEXTS)
        for packed in (gzip.compress(content.encode("utf-8-sig")), content.encode("utf-16")):
            assert self.run_bytes(tmp_path, command, run_of(task), packed) == answers
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("task", ["classify", "tag"])
    def test_lines_whose_end_is_not_read_are_told(self, task, capsys, tmp_path, run_of):
        run = shutil.copytree(run_of(task), tmp_path / "run")
        DecodingConfig(max_source_length=4).save(RunFolder(run).decoding_file)
        RunFolder(run).note_files()
        self.run(capsys, tmp_path, task, run, ["one", "one two six one two six", "two", "six one six one six two"])
        told = "2 lines are longer than the model reads, so that their ends do not count. The first is line 2. Divide"
        assert told in capsys.readouterr().err
        self.run(capsys, tmp_path, task, run, ["one", ""])
        assert capsys.readouterr().err == ""

    def test_generate(self, capsys, tmp_path, run_of):
        model = LanguageModel.from_run(run_of("language-model"))
        arguments = ("generate", run_of("language-model"), ["one", "six two"])
        assert self.run(capsys, tmp_path, *arguments) == model(["one", "six two"])
        drawn = self.run(capsys, tmp_path, *arguments, "--temperature", "1", "--seed", "7", "--max-length", "5")
        assert drawn == model.sample(["one", "six two"], seed=7, max_length=5)
        longer = self.run(capsys, tmp_path, *arguments, "--min-length", "30")
        assert longer == model.sample(["one", "six two"], temperature=0.0, min_length=30) != model(["one", "six two"])

    @pytest.mark.slow
    @pytest.mark.in_ci
    def test_score_finds_a_usual_text_more_probable(self, capsys, tmp_path, run_of):
        usual, strange = "two six one", "two six tree"
        scored = self.run(capsys, tmp_path, "score", run_of("language-model"), [usual, strange], "--format", "tsv")
        (of_usual, tokens), (of_strange, others) = (map(float, line.split("\t")) for line in scored)
        assert of_usual / tokens > of_strange / others + 1
        right = LanguageModel.from_run(run_of("language-model")).score([usual, strange])
        assert [of_usual, of_strange] == pytest.approx(right["log_probability"], abs=2e-3)
        assert [tokens, others] == [*right["tokens"]]

    @pytest.mark.slow
    def test_batches_of_a_file_draw_for_themselves(self, capsys, tmp_path, run_of):
        arguments = ("generate", run_of("language-model"), ["one"] * 128, "--temperature", "1", "--max-length", "6")
        first, again = (self.run(capsys, tmp_path, *arguments) for _ in range(2))
        assert first == again
        assert first[:64] != first[64:]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--top-k", "5"), "--top-k, --top-p and --seed are for tokens that are drawn at random"),
            (("--temperature", "1", "--seed", "1" + "0" * 20), r"--seed must be from -2\*\*63 to"),
            (("--temperature", "inf"), "--temperature must be a finite number of at least 0; .* Received: inf"),
            (("--max-length", "5", "--min-length", "5"), "--min-length must be less than --max-length, .* 5 and 5"),
        ],
    )
    def test_generate_refuses_options_that_no_model_takes(self, options, message, capsys, tmp_path, run_of):
        with pytest.raises(ValueError, match=message):
            self.run(capsys, tmp_path, "generate", run_of("language-model"), ["one"], *options)

    @pytest.mark.parametrize(
        "options",
        [
            ("--top-p", "0"),
            ("--top-k", "1" + "0" * 10),
            ("--max-length", "3" * 10),
            ("--min-length", "-1"),
            ("--length-penalty", "11"),
        ],
    )
    def test_numbers_out_of_range_are_wrong_usage(self, options):
        answer = CliRunner().invoke(app, ["generate", "run", "--temperature", "1", *options])
        assert answer.exit_code == 2
        assert "is not in the range" in answer.output or "should be" in answer.output

    def test_generate_has_the_options_of_a_request(self):
        command = typer.main.get_command(app).commands["generate"]
        known = {parameter.name: (parameter.default, parameter.help) for parameter in command.params}
        assert OPTIONS
        for name, option in OPTIONS.items():
            assert known[name] == (option.default, option.help)

    def test_a_model_of_another_task_is_refused_with_its_command(self, capsys, tmp_path, run_of):
        with pytest.raises(
            ValueError, match=r"has learned the task classify. Expected: .* translate. Use `kformer classify`"
        ):
            self.run(capsys, tmp_path, "translate", run_of("classify"), TEXTS)
        with pytest.raises(ValueError, match="has learned the task masked-language-model.* gives first weights"):
            self.run(capsys, tmp_path, "classify", run_of("masked-language-model"), TEXTS)
        for command in ("evaluate", "export"):
            with pytest.raises(ValueError, match="masked-language-model, and answers nothing by itself. Train a class"):
                app(
                    [command, str(run_of("masked-language-model")), str(tmp_path / "out")][: 2 + (command == "export")],
                    standalone_mode=False,
                )
        with pytest.raises(ValueError, match="is a run of the task tag. Expected: a run of the task translate"):
            Translator.from_run(run_of("tag"))

    def test_evaluate(self, capsys, tmp_path, run_of):
        (tmp_path / "tags.tsv").write_text("one two\tn3 n3\n")

        def scores(task):
            lines = [f"{text}\t{target}" if target else text for text, target in corpus_of(task).test]
            (tmp_path / "test.tsv").write_text("\n".join(lines) + "\n")
            capsys.readouterr()
            app(["evaluate", str(run_of(task)), "--test", str(tmp_path / "test.tsv")], standalone_mode=False)
            return json.loads(capsys.readouterr().out)

        with pytest.raises(ValueError, match="A label must be one word without blanks. Received: 'n3 n3' for the text"):
            app(["evaluate", str(run_of("classify")), "--test", str(tmp_path / "tags.tsv")], standalone_mode=False)
        assert scores("classify")["accuracy"] > 0.9
        assert scores("tag")["whole"] > 0.9
        found = scores("language-model")
        assert found["texts"] == 100
        bits = math.log2(found["perplexity"]) * found["tokens"] / found["characters"]
        assert found["bits_per_character"] == pytest.approx(bits)
        assert 4 < found["perplexity"] < 7  # six words and the end, almost equally probable


@pytest.mark.usefixtures("untraced")
def test_a_classifier_begins_with_the_encoder_of_a_masked_language_model(run_of, tmp_path):
    origin = run_of("masked-language-model")
    report = train(
        corpus_of("classify"),
        tmp_path / "run",
        RunFolder(origin).transformer_config().replace(task="classify"),
        TRAINING.replace(max_steps=1, learning_rate_scale=1e-9),
        initialize_from=origin,
    )
    run = report.run
    assert run.transformer_config().num_decoder_layers == 0
    fresh = Classifier.from_run(run.path).model
    earlier = build_model(RunFolder(origin).transformer_config())
    load_weights(RunFolder(origin), earlier)
    for name in ("encoder", "source_embedding", "segments"):
        ours, theirs = (model.get_layer(name).get_weights() for model in (fresh, earlier))
        for own, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(own, other, atol=1e-6)


@pytest.mark.usefixtures("untraced")
def test_a_classifier_that_begins_with_another_has_the_labels_of_its_own_corpus(run_of, tmp_path):
    words = {"even": "two", "odd": "one"}
    parts = ([(text, words[label]) for text, label in part] for part in (corpus_of("classify").train,) * 2)
    training = TRAINING.replace(max_steps=1)
    report = train(
        Corpus("other", *parts, test=[]), tmp_path / "run", training=training, initialize_from=run_of("classify")
    )
    assert sorted(Classifier.from_run(report.run.path).labels) == ["one", "two"]


@pytest.mark.usefixtures("untraced")
def test_a_classifier_that_begins_with_another_keeps_its_labels_if_they_suffice(run_of, tmp_path):
    corpus = corpus_of("classify")
    odd = [pair for pair in corpus.train if pair[1] == "odd"]
    training = TRAINING.replace(max_steps=1, learning_rate_scale=1e-9)
    report = train(
        Corpus("odd", odd, odd[:9], []), tmp_path / "run", training=training, initialize_from=run_of("classify")
    )
    assert Classifier.from_run(report.run.path)(TEXTS) == [parity(text) for text in TEXTS]


@pytest.mark.parametrize(("earlier", "task"), [("classify", "translate"), ("language-model", "tag")])
def test_first_weights_of_another_kind_of_model_are_refused(earlier, task, run_of, tmp_path):
    sizes = RunFolder(run_of(earlier)).transformer_config().replace(task=task)
    with pytest.raises(ValueError, match=f"A model of the task {task} can begin with .* a run of the task {earlier}"):
        train(
            corpus_of("tag"),
            tmp_path / "run",
            sizes,
            TRAINING,
            initialize_from=run_of(earlier),
        )
    assert not RunFolder(tmp_path / "run").exists()


@pytest.mark.usefixtures("untraced")
def test_a_resumed_run_of_a_masked_language_model_hides_the_same_tokens(tmp_path):
    corpus, training = corpus_of("masked-language-model"), TRAINING.replace(max_steps=6)
    sizes = toy.TRANSFORMER.replace(task="masked-language-model")
    whole = train(corpus, tmp_path / "whole", sizes, training)
    train(corpus, tmp_path / "parts", sizes, training.replace(max_steps=3))
    parts = train(corpus, tmp_path / "parts", sizes, training, resume=True)
    assert parts.best == whole.best


def test_a_resumed_classifier_takes_no_samples(run_of):
    with pytest.raises(ValueError, match="samples are texts to translate. Received: samples, and the task classify"):
        train(corpus_of("classify"), run_of("classify"), resume=True, samples=["one"])


def test_samples_are_for_translators(tmp_path):
    sizes = toy.TRANSFORMER.replace(task="classify")
    with pytest.raises(ValueError, match="samples are texts to translate. Received: samples, and the task classify"):
        train(corpus_of("classify"), tmp_path / "run", sizes, TRAINING, samples=["one"])
