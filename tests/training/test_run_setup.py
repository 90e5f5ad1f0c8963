"""What a new run writes before it trains."""

import dataclasses
import shutil

import pytest
import toy

from kformer.config import TrainingConfig
from kformer.files.checksums import DamagedFileError
from kformer.runs.folder import RunFolder
from kformer.training.new_run import start_run
from kformer.training.resumed_run import resume_run

pytestmark = pytest.mark.tensorflow_only


@pytest.mark.parametrize(
    ("monitor", "given", "written"), [("loss", None, 0), ("loss", 3, 3), ("bleu", None, 500), ("bleu", 3, 3)]
)
def test_translations_are_scored_where_they_tell_the_best_weights_or_where_asked(tmp_path, monitor, given, written):
    training = toy.TRAINING.replace(monitor=monitor, scored_sources=given)
    setup = start_run(RunFolder(tmp_path / "run"), toy.corpus(), toy.TRANSFORMER, training)
    assert setup.training.scored_sources == written
    assert setup.training == RunFolder(tmp_path / "run").training_config()


def test_what_the_machine_and_the_corpus_decide_is_written_and_no_change_when_resumed(tmp_path):
    run, given = RunFolder(tmp_path / "run"), toy.TRAINING.replace(precision="auto", scored_sources=None)
    setup = start_run(run, toy.corpus(), None, given)
    assert setup.training.precision in ("float32", "mixed_bfloat16")
    assert setup.transformer.source_vocab_size == setup.tokenizers[0].vocab_size
    again = resume_run(run, toy.corpus(), None, given.replace(max_steps=7))
    assert again.training == setup.training.replace(max_steps=7)
    assert again.training == run.training_config()
    assert TrainingConfig.load(run.training_file).max_steps == 7


def test_the_multiple_of_rows_stays_that_of_the_devices_that_the_run_began_on(tmp_path):
    run = RunFolder(tmp_path / "run")
    start_run(run, toy.corpus(), None, toy.TRAINING.replace(batch_size_multiple=6))
    assert resume_run(run, toy.corpus(), None, toy.TRAINING).training.batch_size_multiple == 6


def test_weights_that_two_vocabularies_cannot_share_are_no_change_when_resumed(tmp_path):
    """The sizes ask for one matrix of all words; the run has two vocabularies, so the target's alone is shared."""
    run, training = RunFolder(tmp_path / "run"), toy.TRAINING.replace(shared_vocabulary=False)
    setup = start_run(run, toy.corpus(), toy.TRANSFORMER, training)
    assert (toy.TRANSFORMER.embedding_tying, setup.transformer.embedding_tying) == ("all", "target")
    assert resume_run(run, toy.corpus(), toy.TRANSFORMER, training).transformer == setup.transformer
    with pytest.raises(ValueError, match=r"embedding_tying='none' \(the run has 'target'\)"):
        resume_run(run, toy.corpus(), toy.TRANSFORMER.replace(embedding_tying="none"), training)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("begun") / "run")
    start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    return run


@pytest.mark.parametrize(
    "name",
    [
        *("transformer.json", "training.json", "corpus.json", "samples.json", "environment.json"),
        "tokenizer/shared/model.spm",
    ],
)
def test_whatever_a_new_run_has_written_is_checked_when_it_goes_on(name, begun, tmp_path):
    run = RunFolder(shutil.copytree(begun.path, tmp_path / "run"))
    with (run.path / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DamagedFileError, match=f"{name} does not match its checksum"):
        resume_run(run, toy.corpus())
    with pytest.raises(DamagedFileError, match=f"{name} does not match its checksum"):
        run.check_files()


def test_every_budget_may_change_and_change_back(begun, tmp_path):
    run = RunFolder(shutil.copytree(begun.path, tmp_path / "run"))
    budget = {"max_epochs": 7, "max_steps": 8, "max_minutes": 9.0, "patience": 10, "keep_weights": 11}
    for training in (toy.TRAINING.replace(**budget, checkpoint_minutes=12.0), toy.TRAINING):
        resume_run(run, toy.corpus(), training=training)
        assert run.training_config() == training.replace(precision="float32", scored_sources=0)


def test_files_of_others_in_the_folder_are_no_part_of_the_run(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    start_run(RunFolder(tmp_path), toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    (tmp_path / "mine.json").unlink()
    assert "mine.json" not in (tmp_path / "SHA256SUMS").read_text()
    assert resume_run(RunFolder(tmp_path), toy.corpus()).resumed


def test_a_pair_that_moved_from_training_to_validation_makes_another_corpus(begun):
    train, valid = toy.corpus().train, toy.corpus().valid
    moved = dataclasses.replace(toy.corpus(), train=train[:-1], valid=[train[-1], *valid])
    with pytest.raises(ValueError, match="was trained on another corpus"):
        resume_run(begun, moved)


@pytest.mark.parametrize(
    "killed_at", ["create.save_tokenizers", "folder.RunFolder.write_environment", "folder.RunFolder.note_files"]
)
def test_a_run_killed_while_it_begins_can_be_begun_again(killed_at, tmp_path, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(f"kformer.runs.{killed_at}", killed)
        with pytest.raises(KeyboardInterrupt):
            start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    assert not run.exists()
    start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    resume_run(run, toy.corpus())
