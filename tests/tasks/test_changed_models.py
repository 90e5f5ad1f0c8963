"""What answers texts follows its model when the model gets other weights, and can be copied to other processes."""

import copy
import pickle
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy

from kformer.config import DecodingConfig, TransformerConfig
from kformer.export.saved_model import export_saved_model
from kformer.layers import Cache
from kformer.models import build_model
from kformer.tasks import Classifier, LanguageModel, Tagger
from kformer.tasks.translator import Translator
from kformer.tokenizers import SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

TEXTS = ["one two three", "six five", "four"]


@pytest.fixture
def translator(numbers_run):
    return Translator.from_run(numbers_run, DecodingConfig(beam_size=2))


def add_adapters(model):
    """Adapters (LoRA) of rank 2 with random weights on every dense layer."""
    random = np.random.default_rng(1)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dense):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(random.normal(0, 0.5, layer.lora_kernel_b.shape))


def fresh(translator):
    """Another translator of the same model, which was never called."""
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    return Translator(translator.model, translator.config, *tokenizers, translator.decoding)


def everything(translator):
    """The scores that each method of a translator gives."""
    text, translations = tf.constant(TEXTS), tf.constant([toy.translation(text) for text in TEXTS])
    return [
        translator.translate(text)["score"],
        translator.translate_n_best(text)["score"],
        translator.score(text, translations)["log_probability"],
        translator.translate_detailed(text)["score"],
        translator.translate_with_options(text, max_length=9)["score"],
    ]


@pytest.mark.slow
def test_a_translator_that_was_called_follows_adapters_and_so_does_its_pickle(translator):
    before = everything(translator)
    add_adapters(translator.model)
    after = everything(translator)
    for old, new, expected in zip(before, after, everything(fresh(translator)), strict=True):
        np.testing.assert_array_equal(new, expected)
        assert np.abs(new - old).max() > 0.1
    copied = pickle.loads(pickle.dumps(translator))
    for new, of_copy in zip(after, everything(copied), strict=True):
        np.testing.assert_allclose(of_copy, new, rtol=1e-5)


def test_a_pickle_keeps_the_search_the_samples_and_the_facts(translator):
    copied = pickle.loads(pickle.dumps(translator))
    assert translator.samples
    assert translator.facts
    assert (copied.decoding, copied.samples, copied.facts) == (
        translator.decoding,
        translator.samples,
        translator.facts,
    )


def test_training_and_new_values_of_the_same_weights_are_followed_without_a_new_trace(translator):
    translator(TEXTS)
    translator.model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    ids = np.full((2, 3), 5, np.int32)
    translator.model.fit({"source": ids, "target_in": ids}, ids, verbose=0)
    translator(TEXTS)
    translator.model.set_weights([weights * 0.5 for weights in translator.model.get_weights()])
    assert translator(TEXTS) == fresh(translator)(TEXTS)
    assert translator.translate.experimental_get_tracing_count() == 1


def test_the_parts_of_a_translator_cannot_be_exchanged(translator):
    with pytest.raises(AttributeError, match=r"keeps its decoding.*Translator\(model, config, .*decoding=\.\.\."):
        translator.decoding = DecodingConfig(beam_size=1)
    for name in ("model", "config", "source_tokenizer", "target_tokenizer"):
        with pytest.raises(AttributeError, match=f"keeps its {name}"):
            setattr(translator, name, copy.copy(getattr(translator, name)))


def untrained(kind, pad_id=0):
    """A translator, classifier, tagger or language model of number words, with random weights."""
    words, labels = SymbolTokenizer(list(toy.WORDS)), SymbolTokenizer(["even", "odd"])
    words.pad_id = pad_id
    if kind is LanguageModel:
        sizes = {"source_vocab_size": 10, "target_vocab_size": 10, "num_encoder_layers": 0}
        config = toy.TRANSFORMER.replace(task=kind.task, pad_id=pad_id, **sizes)
        return LanguageModel(build_model(config, "float32"), config, words, DecodingConfig(beam_size=1))
    if kind is Translator:
        config = toy.TRANSFORMER.replace(source_vocab_size=10, target_vocab_size=10)
        return Translator(build_model(config, "float32"), config, words, words)
    config = toy.TRANSFORMER.replace(
        source_vocab_size=10, target_vocab_size=6, num_decoder_layers=0, embedding_tying="none", task=kind.task
    ).replace(pad_id=pad_id)
    return kind(build_model(config, "float32"), config, words, labels)


@pytest.mark.parametrize("kind", [Classifier, Tagger, LanguageModel])
def test_padding_of_any_id_is_not_read(kind):
    """That of words which no text here has: "six"."""
    predictor = untrained(kind, pad_id=9)
    assert predictor.source_tokenizer.tokenize(["six"]).to_list() == [[9]]
    texts = ["one two", "one two three four five four three"]
    alone, together = predictor.function(tf.constant(texts[:1])), predictor.function(tf.constant(texts))
    name = "probability" if kind is Classifier else "score"
    np.testing.assert_allclose(together[name][:1], alone[name], rtol=2e-5)
    (ids,) = predictor.calibration_inputs(tf.constant(texts)).values()
    assert ids.numpy()[0, -1] == 9
    if kind is LanguageModel:
        alone, together = predictor.score(texts[:1]), predictor.score(texts)
        np.testing.assert_allclose(together["log_probability"][:1], alone["log_probability"], rtol=1e-4)
        assert (together["tokens"].tolist(), alone["tokens"].tolist()) == ([3, 8], [3])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(Classifier, marks=pytest.mark.in_ci), Tagger, LanguageModel])
def test_the_other_tasks_follow_adapters_and_so_do_their_pickles(kind):
    predictor = untrained(kind)
    name = "probability" if kind is Classifier else "score"
    before = predictor.function(tf.constant(TEXTS))[name]
    add_adapters(predictor.model)
    after = predictor.function(tf.constant(TEXTS))[name]
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, tf.function(predictor.answer)(tf.constant(TEXTS))[name])
    assert pickle.loads(pickle.dumps(predictor))(TEXTS) == predictor(TEXTS)


@pytest.mark.parametrize("kind", [Classifier, Tagger, LanguageModel])
def test_another_model_has_the_parts_of_the_task_though_the_configuration_names_no_task(kind):
    given = untrained(kind)
    tokenizers = [given.source_tokenizer] if kind is LanguageModel else [given.source_tokenizer, given.target_tokenizer]
    unnamed = kind(given.model, given.config.replace(task=TransformerConfig().task), *tokenizers)
    model = unnamed.build("bfloat16")
    assert [weights.shape for weights in model.weights] == [weights.shape for weights in given.model.weights]
    assert {weights.dtype for weights in model.weights} == {"bfloat16"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Translator, Classifier, Tagger, LanguageModel])
def test_a_twin_answers_with_its_own_model(kind):
    predictor, name = untrained(kind), "probability" if kind is Classifier else "score"
    before = predictor.function(tf.constant(TEXTS))[name]  # it has its graph
    model = predictor.build("float32")  # with other random weights
    twin = predictor.twin(model, Cache)
    predictor.model.set_weights(model.get_weights())
    expected = predictor.function(tf.constant(TEXTS))[name]
    assert np.abs(expected - before).max() > 1e-3
    predictor.model.set_weights([0 * weights for weights in model.get_weights()])
    np.testing.assert_allclose(twin.function(tf.constant(TEXTS))[name], expected, rtol=1e-5)
    assert twin(TEXTS) == pickle.loads(pickle.dumps(twin))(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "float32", "bfloat16"])
def test_an_export_has_the_adapters_merged(precision, translator, tmp_path):
    add_adapters(translator.model)
    path = export_saved_model(translator, tmp_path, precision=precision, signatures=["score"])
    pairs = {"text": tf.constant(TEXTS), "translation": tf.constant([toy.translation(text) for text in TEXTS])}
    found = tf.saved_model.load(str(path)).signatures["score"](**pairs)["log_probability"]
    tolerance = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.1}[precision]
    np.testing.assert_allclose(found, translator.score(*pairs.values())["log_probability"], rtol=tolerance)


def test_a_copied_translator_does_not_follow_the_model_of_the_first(translator):
    copied, translations = copy.deepcopy(translator), [toy.translation(text) for text in TEXTS]
    before = copied.score(TEXTS, translations)["log_probability"]
    add_adapters(translator.model)
    np.testing.assert_array_equal(copied.score(TEXTS, translations)["log_probability"], before)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"type_check": False}])
def test_keras_quantizes_a_model_and_its_translations_stay(options, translator, tmp_path):
    expected = translator.score(TEXTS, [toy.translation(text) for text in TEXTS])["log_probability"]
    size = sum(weights.nbytes for weights in translator.model.get_weights())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        translator.model.quantize("int8", **options)
    assert sum(weights.nbytes for weights in translator.model.get_weights()) < 0.35 * size
    assert translator(TEXTS) == [toy.translation(text) for text in TEXTS]
    found = translator.score(TEXTS, [toy.translation(text) for text in TEXTS])["log_probability"]
    np.testing.assert_allclose(found, expected, atol=0.3)
    with pytest.raises(ValueError, match="that Keras has quantized cannot be exported.*with precision int8"):
        export_saved_model(translator, tmp_path / "export")
