"""Tags that stand before the target, in place of the start token, over a model with random weights.

What it finds for a tag is what a model with the same weights finds whose start id is that of the tag.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.config import DecodingConfig, TransformerConfig
from kformer.export.ctranslate2 import export_ctranslate2
from kformer.export.safetensors import export_safetensors
from kformer.export.saved_model import export_saved_model
from kformer.models import build_transformer
from kformer.tasks.translator import Translator
from kformer.text.option_tensors import option_tensors
from kformer.tokenizers import SymbolTokenizer
from kformer.training.live_translation import LiveTranslator

pytestmark = pytest.mark.tensorflow_only

SOURCE = SymbolTokenizer(["one", "two", "three", "four.", "He"])
TARGET = SymbolTokenizer(["<2es>", "<2en>", "uno", "dos", "tres", "cuatro", "cinco"])
ES, EN = 4, 5
SPECIAL = {"start_id": 1, "<2es>": ES, "<2en>": EN}
SEARCH = DecodingConfig(beam_size=3, max_source_length=6, max_sentence_length=9, max_extra_length=4)
TEXTS = ["one two", "three", "two one three", ""]


@pytest.fixture(scope="module")
def weights():
    """It gives no probability to what stands before targets."""
    keras.utils.set_random_seed(7)
    config = TransformerConfig.of_size("tiny").replace(
        source_vocab_size=SOURCE.vocab_size,
        target_vocab_size=TARGET.vocab_size,
        embedding_tying="none",
        num_encoder_layers=1,
        num_decoder_layers=1,
        softmax_bias=True,
    )
    model = build_transformer(config)
    for variable in model.trainable_variables:
        variable.assign_add(0.3 * keras.random.normal(variable.shape))
    (bias,) = [one for one in model.trainable_variables if one.shape == (TARGET.vocab_size,)]
    bias.assign(np.where(np.isin(np.arange(TARGET.vocab_size), [1, ES, EN]), -1e6, 0.0))
    return model, config


def made(weights, **changes):
    model, config = weights
    return Translator(model, config, SOURCE, TARGET, SEARCH.replace(**changes))


@pytest.fixture(
    scope="module", params=[pytest.param(1, id="greedy", marks=pytest.mark.slow), pytest.param(3, id="beam")]
)
def beam_size(request):
    return request.param


@pytest.fixture(scope="module")
def tagged(weights, beam_size):
    return made(weights, beam_size=beam_size, tags="<2es> <2en>", tags_before="target")


@pytest.fixture(scope="module")
def begun(weights, beam_size):
    """By its tag, the model that begins every translation with the tag's id."""
    model, config = weights
    search = SEARCH.replace(beam_size=beam_size)
    return {
        name: Translator(model, config.replace(start_id=number), SOURCE, TARGET, search)
        for name, number in SPECIAL.items()
    }


def check_same(found, expected):
    """Two results of signatures are the same, texts exactly and numbers almost."""
    assert {*found} == {*expected}
    for name, value in found.items():
        if value.dtype == tf.string:
            assert value.numpy().tolist() == expected[name].numpy().tolist()
        else:
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def with_tag(tag, texts):
    return [f"{tag} {text}" for text in texts]


@pytest.mark.parametrize("tag", ["<2es>", "<2en>"])
def test_translations_and_scores_are_of_the_model_that_begins_so(tagged, begun, tag):
    check_same(tagged.translate(with_tag(tag, TEXTS)), begun[tag].translate(TEXTS))
    assert begun["<2es>"](TEXTS) != begun["<2en>"](TEXTS)


def test_texts_of_a_batch_have_their_own_tags(tagged, begun):
    found = tagged(["<2en> one two", "one two", "<2es> one two", "<2en>", ""])
    spanish, english = (begun[tag]("one two") for tag in ("<2es>", "<2en>"))
    assert found == [english, spanish, spanish, "", ""]


def test_sentences_leave_the_search_with_their_tags(tagged, begun):
    """Of many sentences of different lengths, those that are finished leave; the others keep their places."""
    texts = [" ".join(["one", "two", "three"] * 3)[: 4 + 4 * (number % 7)].strip() for number in range(70)]
    tags = ["<2es>" if number % 3 else "<2en>" for number in range(70)]
    found = tagged([f"{tag} {text}" for tag, text in zip(tags, texts, strict=True)])
    alone = {tag: dict(zip(texts, begun[tag](texts), strict=True)) for tag in ("<2es>", "<2en>")}
    assert found == [alone[tag][text] for tag, text in zip(tags, texts, strict=True)]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("<2en> one\ntwo", ["<2en>", "<2en>"]),
        ("one\ntwo", ["<2es>", "<2es>"]),
        ("<2en> one\n<2es> two\nthree", ["<2en>", "<2es>", "<2en>"]),
        ("one\n<2en> two", ["<2es>", "<2en>"]),
        ("<2en> one two He four. two three He four. He one", ["<2en>"] * 2),
    ],
)
def test_every_part_of_a_text_has_a_tag(tagged, text, tags):
    parts = tagged.codec.divide(tf.constant([text]))
    assert parts.start.numpy().tolist()[: len(tags)] == [SPECIAL[tag] for tag in tags]
    assert {*parts.start.numpy().tolist()} == {SPECIAL[tag] for tag in tags}
    read = [token for row in parts.ids.to_list() for token in row]
    words = [word for word in text.split() if word not in SPECIAL]
    assert read == SOURCE.tokenize([" ".join(words)]).to_list()[0]


def test_a_text_without_a_tag_begins_as_usual_where_the_model_learned_such_texts(weights, begun, beam_size):
    model = made(weights, beam_size=beam_size, tags="<2es>", tags_before="target", untagged=True)
    assert model(["one two", "<2es> one two"]) == [begun["start_id"]("one two"), begun["<2es>"]("one two")]
    assert model.codec.divide(["one\n<2es> two"]).start.numpy().tolist() == [1, ES]
    assert model.codec.starts(["<2es> one", "one"]).numpy().tolist() == [ES, 1]


def test_hypotheses_details_attention_and_tree_begin_so(tagged, begun):
    expected, texts = begun["<2en>"], ["two three", "one\ntwo one"]
    given = with_tag("<2en>", texts)
    check_same(tagged.translate_n_best(given), expected.translate_n_best(texts))
    found, others = tagged.translate_detailed(given), expected.translate_detailed(texts)
    for name in ("source_start", "source_end"):  # the places are those in the given text
        found[name] = tf.where(found["source_token"] == "", 0, found[name] - len("<2en> "))
    check_same(found, others)
    lengths, log_probs = found["target_length"][:1], found["log_probability"].numpy()[0].sum()
    assert log_probs == pytest.approx(float(found["score"][0] * tagged.codec.score_norm(lengths)[0]), rel=1e-4)
    maps, read = tagged.attention("<2en> one two", "dos uno"), expected.attention("one two", "dos uno")
    assert maps.cross.keys == read.cross.keys
    assert (maps.decoder.keys[0], read.decoder.keys[1:]) == ("<2en>", maps.decoder.keys[1:])
    np.testing.assert_allclose(maps.cross.weights, read.cross.weights, atol=1e-6)
    spanish = tagged.attention("<2es> one two", "dos uno")
    assert not np.allclose(spanish.cross.weights[:, :, 0], maps.cross.weights[:, :, 0], atol=1e-3)
    if tagged.decoding.beam_size > 1:
        assert tagged.beam_tree("<2en> one two") == expected.beam_tree("one two")


def test_lines_of_details_have_places_behind_their_own_tags(tagged):
    text = " <2en>  one\n <2es> two three"
    found = {name: values.numpy()[0] for name, values in tagged.translate_detailed([text]).items()}
    ends = zip(found["source_start"], found["source_end"], strict=True)
    assert [text.encode()[start:end].decode() for start, end in ends] == ["one", "two", "three"]


OPTIONS = {
    "prefix": {"target_prefix": "dos"},
    "lengths": {"min_length": 2, "max_length": 4},
    "penalty": {"length_penalty": 2.0},
    "drawn": {"temperature": 1.5, "seed": 5, "top_k": 4},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_of_a_request_hold_behind_the_tag(tagged, begun, options):
    texts = tf.constant(TEXTS[:3])
    expected = [begun[tag].translate_with_options(texts, **options) for tag in ("<2en>", "<2es>")]
    for tag, wanted in zip(("<2en>", "<2es>"), expected, strict=True):
        check_same(tagged.translate_with_options(texts, tag=tag, **options), wanted)
    mixed = tagged.translate_with_options(texts, tag=["<2es>", "<2en>", "<2es>"], **options)["translation"].numpy()
    assert mixed[1] == expected[0]["translation"].numpy()[1]
    assert mixed[0] == expected[1]["translation"].numpy()[0]


def test_samples_begin_with_the_tag(tagged, begun):
    assert tagged.sample(with_tag("<2en>", TEXTS), seed=3) == begun["<2en>"].sample(TEXTS, seed=3)


def test_the_score_of_a_pair_is_the_log_probability_behind_the_tag(tagged, weights):
    """By hand: the decoder reads the tag and the translation, and the tag itself is not predicted."""
    model, _ = weights
    found = tagged.score(["<2en> one three"], ["tres uno"])
    one, three = SOURCE.tokenize(["one three"]).to_list()[0]
    tres, uno = TARGET.tokenize(["tres uno"]).to_list()[0]
    logits = model({"source": np.array([[one, three, 2]]), "target_in": np.array([[EN, tres, uno]])}).numpy()[0]
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    by_hand = log_probs[0, tres] + log_probs[1, uno] + log_probs[2, 2]
    assert float(found["log_probability"][0]) == pytest.approx(by_hand, rel=1e-5)
    assert int(found["tokens"][0]) == 3


def test_a_model_in_training_translates_so(weights):
    """Greedily, as validations and samples do."""
    model, config = weights
    greedy = made(weights, beam_size=1, max_extra_length=50, tags="<2es> <2en>", tags_before="target")
    live = LiveTranslator(model, config, (SOURCE, TARGET), greedy.decoding)
    texts = ["<2en> one two", "three", "<2en> one\n<2es> two"]
    assert [found[0].text for found in live([text.encode() for text in texts])] == greedy(texts)
    spanish, english = (live.attention(f"{tag} one two")[0] for tag in ("<2es>", "<2en>"))
    assert not np.array_equal(spanish[:, 0], english[:, 0])  # of what the decoder reads first
    begun = Translator(model, config.replace(start_id=EN), SOURCE, TARGET, greedy.decoding.replace(tags=""))
    answer = begun("one two")
    expected = begun.attention("one two", answer).cross.weights[0]
    np.testing.assert_allclose(english, expected[:, : english.shape[1], : english.shape[2]], atol=1e-5)


def test_the_ranges_of_an_export_are_measured_behind_tags(tagged):
    inputs = tagged.calibration_inputs(tf.constant(["<2en> one two", "three"]))
    assert inputs["target_in"].numpy()[:, 0].tolist() == [EN, ES]
    assert inputs["source"].numpy()[0].tolist()[:2] == SOURCE.tokenize(["one two"]).to_list()[0]


def test_no_translation_has_a_tag(weights, beam_size):
    """Not even by a model that finds tags most probable."""
    model, _ = weights
    (bias,) = [one for one in model.trainable_variables if one.shape == (TARGET.vocab_size,)]
    before = bias.numpy()
    try:
        bias.assign(np.where(np.isin(np.arange(TARGET.vocab_size), [ES, EN]), 50.0, 0.0))
        model = made(weights, beam_size=beam_size, min_length=2, tags="<2es> <2en>", tags_before="target")
        answers = [*model(TEXTS[:3]), *model.sample(TEXTS[:3], seed=1)]
        assert not any("<2e" in answer for answer in answers)
        assert any("<2e" in answer for answer in made(weights, beam_size=beam_size, min_length=2)(TEXTS[:3]))
    finally:
        bias.assign(before)


def test_the_source_has_room_for_as_many_tokens_as_without_tags(tagged, weights):
    before_sources = made(weights, tags="one two", tags_before="source")
    assert tagged.codec.room_behind_tags == made(weights).codec.room_behind_tags
    assert before_sources.codec.room_behind_tags == tuple(room - 1 for room in tagged.codec.room_behind_tags)


def test_a_tag_that_is_no_token_of_the_targets_is_refused(weights):
    with pytest.raises(
        ValueError, match="The vocabulary of the targets has no token of its own for <2fr>. Choose tags"
    ):
        made(weights, tags="<2es> <2fr>", tags_before="target").translate(["one"])


@pytest.mark.parametrize("export", [export_safetensors, export_ctranslate2])
def test_formats_whose_translations_all_begin_alike_refuse_the_model(tmp_path, tagged, export):
    with pytest.raises(ValueError, match="begins all translations with the same token, .* Export it as a SavedModel"):
        export(tagged, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
@pytest.mark.parametrize("variant", [pytest.param("portable", marks=pytest.mark.in_ci), "xla"])
def test_an_export_begins_so(tmp_path, weights, variant):
    tagged = made(weights, tags="<2es> <2en>", tags_before="target", beam_size=1)
    texts = ["<2en> one two", "three", "<2en> one\n<2es> two"]
    version = export_saved_model(tagged, tmp_path, variant=variant, samples=texts)
    loaded = tf.saved_model.load(str(version))
    check_same(loaded.signatures["serving_default"](text=tf.constant(texts)), tagged.translate(texts))
    if variant == "portable":
        request = {"text": ["one two"], "tag": ["<2en>"], "target_prefix": [""], **option_tensors(tagged.decoding)}
        found = loaded.signatures["translate_with_options"](**{name: tf.constant(one) for name, one in request.items()})
        check_same(found, tagged.translate(["<2en> one two"]))
