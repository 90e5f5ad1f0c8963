"""Marian models of Hugging Face: a small one, and what transformers answered with it."""

import json
import shutil

import numpy as np
import pytest
from importing.examples import FOLDER, TOLERANCE, Example

from kformer.importing.run import import_model
from kformer.tasks.translator import Translator

pytestmark = pytest.mark.tensorflow_only


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return Example("marian", tmp_path_factory.mktemp("runs"))


def test_texts_have_the_same_ids(marian):
    assert marian.ids() == marian.expected["ids"]


def test_logits_are_the_same(marian):
    np.testing.assert_allclose(marian.translation_logits(), marian.expected["logits"], atol=TOLERANCE)


def test_greedy_search_finds_the_same_translations(marian):
    assert marian.answers(Translator, beam_size=1)[0] == marian.expected["greedy"]


def test_beam_search_finds_the_same_translations(marian):
    """The search of generation_config.json: four beams, which end at 23 tokens, and without padding."""
    texts, scores = marian.answers(Translator)
    assert texts == marian.expected["beam"]
    np.testing.assert_allclose(scores, marian.expected["beam_scores"], atol=TOLERANCE)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / "marian", tmp_path / "folder")


def edit(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("normalize_before", True), ("activation_function", "mish"), ("decoder_ffn_dim", 64), ("encoder_layers", None)],
)
def test_what_cannot_be_represented_is_refused_by_its_name(folder, tmp_path, field, value):
    edit(folder, **{field: value})
    with pytest.raises(ValueError, match=f"{field}.* in .*config.json"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
