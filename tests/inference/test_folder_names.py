"""Names of folders that TensorFlow takes for patterns, or cannot read: they work, or are refused before any work."""

import os
import pathlib
import shutil

import foreign_models
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.config import DecodingConfig
from kformer.export.lint import lint
from kformer.export.saved_model import export_saved_model
from kformer.inference import Model
from kformer.inference.saved_model_cache import saved_model_of
from kformer.runs.folder import RunFolder
from kformer.runtime.paths import readable_path
from kformer.serving.model_names import check_model_name
from kformer.serving.model_settings import Batching
from kformer.serving.servable import Servable

pytestmark = pytest.mark.tensorflow_only

LATIN_1 = os.fsdecode(b"a\xf1o")
UNREADABLE = {"b [v2]": r"\[", "a\\b": r"\\", LATIN_1: "bytes that are not UTF-8"}
READABLE = ["a*b", "a?b", "a b", "año", "a{x}", "a]b", "en:es", "-a", "a\nb"]


@pytest.fixture(scope="module")
def small_export(tmp_path_factory):
    """A SavedModel that loads at once. It has a variable, whose file TensorFlow looks for by a pattern."""
    module = tf.Module()
    module.score = tf.Variable(-2.0)
    folder = tmp_path_factory.mktemp("small")
    foreign_models.saved(
        folder / "1",
        lambda text: {"translation": tf.strings.upper(text), "score": tf.fill([tf.size(text)], module.score)},
        module,
    )
    return folder


@pytest.mark.parametrize("name", [*UNREADABLE, *READABLE])
def test_an_export_under_any_name_translates(small_export, tmp_path, name):
    folder = shutil.copytree(small_export, tmp_path / name)
    ((found,),) = Model(folder)([b"one two three"])
    assert (found.text, found.score) == ("ONE TWO THREE", -2.0)


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_server_serves_an_export_under_any_name(small_export, tmp_path, name):
    version = shutil.copytree(small_export / "1", tmp_path / name / "1")
    servable = Servable("numbers", 1, version, Batching(num_batch_threads=1), lambda *batch: None)
    servable.close()
    assert "serving_default" in servable.signatures


@pytest.mark.parametrize("name", UNREADABLE)
def test_lint_tells_that_a_server_cannot_load_from_the_path(small_export, tmp_path, name):
    version = shutil.copytree(small_export / "1", tmp_path / name)
    assert any("no server can load the model from there" in finding.problem for finding in lint(version))
    assert not any("no server can load" in finding.problem for finding in lint(small_export / "1"))


@pytest.mark.parametrize("name", [LATIN_1, pytest.param("b [v2]", marks=pytest.mark.slow)])
def test_the_cache_may_have_any_name(numbers_run, tmp_path, monkeypatch, name):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / name))
    assert Model(numbers_run)([b"one two"])[0][0].text == "dos uno"
    with saved_model_of(RunFolder(numbers_run), DecodingConfig(), 1) as kept:
        assert kept.is_relative_to(tmp_path / name)


@pytest.mark.parametrize(("name", "reason"), UNREADABLE.items())
def test_an_export_that_no_program_could_load_is_refused_before_any_work(
    numbers_run, numbers_translator, tmp_path, name, reason
):
    message = f"cannot be the folder of an export: its path holds .*{reason}.*Name another folder."
    with pytest.raises(ValueError, match=message):
        export_saved_model(numbers_translator, tmp_path / name)
    for command in (
        ["export", numbers_run, tmp_path / name],
        ["export", numbers_run, tmp_path / name / "model"],
        ["train", "--corpus", "cmudict", "--output", tmp_path / "run", "--export", tmp_path / name],
        ["demo", "--output", tmp_path / name],
    ):
        with pytest.raises(ValueError, match=message):
            CliRunner().invoke(app, [str(word) for word in command], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_tensorflow_still_needs_the_other_path(small_export, tmp_path):
    """The day when this fails, the detour is of no use any more."""
    version = shutil.copytree(small_export / "1", tmp_path / "b [v2]")
    with pytest.raises((tf.errors.OpError, OSError), match="Failed to find any matching files"):
        tf.saved_model.load(str(version))
    with readable_path(version) as path:
        assert "serving_default" in tf.saved_model.load(path).signatures


@pytest.mark.skipif(not pathlib.Path("/proc/self/fd").is_dir(), reason="Only Linux has this list of open files.")
def test_the_other_path_holds_nothing_open_afterwards(tmp_path):
    folder = tmp_path / "b [v2]"
    folder.mkdir()
    (folder / "file").touch()
    before = os.listdir("/proc/self/fd")
    with readable_path(folder) as path:
        assert os.listdir(path) == ["file"]
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("name", ["en:es", "a/b", "", ".", "..", LATIN_1, "a\nb"])
def test_a_name_that_cannot_stand_in_a_url_is_no_models_name(name):
    with pytest.raises(ValueError, match="A model's name stands in URLs"):
        check_model_name(name)


@pytest.mark.parametrize("name", ["numbers", "año", "b [v2]", "a b", "a?b#c%d"])
def test_other_names_are_quoted_in_urls(name):
    check_model_name(name)


def test_serve_refuses_the_name_of_a_folder_that_cannot_be_asked_for(numbers_export, tmp_path):
    base = shutil.copytree(numbers_export, tmp_path / "en:es")
    with pytest.raises(ValueError, match=r"Received: 'en:es'. Give another one by --name NAME."):
        CliRunner().invoke(app, ["serve", str(base)], catch_exceptions=False)
