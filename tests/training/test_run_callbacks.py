"""Which callbacks a run has, in which order, in the main process and in the others."""

import contextlib
import io
import time

import keras
import pytest
import rich.console

from kformer.config import MONITORS, TrainingConfig, TransformerConfig
from kformer.runs.folder import RunFolder
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import ProcessGroup
from kformer.training.run_callbacks import ActiveRun, Translations, list_callbacks
from kformer.training.run_setup import RunSetup


class OfUser(keras.callbacks.Callback):
    """A user's own."""


def listed(folder, rank=0, world_size=1, max_steps=7, seconds=0.0, **training):
    training = TrainingConfig(**training)
    setup = RunSetup(TransformerConfig(), training, None, None, None, resumed=False)
    group = ProcessGroup(rank, world_size, world_size, contextlib.nullcontext)
    console = rich.console.Console(file=io.StringIO())
    state, check_there = TrainingState(seconds=seconds), None if rank else lambda: None
    run = ActiveRun(RunFolder(folder), setup, group, None, state, console, check_there)
    monitor = MONITORS[training.monitor]
    budget = callbacks.Budget(max_steps, training.max_minutes, training.patience, monitor)
    translations = Translations(callbacks.TensorBoardLog(folder, state))
    together = None if world_size == 1 else callbacks.StopTogether(state, group.all_reduce_max)
    interrupt = callbacks.GracefulInterrupt(state, together=together)
    return list_callbacks(run, budget, interrupt, translations, [OfUser()])


def test_the_minutes_of_a_resumed_run_count(tmp_path):
    (budget,) = [
        each for each in listed(tmp_path, seconds=300.0, max_minutes=7.0) if type(each).__name__ == "TimeBudget"
    ]
    assert 300 <= time.monotonic() - budget.started < 400


def names(found):
    return " ".join(type(callback).__name__ for callback in found)


def test_a_run_without_budget(tmp_path):
    assert names(listed(tmp_path, max_steps=None)) == (
        "TrackState CheckFolder StopOnNaN GracefulInterrupt Validation ProgressBar TensorBoardLog OfUser NoticeStop "
        "CSVLog Checkpoint"
    )


def test_a_run_with_a_budget(tmp_path):
    assert names(listed(tmp_path, max_minutes=1.0)) == (
        "TrackState CheckFolder StepBudget StopOnNaN GracefulInterrupt "
        "Validation ProgressBar TensorBoardLog OfUser NoticeStop CSVLog UpdateTimer TimeBudget Checkpoint"
    )


def test_of_several_processes_the_main_one_writes_and_shows_and_all_stop_together(tmp_path):
    main, other = (listed(tmp_path, rank, 2, max_minutes=1.0) for rank in range(2))
    assert names(main) == (
        "TrackState CheckFolder StepBudget StopOnNaN GracefulInterrupt StopTogether "
        "Validation ProgressBar TensorBoardLog OfUser NoticeStop CSVLog UpdateTimer TimeBudget Checkpoint CompareLast"
    )
    assert names(other) == (
        "TrackState StepBudget StopOnNaN GracefulInterrupt StopTogether Validation TimeBudget Checkpoint CompareLast"
    )
    *_, validation, _, checkpoint, _ = other
    assert (validation.main, validation.keep_best.path, checkpoint.path) == (None, None, None)


@pytest.mark.parametrize(
    ("monitor", "log_key"), [("loss", "val_token_loss"), ("bleu", "val_bleu"), ("accuracy", "val_accuracy")]
)
def test_the_best_weights_are_those_of_the_monitor(tmp_path, monitor, log_key):
    (validation,) = (one for one in listed(tmp_path, monitor=monitor) if isinstance(one, callbacks.Validation))
    assert validation.keep_best.monitor.log_key == log_key


def test_a_checkpoint_is_written_as_often_as_is_asked(tmp_path):
    (checkpoint,) = (one for one in listed(tmp_path, checkpoint_minutes=3.0) if isinstance(one, callbacks.Checkpoint))
    assert checkpoint.minutes == 3.0
