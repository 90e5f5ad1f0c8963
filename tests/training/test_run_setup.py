"""What a new run writes before it trains."""

import pytest
import toy

from kformer.config import TrainingConfig
from kformer.runs.folder import RunFolder
from kformer.training.run_setup import resume_run, start_run

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
