"""A run folder's model is made a SavedModel once, and again when anything changes that decides what it computes."""

import os
import pathlib
import shutil
import subprocess
import sys
import time
import types

import pytest
import tensorflow as tf

from kformer.config import DecodingConfig
from kformer.files.cache import cache_folder
from kformer.files.checksums import note_checksums
from kformer.inference import Model, saved_model_cache
from kformer.inference.fingerprint import fingerprint
from kformer.inference.model import threads_for
from kformer.inference.saved_model_cache import saved_model_of
from kformer.runs.folder import RunFolder
from kformer.text.batches import BATCH_SIZE

pytestmark = pytest.mark.tensorflow_only

GREEDY = DecodingConfig(beam_size=1)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "translators"


@pytest.fixture
def run(numbers_run, tmp_path):
    """A copy of the run that a test may change."""
    return RunFolder(shutil.copytree(numbers_run, tmp_path / "run"))


@pytest.fixture
def made(monkeypatch):
    """In the place of what takes long: a folder with one file. Gives what was asked for."""
    asked = []

    def save_for_this_machine(predictor, folder, n_best, signatures):
        asked.append((predictor.decoding, n_best, *signatures))
        (folder / "saved_model.pb").write_text("graph")
        note_checksums(folder, [folder / "saved_model.pb"])

    monkeypatch.setattr("kformer.export.saved_model.save_for_this_machine", save_for_this_machine)
    return asked


def kept(run, decoding=GREEDY, n_best=1, signatures=()):
    with saved_model_of(run, decoding, n_best, signatures) as path:
        assert (path / "saved_model.pb").read_text() == "graph"
        return path


def test_signatures_beside_the_default_are_made_where_they_are_needed(cache, run, made):
    assert kept(run) != kept(run, signatures=["translate_with_options"])
    assert made[0][1:] == (1,)
    assert made[1][1:] == (1, "translate_with_options")


def test_it_is_made_once(cache, run, made):
    first, again = kept(run), kept(run)
    assert first == again
    assert first.parent == cache
    assert made == [(run.decoding_config(GREEDY), 1)]


def test_another_search_or_number_of_hypotheses_makes_another_one(cache, run, made):
    wide = DecodingConfig(beam_size=4)
    assert len({kept(run), kept(run, wide), kept(run, wide, 2), kept(run, wide.replace(length_penalty=1.0))}) == 4
    assert [n_best for _, n_best in made] == [1, 1, 2, 1]


@pytest.mark.parametrize("changed", ["kformer/layers/cache.py", "tensorflow"])
def test_another_program_or_library_makes_another_one(cache, run, made, monkeypatch, changed):
    before = kept(run)
    if changed == "tensorflow":
        monkeypatch.setattr(saved_model_cache.importlib.metadata, "version", lambda name: "99")
    else:
        monkeypatch.setattr(saved_model_cache, "_program", lambda: [(changed, 1, 1)])
    assert kept(run) != before


def test_other_weights_make_another_one(cache, run, made):
    before = kept(run)
    shutil.copy(sorted(run.kept_weights())[0], run.best_weights_file)
    run.note_files()
    assert kept(run) != before


def test_each_file_on_which_answers_depend_tells_models_apart(run):
    tokenizer = next(file for file in sorted(run.tokenizer_folder.rglob("*")) if file.is_file())
    files = [run.transformer_file, run.training_file, run.corpus_file, run.weights_file(), tokenizer]
    found = [fingerprint(run)]
    for file in files:
        file.write_bytes(file.read_bytes() + b" ")
        found.append(fingerprint(run))
    assert len({*found}) == 1 + len(files)
    run.log_file.write_text("Answers do not depend on it.")
    assert fingerprint(run) == found[-1]


def test_a_damaged_one_is_made_again(cache, run, made):
    path = kept(run)
    (path / "saved_model.pb").write_text("grape")
    assert kept(run) == path
    assert len(made) == 2


def test_where_nothing_can_be_kept_it_is_made_for_this_time(tmp_path, run, made, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "file"))
    path = kept(run)
    assert not path.exists()
    assert "kformer: the SavedModel cannot be stored in the cache: " in capsys.readouterr().err


def test_where_the_disk_is_full_it_is_made_elsewhere_for_this_time(cache, run, monkeypatch, capsys):
    """TensorFlow's error is no OSError."""
    save = tf.saved_model.save

    def full(served, path, signatures):
        if cache in pathlib.Path(path).parents:
            raise tf.errors.ResourceExhaustedError(None, None, f"{path}/variables; No space left on device")
        save(served, path, signatures=signatures)

    monkeypatch.setattr(tf.saved_model, "save", full)
    assert Model(run.path, GREEDY)([b"one two"])[0][0].text == "dos uno"
    said = capsys.readouterr().err
    assert said.startswith(
        "kformer: the SavedModel cannot be stored in the cache: No space left on device. The next ca"
    )
    assert len(said.splitlines()) == 1
    assert [*cache.iterdir()] == []


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_where_there_is_no_home_it_is_made_for_this_time(tmp_path, run, made, monkeypatch, capsys, home):
    for name in ("KFORMER_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # a user without an entry
    monkeypatch.chdir(tmp_path)
    assert not kept(run).exists()
    said = capsys.readouterr().err
    assert "cannot be stored in the cache: there is no home folder: HOME is not set to an absolute path. " in said
    assert "KFORMER_CACHE" in said
    assert len(said.splitlines()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("fails", ["os.utime", "pathlib.Path.iterdir"])
def test_a_cache_that_can_only_be_read_is_used(cache, run, made, monkeypatch, capsys, fails):
    """As that of another user, or on a disk that is mounted for reading."""

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    first = kept(run)
    monkeypatch.setattr(fails, refuse)
    assert kept(run) == first
    assert len(made) == 1
    assert capsys.readouterr().err == ""


def test_without_a_folder_for_temporary_files_the_remedy_is_named(tmp_path, run, made, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "file")])
    with pytest.raises(FileNotFoundError, match="no folder for temporary files.* Set TMPDIR to a folder that can be"):
        kept(run)


def test_a_kept_one_that_cannot_be_loaded_is_named(cache, run, made):
    """Its checksums are right, but it is no SavedModel."""
    path = kept(run, run.decoding_config(GREEDY))
    with pytest.raises(ValueError, match=f"{path} cannot be loaded: .* Remove that folder: it is made again."):
        Model(run.path, GREEDY).load()


def test_the_oldest_are_deleted_when_nobody_has_used_them_for_a_day(cache, run, made, monkeypatch):
    monkeypatch.setattr(saved_model_cache, "MOST_KEPT", 2)
    paths = [kept(run, GREEDY.replace(min_length=number)) for number in range(4)]
    assert all(path.is_dir() for path in paths)
    yesterday = time.time() - 25 * 3600
    for age, path in enumerate(paths):
        os.utime(path, (yesterday + age, yesterday + age))
    assert kept(run, GREEDY.replace(min_length=0)) == paths[0]  # It is now the one that was used last.
    assert [path.is_dir() for path in paths] == [True, False, False, True]


def test_what_another_process_makes_is_not_deleted(cache, run, made, monkeypatch):
    """The names of such folders begin with a point."""
    monkeypatch.setattr(saved_model_cache, "MOST_KEPT", 0)
    others, yesterday = [cache / ".in-work", cache / "made"], time.time() - 25 * 3600
    for path in others:
        path.mkdir(parents=True)
        os.utime(path, (yesterday, yesterday))
    path = kept(run)
    assert [path.is_dir() for path in (*others, path)] == [True, False, True]


def test_the_cache_lies_where_the_system_keeps_such_folders(monkeypatch, tmp_path):
    monkeypatch.delenv("KFORMER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder("translators") == tmp_path / "kformer" / "translators"


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_second_time_a_command_needs_no_python_tensorflow(cache, numbers_run):
    command = [sys.executable, "-X", "importtime", "-m", "kformer", "translate", str(numbers_run), "--n-best", "2"]
    answers = [subprocess.run(command, input=b"one two\n", capture_output=True, check=True) for _ in range(2)]
    assert answers[0].stdout == answers[1].stdout
    assert answers[0].stdout.startswith(b"0 ||| dos uno ||| ")
    assert [b"tensorflow" in {line.split()[-1] for line in answer.stderr.splitlines()} for answer in answers] == [
        True,
        False,
    ]


def test_many_texts_have_one_thread_each_and_few_have_all():
    assert threads_for(BATCH_SIZE + 1) == 1
    assert threads_for(BATCH_SIZE) is None


def test_the_number_of_threads_reaches_the_saved_model(cache, run, made, monkeypatch):
    asked = []

    def saved_model(path, threads, trust):
        asked.append((path.name, threads))
        return types.SimpleNamespace(text_input="text")

    monkeypatch.setattr("kformer.inference.load.SavedModel", saved_model)
    Model(run.path, GREEDY, threads_per_operation=1).load()
    assert asked == [(pathlib.Path(kept(run, run.decoding_config(GREEDY))).name, 1)]
