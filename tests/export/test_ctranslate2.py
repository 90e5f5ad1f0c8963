"""Exports to CTranslate2: its engine finds what kformer's greedy search finds, for every part that it knows."""

import itertools
import json
import types

import ctranslate2
import numpy as np
import pytest
import tensorflow as tf
from quick import mostly_slow
from typer.testing import CliRunner

import kformer
from kformer.cli.main import app
from kformer.export.ctranslate2 import CTranslate2Target, export_ctranslate2
from kformer.export.ctranslate2_engine import CTranslate2Engine
from kformer.export.target import Trial
from kformer.inference import Model
from kformer.models.building import build_model
from kformer.tokenizers import SentencePieceTokenizer, SymbolTokenizer

pytestmark = pytest.mark.tensorflow_only

LETTERS = SymbolTokenizer(list("abcdefghijk"))
SIZES = {"d_model": 24, "d_ff": 40, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
TEXTS = ["a b c", "k j i h g f e d", "b", "c c c a", "e f g h i j k a b c d e"]


def random_translator(seed=3, **fields):
    """A translator with weights that are large enough to give many answers."""
    size = LETTERS.vocab_size
    config = kformer.TransformerConfig(source_vocab_size=size, target_vocab_size=size, **{**SIZES, **fields})
    model = build_model(config)
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        near = 1.0 if weight.path.endswith(("gamma", "scale")) else 0.0
        weight.assign(near + 0.3 * generator.standard_normal(weight.shape))
    decoding = kformer.DecodingConfig(beam_size=1, max_extra_length=9, renormalize=True)  # as CTranslate2
    return kformer.Translator(model, config, LETTERS, LETTERS, decoding, samples=TEXTS)


def with_search(translator, decoding):
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    return kformer.Translator(translator.model, translator.config, *tokenizers, decoding, translator.samples)


VARIANTS = {
    "the paper's": {},
    "norm first": {"norm_first": True},
    "learned": {"positional_encoding": "learned", "max_length": 32},
    "halves": {"positional_encoding": "sinusoidal_halves"},
    "rotary": {"positional_encoding": "rotary", "max_wavelength": 100.0},
    "relative": {"positional_encoding": "relative"},
    "relative values": {"positional_encoding": "relative_values", "max_relative_distance": 3},
    "relative buckets": {"positional_encoding": "relative_buckets"},
    "rms norm": {"normalization": "rms_norm", "norm_first": True},
    "gelu": {"activation": "gelu"},
    "gelu tanh": {"activation": "gelu_tanh"},
    "silu": {"activation": "silu", "use_bias": False},
    "swiglu": {"activation": "swiglu"},
    "geglu": {"activation": "geglu"},
    "geglu tanh": {"activation": "geglu_tanh"},
    "grouped heads": {"num_key_value_heads": 2},
    "one shared head": {"num_key_value_heads": 1, "norm_first": True},
    "head dim": {"head_dim": 8},
    "embedding dim": {"embedding_dim": 10},
    "embedding dim, two matrices": {"embedding_dim": 10, "embedding_tying": "none"},
    "no scale": {"scale_embeddings": False},
    "embedding norm": {"normalize_embeddings": True},
    "softmax bias": {"softmax_bias": True},
    "target tied": {"embedding_tying": "target"},
    "not tied": {"embedding_tying": "none"},
    "start is padding": {"start_id": 0},
    "epsilon": {"layer_norm_epsilon": 0.1},
}


@pytest.mark.parametrize("variant", mostly_slow(VARIANTS, {"rotary", "geglu tanh"}))
def test_greedy_search_finds_the_same(variant, tmp_path):
    translator = random_translator(**VARIANTS[variant])
    folder = export_ctranslate2(translator, tmp_path / "exported")  # which compares the scores
    expected = translator.translate(tf.constant(TEXTS))
    found = CTranslate2Engine(folder)([text.encode() for text in TEXTS])
    assert found["translation"][:, 0].tolist() == expected["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"][:, 0], expected["score"].numpy(), rtol=1e-4, atol=1e-4)
    assert len({*found["translation"][:, 0]}) > 1


REFUSED = {
    "attention_window": {"attention_window": 3},
    "depth": {"depth": "shared"},
    "positional_encoding": {"positional_encoding": "alibi"},
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_part_that_the_engine_lacks_is_refused_by_its_field(field, tmp_path):
    with pytest.raises(ValueError, match=f"CTranslate2 has no {field}="):
        export_ctranslate2(random_translator(**REFUSED[field]), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_first_token_that_is_given_is_refused(tmp_path):
    translator = random_translator()
    with pytest.raises(ValueError, match="whose translations begin with first_id=5"):
        export_ctranslate2(with_search(translator, translator.decoding.replace(first_id=5)), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_least_length_beyond_the_limit_of_a_text_ends_at_the_limit(tmp_path):
    translator = random_translator()
    mine = with_search(translator, translator.decoding.replace(min_length=30, max_extra_length=2))
    found = CTranslate2Engine(export_ctranslate2(mine, tmp_path / "exported"))([text.encode() for text in TEXTS])
    assert found["translation"][:, 0].tolist() == mine.translate(tf.constant(TEXTS))["translation"].numpy().tolist()


def test_eight_bits_are_nearly_the_same(tmp_path):
    folder = export_ctranslate2(random_translator(), tmp_path / "exported", "int8")
    facts = json.loads((folder / "assets.extra" / "kformer.json").read_text())
    assert (facts["format"], facts["precision"], facts["samples"]) == ("ctranslate2", "int8", len(TEXTS))
    assert 0 < facts["score_difference"] < 0.1


class RoundsMuch(ctranslate2.Translator):
    """An engine whose scores are wrong by a fifth, as on a processor that rounds products in int8 much."""

    wrong = 1.2

    def __init__(self, *arguments, compute_type, **options):
        super().__init__(*arguments, compute_type=compute_type, **options)
        self.factor = 1.0 if compute_type == "float32" else self.wrong

    def translate_batch(self, *arguments, **options):
        found = super().translate_batch(*arguments, **options)
        return [
            types.SimpleNamespace(hypotheses=one.hypotheses, scores=[score * self.factor for score in one.scores])
            for one in found
        ]


def test_rounding_by_the_processor_is_told_and_no_fault_of_the_export(tmp_path, monkeypatch):
    monkeypatch.setattr("ctranslate2.Translator", RoundsMuch)
    with pytest.warns(
        UserWarning, match=r"The export is right, but .* int8 products .* scores of 5 texts differ by \d\d"
    ):
        folder = export_ctranslate2(random_translator(), tmp_path / "exported", "int8")
    facts = json.loads((folder / "assets.extra" / "kformer.json").read_text())
    assert 0.1 < facts["score_difference"] < 0.3


def test_products_that_are_no_numbers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ctranslate2.Translator", RoundsMuch)
    monkeypatch.setattr(RoundsMuch, "wrong", float("nan"))
    with pytest.raises(ValueError, match="int8 products give scores that are no numbers .* Export in float32"):
        export_ctranslate2(random_translator(), tmp_path / "exported", "int8")
    assert not (tmp_path / "exported").exists()


def test_an_existing_folder_is_not_touched(tmp_path):
    with pytest.raises(FileExistsError):
        export_ctranslate2(random_translator(), tmp_path)
    assert not any(tmp_path.iterdir())


def test_other_tasks_and_precisions_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match="precision must be one of float32, float16, int16, int8 in the format ctranslate2"
    ):
        export_ctranslate2(random_translator(), tmp_path / "exported", "int4")


def test_the_commands_and_models_take_the_folder(tmp_path):
    folder = export_ctranslate2(random_translator(), tmp_path / "exported")
    texts = [text.encode() for text in TEXTS]
    expected = CTranslate2Engine(folder)(texts)["translation"][:, 0]
    assert [one.text.encode() for (one,) in Model(folder)(texts)] == expected.tolist()
    (tmp_path / "test.tsv").write_bytes(b"".join(b"%s\t%s\n" % pair for pair in zip(texts, expected, strict=True)))
    told = CliRunner().invoke(app, ["evaluate", str(folder), "--test", str(tmp_path / "test.tsv")]).stdout
    assert json.loads(told.splitlines()[-1])["word_error_rate"] == 0


def test_its_search_is_that_of_the_export(tmp_path):
    folder = export_ctranslate2(random_translator(), tmp_path / "exported")
    with pytest.raises(ValueError, match="its search was fixed when it was exported"):
        Model(folder, kformer.DecodingConfig(beam_size=2))


def test_no_group_of_tokens_is_repeated_where_the_search_forbids_it(tmp_path):
    translator = random_translator()

    def repeats(decoding, name):
        export_ctranslate2(with_search(translator, decoding), tmp_path / name)
        found = CTranslate2Engine(tmp_path / name)([text.encode() for text in TEXTS])["translation"][:, 0]
        pairs = [list(itertools.pairwise(text.decode().split())) for text in found]
        return sum(len(of_text) - len({*of_text}) for of_text in pairs)

    free = translator.decoding
    assert repeats(free, "free") > 0
    assert repeats(free.replace(no_repeat_ngram_size=2), "forbidden") == 0


def random_language_model(**fields):
    translator = random_translator(num_encoder_layers=0, task="language-model", embedding_tying="target", **fields)
    return kformer.LanguageModel(translator.model, translator.config, LETTERS, translator.decoding, samples=TEXTS)


def test_a_language_model_finds_texts_as_probable(tmp_path):
    model = random_language_model(norm_first=True)
    folder = export_ctranslate2(model, tmp_path / "exported")
    names, engine = LETTERS.tokens(), ctranslate2.Generator(str(folder), device="cpu")
    rows = [[*ids, LETTERS.end_id] for ids in LETTERS.begun(LETTERS.tokenize(TEXTS)).to_list()]
    found = [sum(one.log_probs) for one in engine.score_batch([[names[id] for id in row] for row in rows])]
    np.testing.assert_allclose(found, model.score(TEXTS)["log_probability"], rtol=1e-4)
    with pytest.raises(ValueError, match=r"is a language model, of which only CTranslate2 itself makes texts"):
        CTranslate2Engine(folder)


@pytest.mark.parametrize("make", [random_translator, random_language_model])
def test_an_export_that_computes_something_else_does_not_get_its_name(make, tmp_path, monkeypatch):
    monkeypatch.setattr("kformer.export.ctranslate2.copy_weights", lambda source, target: None)
    with pytest.raises(ValueError, match="The export does not compute what the predictor does"):
        export_ctranslate2(make(), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_the_folder_has_what_those_without_kformer_need(tmp_path, monkeypatch):
    monkeypatch.setattr(CTranslate2Target, "check", lambda *_: Trial({}, 0.0))
    source = SentencePieceTokenizer.train(["a bb abba baba", "ab ba aab bba"], vocab_size=269)
    target = SentencePieceTokenizer.train(["c dd cddc dcdc", "cd dc ccd ddc"], vocab_size=271)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    config = kformer.TransformerConfig(269, 271, embedding_tying="target", **(SIZES | layers))
    search = kformer.DecodingConfig(beam_size=3, length_penalty=0.5)
    mine = kformer.Translator(build_model(config), config, source, target, search, samples=["abba"])
    folder = export_ctranslate2(mine, tmp_path / "exported")
    assert (folder / "source.model").read_bytes() == source.model_bytes
    assert (folder / "target.model").read_bytes() == target.model_bytes
    told = (folder / "README.md").read_text(encoding="utf-8")
    assert "engine.translate_batch([pieces], beam_size=3, length_penalty=0.5)[0]" in told
