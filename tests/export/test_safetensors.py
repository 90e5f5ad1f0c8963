"""Exports to Hugging Face: what came from there goes back bit for bit, and a model of kformer is the same there."""

import json

import numpy as np
import pytest
import tensorflow as tf
from importing.examples import FOLDER, TOLERANCE, Example
from importing.translator_of_kformer import example, translator
from quick import mostly_slow
from typer.testing import CliRunner

import kformer
from kformer.cli.main import app
from kformer.export import safetensors
from kformer.export.hugging_face_marian import MarianModel
from kformer.export.safetensors import export_safetensors
from kformer.importing.checkpoint_folder import open_checkpoint
from kformer.importing.run import import_model
from kformer.models.building import build_model
from kformer.runs.weights import load_weights
from kformer.tasks import Classifier, LanguageModel, MaskedLanguageModel, Tagger, task_of_run
from kformer.tokenizers import (
    ByteBPETokenizer,
    PieceVocabularyTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
    load_tokenizers,
)
from kformer.tokenizers.byte_bpe import byte_characters

pytestmark = pytest.mark.tensorflow_only

EXAMPLES = ("marian", "marian_separate", "bert", "bert_classifier", "bert_tagger", "gpt2")
# The head that tells whether a sentence follows another is not imported, and transformers computes the sinusoids anew.
NOT_KEPT = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"} | {
    f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")
}


def tensors(folder):
    checkpoint = open_checkpoint(folder)
    return {name: checkpoint.read(name) for name in checkpoint.names()}


def weights(run):
    model = build_model(run.transformer_config())
    load_weights(run, model)
    return {weight.path: np.asarray(weight) for weight in model.weights}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture(scope="module", params=EXAMPLES)
def way(request, tmp_path_factory):
    imported = Example(request.param, tmp_path_factory.mktemp("runs"))
    predictor = task_of_run(imported.run).load_for_export(imported.run.path)
    return imported, export_safetensors(predictor, tmp_path_factory.mktemp("exports") / request.param)


class TestWayBack:
    """A folder of transformers, imported, exported, and imported again."""

    def test_the_tensors_are_those_of_transformers(self, way):
        imported, folder = way
        expected = {name: array for name, array in tensors(imported.folder).items() if name not in NOT_KEPT}
        assert_same(tensors(folder), expected)

    def test_the_run_is_the_same(self, way, tmp_path):
        imported, folder = way
        again = import_model(folder, tmp_path / "again")
        assert_same(weights(again), weights(imported.run))
        assert again.transformer_config() == imported.run.transformer_config()
        assert again.decoding_config() == imported.run.decoding_config()
        lines = imported.expected.get("lines") or imported.expected["texts"]
        for mine, other in zip(*(load_tokenizers(run.tokenizer_folder) for run in (imported.run, again)), strict=True):
            assert mine.tokenize(lines).to_list() == other.tokenize(lines).to_list()
            assert mine.special_ids() == other.special_ids()

    def test_the_fields_of_its_configuration_are_those_of_transformers(self, way):
        """But for what says how its weights were kept, and what an import reads in other words."""
        imported, folder = way
        given, found = (json.loads((one / "config.json").read_text()) for one in (imported.folder, folder))
        others = ("architectures", "dtype", "forced_eos_token_id", "id2label")
        same = [name for name in found if given.get(name) is not None and name not in others]
        assert len(same) > 12
        assert {name: given[name] for name in same if given[name] != found[name]} == {}

    def test_the_file_is_the_one_that_transformers_writes(self, way):
        """Byte for byte, where the model was kept in 32 bits and all of it was imported."""
        imported, folder = way
        content = (folder / "model.safetensors").read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        assert header["__metadata__"] == {"format": "pt"}
        if imported.folder.name in ("marian", "bert_tagger", "gpt2"):
            assert content == (imported.folder / "model.safetensors").read_bytes()


TRANSLATOR = FOLDER / "marian_of_kformer"


@pytest.fixture(scope="module")
def expected():
    return json.loads((TRANSLATOR / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def predictor():
    return example(TRANSLATOR)


class TestParity:
    """A translator of kformer in the shape of the paper, as a MarianMTModel: what transformers answered."""

    def test_transformers_had_this_export(self, predictor, tmp_path):
        folder = export_safetensors(predictor, tmp_path / "exported")
        assert_same(tensors(folder), tensors(TRANSLATOR))
        for name in ("config.json", "generation_config.json", "vocab.json", "tokenizer_config.json"):
            assert json.loads((folder / name).read_text()) == json.loads((TRANSLATOR / name).read_text()), name

    def test_its_tokenizer_gave_the_same_ids(self, predictor, expected):
        found = predictor.source_tokenizer.tokenize(expected["lines"]).to_list()
        assert [[*ids, predictor.config.end_id] for ids in found] == expected["ids"]

    def test_its_logits_were_the_same(self, predictor, expected):
        target_in = np.array(expected["target_in"], "int32")
        source = tf.ragged.constant(expected["ids"][: len(target_in)]).to_tensor(predictor.config.pad_id).numpy()
        found = predictor.model({"source": source.astype("int32"), "target_in": target_in})
        np.testing.assert_allclose(found, expected["logits"], atol=TOLERANCE)

    @pytest.mark.parametrize(("name", "beams"), [("greedy", 1), ("beam", 4)])
    def test_its_searches_found_the_same(self, predictor, expected, name, beams):
        searching = predictor.with_decoding(predictor.decoding.replace(beam_size=beams))
        # White space and control characters of other kinds than a blank become one blank in kformer.
        assert searching(expected["lines"]) == [" ".join(text.split()) for text in expected[name]]
        assert len({*expected[name]}) > 50


@pytest.fixture(scope="module")
def pieces():
    return SentencePieceTokenizer.train(["a bb abba baba", "ab ba aab bba"], vocab_size=269)


MARIAN = {
    "the paper's": {},
    "halves": {"positional_encoding": "sinusoidal_halves"},
    "gelu": {"activation": "gelu"},
    "gelu tanh": {"activation": "gelu_tanh"},
    "silu": {"activation": "silu"},
    "target tied": {"embedding_tying": "target"},
    "not tied": {"embedding_tying": "none"},
    "softmax bias": {"softmax_bias": True},
    "no scale": {"scale_embeddings": False},
    "start is padding": {"start_id": 0},
    "start is the end": {"start_id": 2},
}


@pytest.mark.parametrize("variant", mostly_slow(MARIAN, {"not tied"}))
def test_a_translator_comes_back_with_the_same_translations(variant, pieces, tmp_path):
    texts = tf.constant(["abba ab", "b a", "baba bb ab", "é"])
    mine = translator(pieces, **MARIAN[variant])
    run = import_model(export_safetensors(mine, tmp_path / "exported"), tmp_path / "run")
    assert run.transformer_config().positional_encoding == "sinusoidal_halves"
    assert run.transformer_config().embedding_tying == mine.config.embedding_tying
    expected, found = mine.translate(texts), kformer.Translator.from_run(run.path).translate(texts)
    assert found["translation"].numpy().tolist() == expected["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-3)
    assert len({*np.round(expected["score"], 2)}) > 1


SEARCH = kformer.DecodingConfig(
    beam_size=3,
    length_penalty=1.25,
    max_length=19,
    beam_rules="transformers",
    early_stopping=True,
    renormalize=True,
    min_length=5,
    no_repeat_ngram_size=2,
)


def test_the_search_of_a_translator_comes_back(pieces, tmp_path):
    search = SEARCH.replace(max_extra_length=19, forced_end=True, first_id=7)
    mine = translator(pieces).with_decoding(search)
    run = import_model(export_safetensors(mine, tmp_path / "exported"), tmp_path / "run")
    assert run.decoding_config() == search.replace(max_source_length=run.decoding_config().max_source_length)


def test_the_search_of_a_language_model_comes_back(tmp_path):
    mine = language_model().with_decoding(SEARCH)
    run = import_model(export_safetensors(mine, tmp_path / "exported"), tmp_path / "run")
    found = run.decoding_config()
    assert found == SEARCH.replace(max_extra_length=found.max_extra_length, max_source_length=29)


RATES = {"dropout_rate": 0.3, "attention_dropout_rate": 0.2}


@pytest.mark.parametrize(
    "make",
    [lambda pieces: translator(pieces, **RATES), lambda _: encoder("tag", **RATES), lambda _: language_model(**RATES)],
    ids=["translator", "tagger", "language model"],
)
def test_the_rates_of_dropout_come_back(make, pieces, tmp_path):
    run = import_model(export_safetensors(make(pieces), tmp_path / "exported"), tmp_path / "run")
    found = run.transformer_config()
    assert (found.dropout_rate, found.attention_dropout_rate) == (0.3, 0.2)


def test_two_vocabularies_stay_two(pieces, tmp_path):
    other = SentencePieceTokenizer.train(["c dd cddc dcdc", "cd dc ccd ddc"], vocab_size=271)
    one = translator(pieces)
    config = one.config.replace(target_vocab_size=other.vocab_size, embedding_tying="target")
    mine = kformer.Translator(build_model(config), config, pieces, other, one.decoding)
    folder = export_safetensors(mine, tmp_path / "exported")
    source, target = load_tokenizers(import_model(folder, tmp_path / "run").tokenizer_folder)
    assert (source.vocab_size, target.vocab_size) == (269, 271)
    assert source.tokenize(["abba"]).to_list() == pieces.tokenize(["abba"]).to_list()
    assert target.tokenize(["cddc"]).to_list() == other.tokenize(["cddc"]).to_list()
    assert json.loads((folder / "tokenizer_config.json").read_text())["separate_vocabs"] is True


WORDS = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "", "[SEP]", "[MASK]", "fox", "##es", "!", ""], 0, 2, 4, 1, 5)
PREDICTORS = {"classify": Classifier, "tag": Tagger, "masked-language-model": MaskedLanguageModel}
BERT = {
    **{"d_model": 14, "d_ff": 23, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 0, "max_length": 17},
    **{"positional_encoding": "learned", "normalize_embeddings": True, "scale_embeddings": False, "activation": "gelu"},
    **{"pad_id": 0, "start_id": 2, "end_id": 4},
}


def encoder(task, tokenizer=WORDS, labels=("yes", "no", "5_stars"), **fields):
    target = tokenizer if task == "masked-language-model" else SymbolTokenizer(labels)
    tying = "all" if target is tokenizer else "none"
    config = kformer.TransformerConfig(
        tokenizer.vocab_size, target.vocab_size, task=task, embedding_tying=tying, **{**BERT, **fields}
    )
    return PREDICTORS[task](filled(build_model(config)), config, tokenizer, target)


def filled(model):
    """A model whose weights are random, also those that begin as 0 or 1."""
    generator = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(generator.standard_normal(weight.shape) * 0.3)
    return model


@pytest.mark.parametrize(
    "activation", ["gelu_tanh", "relu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gelu", "silu"))]
)
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_labels_come_back_with_the_same_probabilities(task, activation, tmp_path):
    mine = encoder(task, activation=activation)
    run = import_model(export_safetensors(mine, tmp_path / "exported"), tmp_path / "run")
    again = PREDICTORS[task].from_run(run.path)
    assert again.labels == mine.labels
    texts = tf.constant(["fox", "Foxes!", "! fox dog foxes"])
    for name, expected in mine.answer(texts).items():
        if expected.dtype == tf.string:
            assert again.answer(texts)[name].numpy().tolist() == expected.numpy().tolist()
        else:
            np.testing.assert_allclose(again.answer(texts)[name], expected, rtol=1e-6)


@pytest.mark.parametrize("fields", [{}, {"softmax_bias": True}, {"keep_pooler": True}, {"activation": "gelu_tanh"}])
def test_a_masked_language_model_comes_back(fields, tmp_path):
    """What has no bias gets one that is 0."""
    mine = encoder("masked-language-model", **fields)
    folder = export_safetensors(mine, tmp_path / "exported")
    found = weights(import_model(folder, tmp_path / "run"))
    expected = {weight.path: np.asarray(weight) for weight in mine.model.weights}
    assert_same(found, {"logits/bias": np.zeros(WORDS.vocab_size), **expected})
    assert ("bert.pooler.dense.weight" in tensors(folder)) == ("keep_pooler" in fields)


BYTES = ByteBPETokenizer([*byte_characters(), "an", "Ġan", "<pad>", "<end>", "<user>"], ["a n", "Ġ an"], 258, 259, 259)
GPT2 = {
    **{"d_model": 14, "d_ff": 23, "num_heads": 2, "num_encoder_layers": 0, "num_decoder_layers": 2, "max_length": 29},
    **{"positional_encoding": "learned", "norm_first": True, "scale_embeddings": False, "activation": "gelu_tanh"},
}


def language_model(tokenizer=BYTES, **fields):
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "start_id", "end_id")}
    size = tokenizer.vocab_size
    config = kformer.TransformerConfig(size, size, task="language-model", **{**GPT2, **ids, **fields})
    decoding = kformer.DecodingConfig(beam_size=1, max_extra_length=7, beam_rules="transformers")
    return LanguageModel(filled(build_model(config)), config, tokenizer, decoding)


LANGUAGE_MODELS = {
    "as GPT-2": {},
    "relu": {"activation": "relu"},
    "not tied": {"embedding_tying": "none"},
    "epsilon": {"layer_norm_epsilon": 0.1},
    "d_ff": {"d_ff": 56},
}


@pytest.mark.parametrize("variant", mostly_slow(LANGUAGE_MODELS, {"epsilon"}))
def test_a_language_model_comes_back_with_the_same_texts(variant, tmp_path):
    mine = language_model(**LANGUAGE_MODELS[variant])
    run = import_model(export_safetensors(mine, tmp_path / "exported"), tmp_path / "run")
    assert run.decoding_config().max_extra_length == 7
    again = LanguageModel.from_run(run.path)
    assert again(["an", "banana", "é "]) == mine(["an", "banana", "é "])


@pytest.mark.parametrize(
    "options",
    [{"has_start": True}, {"hidden_ids": [260]}, {"pad_id": 255}, {"start_id": 260, "has_start": True}],
    ids=lambda options: next(iter(options)),
)
def test_the_tokenizer_of_a_language_model_comes_back(options, tmp_path):
    given = {"pad_id": 258, "start_id": 259, "end_id": 259, **options}
    tokenizer = ByteBPETokenizer(BYTES.pieces, BYTES.merges, **given)
    folder = export_safetensors(language_model(tokenizer), tmp_path / "exported")
    again, _ = load_tokenizers(import_model(folder, tmp_path / "run").tokenizer_folder)
    names = ("pieces", "merges", "pad_id", "start_id", "end_id", "hidden_ids", "has_start")
    assert {name: getattr(again, name) for name in names} == {name: getattr(tokenizer, name) for name in names}


REFUSED = {
    "translator, norm_first": (translator, {"norm_first": True}),
    "translator, positional_encoding": (translator, {"positional_encoding": "learned"}),
    "translator, first_position": (translator, {"first_position": 1}),
    "translator, max_wavelength": (translator, {"max_wavelength": 999.0}),
    "translator, layer_norm_epsilon": (translator, {"layer_norm_epsilon": 0.1}),
    "translator, normalize_embeddings": (translator, {"normalize_embeddings": True}),
    "translator, normalization": (translator, {"normalization": "rms_norm"}),
    "translator, activation": (translator, {"activation": "swiglu"}),
    "translator, use_bias": (translator, {"use_bias": False}),
    "translator, depth": (translator, {"depth": "shared"}),
    "translator, attention_window": (translator, {"attention_window": 3}),
    "translator, num_key_value_heads": (translator, {"num_key_value_heads": 1}),
    "translator, head_dim": (translator, {"head_dim": 7}),
    "translator, embedding_dim": (translator, {"embedding_dim": 10}),
    "encoder, norm_first": (encoder, {"norm_first": True}),
    "encoder, positional_encoding": (encoder, {"positional_encoding": "sinusoidal"}),
    "encoder, normalize_embeddings": (encoder, {"normalize_embeddings": False}),
    "encoder, scale_embeddings": (encoder, {"scale_embeddings": True}),
    "language model, norm_first": (language_model, {"norm_first": False}),
    "language model, positional_encoding": (language_model, {"positional_encoding": "rotary", "d_model": 16}),
    "language model, normalize_embeddings": (language_model, {"normalize_embeddings": True}),
    "language model, scale_embeddings": (language_model, {"scale_embeddings": True}),
    "language model, softmax_bias": (language_model, {"softmax_bias": True}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_part_that_the_class_lacks_is_refused_by_its_field(case, pieces, tmp_path):
    make, fields = REFUSED[case]
    field = case.split(", ")[1]
    first = {translator: [pieces], encoder: ["classify"], language_model: []}[make]
    told = rf"of transformers has no {field}=.*Export it as a SavedModel, or train one with \w+"
    with pytest.raises(ValueError, match=told):
        export_safetensors(make(*first, **fields), tmp_path / "exported")
    assert not any(tmp_path.iterdir())


def test_a_masked_language_model_needs_the_activation_of_its_head(tmp_path):
    told = "BertForMaskedLM of transformers has no activation='relu', .* one. Train one with activation='gelu' or"
    with pytest.raises(ValueError, match=told):
        export_safetensors(encoder("masked-language-model", activation="relu"), tmp_path / "exported")


def first_ids(pieces):
    return PieceVocabularyTokenizer(pieces.model_bytes, pieces.tokens(), 0, 1, 2, 3, first_ids=[4])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda pieces: translator(SymbolTokenizer(["a", "b", "c"])),
            "MarianMTModel of transformers reads texts by SentencePiece",
        ),
        (lambda pieces: translator(first_ids(pieces)), "puts no other token before a text"),
        (lambda pieces: encoder("classify", SymbolTokenizer(["a", "b", "c"]), end_id=1), "reads texts by WordPiece"),
        (lambda pieces: language_model(pieces), "reads texts by a byte pair encoding of bytes"),
        (lambda pieces: encoder("tag", labels=["one"]), "only the label one. Train one with two labels"),
    ],
)
def test_a_tokenizer_that_the_class_lacks_is_refused(make, told, pieces, tmp_path):
    with pytest.raises(ValueError, match=told):
        export_safetensors(make(pieces), tmp_path / "exported")
    assert not any(tmp_path.iterdir())


class TestCheck:
    """A folder that is another model gets no name."""

    @pytest.fixture
    def refuse(self, tmp_path):
        def refuse(predictor, told):
            with pytest.raises(ValueError, match=f"The folder, read back, is another model: {told}"):
                export_safetensors(predictor, tmp_path / "exported")
            assert not any(tmp_path.iterdir())

        return refuse

    def test_a_number_that_differs_in_its_last_bit(self, monkeypatch, refuse):
        def write(folder, tensors):
            first = tensors["transformer.ln_f.bias"].copy()
            first[3] = np.nextafter(first[3], np.float32(9))
            write_checkpoint(folder, {**tensors, "transformer.ln_f.bias": first})

        write_checkpoint = safetensors.write_checkpoint
        monkeypatch.setattr(safetensors, "write_checkpoint", write)
        refuse(language_model(), "the weight decoder/final_norm/beta has other numbers")

    def test_a_vocabulary_in_another_order(self, monkeypatch, pieces, refuse):
        vocabularies = MarianModel._vocabularies

        def turned(self):
            """The pieces behind the special ones, from the last to the first."""
            ordinary = [[*found.values()][4:] for found in vocabularies(self)]
            return [
                {**found, **dict(enumerate(reversed(some), 4))}
                for found, some in zip(vocabularies(self), ordinary, strict=True)
            ]

        monkeypatch.setattr(MarianModel, "_vocabularies", turned)
        refuse(translator(pieces), "its tokenizer gives the sample texts other ids")

    def test_sinusoids_that_stay_in_the_order_of_the_paper(self, monkeypatch, pieces, refuse):
        monkeypatch.setattr(MarianModel, "arranged", lambda self, weights: weights)
        refuse(translator(pieces), r"its logits differ by up to \d")


def test_the_folder_says_what_it_holds(pieces, tmp_path):
    mine = translator(pieces)
    mine = kformer.Translator(mine.model, mine.config, pieces, pieces, mine.decoding, facts={"licence": "Apache-2.0"})
    folder = export_safetensors(mine, tmp_path / "exported")
    facts = json.loads((folder / "assets.extra" / "kformer.json").read_text())
    assert (facts["format"], facts["class"], facts["precision"]) == ("safetensors", "MarianMTModel", "float32")
    assert 0 <= facts["logit_difference"] < TOLERANCE
    run = import_model(folder, tmp_path / "run")
    assert run.facts()["licence"] == "Apache-2.0"


def test_an_existing_folder_is_not_touched(pieces, tmp_path):
    with pytest.raises(FileExistsError):
        export_safetensors(translator(pieces), tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_command_exports_a_masked_language_model_with_the_search_of_its_options(tmp_path):
    """Other formats refuse a model that answers nothing."""
    run = import_model(FOLDER / "bert", tmp_path / "run")
    told = CliRunner().invoke(app, ["export", str(run.path), str(tmp_path / "exported"), "--format", "safetensors"])
    assert told.stdout.strip() == str(tmp_path / "exported")
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    run = import_model(FOLDER / "gpt2", tmp_path / "other")
    options = ["--format", "safetensors", "--beam-size", "3", "--length-penalty", "1.5"]
    CliRunner().invoke(app, ["export", str(run.path), str(tmp_path / "second"), *options], catch_exceptions=False)
    search = json.loads((tmp_path / "second" / "generation_config.json").read_text())
    assert (search["num_beams"], search["length_penalty"]) == (3, 1.5)
