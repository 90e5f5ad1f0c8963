"""Translators of OpenNMT-tf: a small one that it trained, and what it answered."""

import functools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import yaml
from importing.examples import FOLDER, TOLERANCE
from importing.make_opennmt_tf import MODELS, REQUIREMENTS, answer

from kformer.config import DecodingConfig
from kformer.importing.run import import_model
from kformer.tasks import LanguageModel
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only
EXAMPLE = FOLDER / "opennmt-tf"


def pyonmttok(**parameters):
    """How texts are cut by the SentencePiece model, and what else pyonmttok is told."""
    return {"type": "OpenNMTTokenizer", "params": {"sp_model_path": "pieces.model", **parameters}}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The run that a folder of examples becomes."""

    @functools.cache
    def of(name):
        return import_model(FOLDER / name / "train.yml", tmp_path_factory.mktemp("runs") / "run")

    return of


@pytest.fixture
def run(imported):
    return imported("opennmt-tf")


# Each of both models with one search; with the other one, before a release.
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("opennmt-tf-relative", "beam"),
        pytest.param("opennmt-tf", "greedy", marks=pytest.mark.slow),
        pytest.param("opennmt-tf", "beam", marks=pytest.mark.slow),
        pytest.param("opennmt-tf-relative", "greedy", marks=pytest.mark.slow),
    ],
)
def test_searches_find_the_same_translations(imported, model, name):
    run, expected = imported(model), json.loads((FOLDER / model / "expected.json").read_text(encoding="utf-8"))
    translator = Translator.from_run(
        run.path, run.decoding_config().replace(**({"beam_size": 1} if name == "greedy" else {}))
    )
    found = translator.translate(tf.constant(expected["lines"]))
    assert [text.decode() for text in found["translation"].numpy()] == expected[name]["texts"]
    np.testing.assert_allclose(found["score"].numpy(), expected[name]["scores"], atol=TOLERANCE)


def test_relative_positions_are_those_of_each_layer(imported):
    transformer = imported("opennmt-tf-relative").transformer_config()
    assert (transformer.positional_encoding, transformer.max_relative_distance) == ("relative_values", 8)


def test_a_batch_of_blank_lines_has_empty_answers(run):
    assert Translator.from_run(run.path)(["", " "]) == ["", ""]


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(EXAMPLE, tmp_path / "folder")


def changed(folder, **fields):
    """The YAML file with some fields changed; `data__name` is `name` in the part `data`."""
    path = folder / "train.yml"
    settings = yaml.safe_load(path.read_text())
    for field, value in fields.items():
        part, _, name = field.rpartition("__")
        (settings[part] if part else settings)[name] = value
    path.write_text(yaml.safe_dump(settings))
    return path


def described(folder, model):
    (folder / "run" / "model_description.py").write_text(f"import os, opennmt\nmodel = lambda: {model}\n")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"params__coverage_penalty": 0.2}, "coverage_penalty in .*train.yml is 0.2"),
        ({"params__replace_unknown_target": True}, "replace_unknown_target in .* is True"),
        ({"data__source_tokenization": {"type": "SpaceTokenizer"}}, "source_tokenization in .* SentencePiece alone"),
        ({"data__target_vocabulary": "nowhere"}, "target_vocabulary in .* names nowhere"),
        ({"data__target_sequence_controls": {"start": True}}, "target_sequence_controls in .* Expected: start and end"),
        ({"model_dir": None}, "model_dir is missing in .*train.yml"),
        ({"data__source_tokenization": pyonmttok(mode="space")}, "kformer cuts texts by SentencePiece alone"),
        ({"data__source_tokenization": pyonmttok(case_feature=True)}, "cuts texts by SentencePiece alone"),
        ({"data__source_tokenization": pyonmttok(vocabulary_path="a")}, "cuts texts by SentencePiece alone"),
        ({"params__sampling_topk": 2}, "sampling_topk in .* is 2"),
    ],
)
def test_what_the_file_asks_for_in_vain_is_refused_by_its_name(folder, tmp_path, fields, reason):
    with pytest.raises((ValueError, FileNotFoundError), match=reason):
        import_model(changed(folder, **fields), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("opennmt.models.Transformer(maximum_relative_position=8)", "and position_encoder_class=opennmt.layers.Sin"),
        ("opennmt.models.Transformer(position_encoder_class=None)", "maximum_relative_position=None and position_enc"),
        (
            "opennmt.models.Transformer(position_encoder_class=opennmt.layers.PositionEmbedder)",
            "position_encoder_class=opennmt.layers.PositionEmbedder",
        ),
        ("opennmt.models.TransformerRelative()", "lack the tensor .*relative_position"),
        ("opennmt.models.Transformer(num_layers=2, mha_bias=False)", "mha_bias=False"),
        ("opennmt.models.Transformer(ffn_activation=os.getenv)", "ffn_activation=os.getenv"),
        ("opennmt.models.Transformer(None, None, 2, 64, 4, 64)", "arguments of Transformer without their names"),
        ("opennmt.models.get_model_from_catalog('TransformerTiny', 3)", "arguments of TransformerTiny without their n"),
        ("opennmt.models.Transformer(num_heads=HEADS)", "computes num_heads=HEADS. Write its value"),
        ("opennmt.models.Transformer(num_heads=", "cannot be read as Python"),
        ("opennmt.models.LuongAttention()", "makes a model that kformer does not know"),
        ("opennmt.models.Transformer(num_layers=2)", "by the configuration"),  # another size than the tensors
    ],
)
def test_other_models_are_refused(folder, tmp_path, model, reason):
    described(folder, model)
    with pytest.raises(ValueError, match=reason):
        import_model(folder / "train.yml", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_with_its_arguments_is_read_and_the_file_is_not_run(folder, tmp_path):
    sizes = "num_layers=(2, 2), num_units=64, num_heads=2, ffn_inner_dim=64"
    touched = tmp_path / "touched"
    described(folder, f"opennmt.models.Transformer({sizes}); open({str(touched)!r}, 'w')")
    assert import_model(folder / "train.yml", tmp_path / "run").transformer_config().d_model == 64
    assert not touched.exists()


def test_the_vocabulary_of_another_model_is_refused(folder, tmp_path):
    (folder / "vocabulary.txt").write_text("<blank>\n<s>\n</s>\na\n")
    with pytest.raises(ValueError, match="has 4 lines. Expected: 500"):
        import_model(folder / "train.yml", tmp_path / "run")


def test_what_changes_nothing_is_passed_over(folder, tmp_path):
    tokenization = pyonmttok(mode="none", sp_nbest_size=64, sp_alpha=0.1)
    flat = {"type": tokenization["type"], **tokenization["params"]}
    fields = {"data__source_tokenization": tokenization, "data__target_tokenization": flat}
    path = changed(folder, params__sampling_topk=1, params__sampling_temperature=1.0, **fields)
    assert import_model(path, tmp_path / "run").decoding_config().beam_size == 4


def test_paths_are_those_from_the_current_folder_before_those_beside_the_file(folder, tmp_path, monkeypatch):
    """As `onmt-main` reads them."""
    (tmp_path / "vocabulary.txt").write_text("<blank>\n<s>\n</s>\na\n")  # of another model
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="has 4 lines. Expected: 500"):
        import_model(folder / "train.yml", tmp_path / "run")
    monkeypatch.chdir(folder)
    assert import_model(folder / "train.yml", tmp_path / "run").exists()


def test_the_folder_of_a_run_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match="Name the YAML file that it was trained by"):
        import_model(EXAMPLE / "run", tmp_path / "run")


@pytest.mark.slow
def test_a_language_model_may_search_by_these_rules_too():
    """Its prompt is read at once. Without a length penalty both rules find the same here."""
    prompts = ["And God said", "In the beginning"]
    answers = [
        LanguageModel.from_preset(
            "bible-english", DecodingConfig(beam_size=3, beam_rules=rules, length_penalty=0.0, max_length=16)
        )(prompts)
        for rules in ("paper", "opennmt")
    ]
    assert answers[0] == answers[1]
    assert all(answer.startswith(prompt) for answer, prompt in zip(answers[1], prompts, strict=True))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of OpenNMT-tf, in an environment of its own: it needs an old TensorFlow."""
    environment = tmp_path_factory.mktemp("opennmt-tf")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", *REQUIREMENTS], check=True)
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("search", "beams"), [("greedy", 1), ("beam", 4)])
def test_opennmt_tf_itself_answers_so(programs, tmp_path, name, search, beams):
    """What `expected.json` says is what the toolkit does with the checkpoint that lies there."""
    place = shutil.copytree(FOLDER / name, tmp_path / "place")
    expected = json.loads((place / "expected.json").read_text(encoding="utf-8"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(place / "pieces.model"))
    rows = (" ".join(processor.encode(line, out_type=str)) for line in expected["lines"])
    (place / "lines.pieces").write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = answer(place, programs, beams)
    assert found["texts"] == expected[search]["texts"]
    np.testing.assert_allclose(found["scores"], expected[search]["scores"], atol=TOLERANCE)
