"""Which callbacks a run has, in which order, in the main process and in the others."""

import contextlib
import io
import time

import keras
import pytest
import rich.console

from kformer.config import TrainingConfig, TransformerConfig
from kformer.runs.folder import RunFolder
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import ProcessGroup
from kformer.training.run_callbacks import ActiveRun, Validation, list_callbacks
from kformer.training.run_setup import RunSetup


class Scores(keras.callbacks.Callback):
    """Adds metrics."""


class Shows(keras.callbacks.Callback):
    """Shows translations."""


class OfUser(keras.callbacks.Callback):
    """A user's own."""


def listed(folder, rank=0, world_size=1, max_steps=7, seconds=0.0, **training):
    training = TrainingConfig(**training)
    setup = RunSetup(TransformerConfig(), training, None, None, None, resumed=False)
    group = ProcessGroup(rank, world_size, world_size, contextlib.nullcontext)
    console = rich.console.Console(file=io.StringIO())
    state, check_there = TrainingState(seconds=seconds), None if rank else lambda: None
    run = ActiveRun(RunFolder(folder), setup, group, None, state, console, check_there)
    validation = Validation([Scores()], [Shows()])
    return list_callbacks(run, max_steps, callbacks.GracefulInterrupt(run.state), validation, [OfUser()])


def test_the_minutes_of_a_resumed_run_count(tmp_path):
    (budget,) = [
        each for each in listed(tmp_path, seconds=300.0, max_minutes=7.0) if type(each).__name__ == "TimeBudget"
    ]
    assert 300 <= time.monotonic() - budget.started < 400


def names(found):
    return " ".join(type(callback).__name__ for callback in found)


def test_a_run_without_budget_and_averages(tmp_path):
    assert names(listed(tmp_path, max_steps=None)) == (
        "TrackState CheckFolder StopOnNaN GracefulInterrupt SaveBeforeValidation Scores KeepBest KeepLast ProgressBar "
        "Shows OfUser NoticeStop CSVLog Checkpoint"
    )


def test_with_averages_all_that_look_at_the_weights_see_them(tmp_path):
    assert names(listed(tmp_path, max_minutes=1.0, ema_decay=0.9)) == (
        "TrackState CheckFolder StepBudget StopOnNaN TimeBudget GracefulInterrupt "
        "SaveBeforeValidation UseEMA Scores KeepBest KeepLast ProgressBar Shows OfUser NoticeStop "
        "UseTrained CSVLog UpdateTimer Checkpoint"
    )


def test_of_several_processes_the_main_one_writes_and_shows_and_all_stop_together(tmp_path):
    main, other = (listed(tmp_path, rank, 2, max_minutes=1.0) for rank in range(2))
    assert names(main) == (
        "TrackState CheckFolder StepBudget StopOnNaN TimeBudget GracefulInterrupt StopTogether "
        "SaveBeforeValidation Scores KeepBest KeepLast ProgressBar Shows OfUser NoticeStop "
        "CSVLog UpdateTimer Checkpoint CompareLast"
    )
    assert names(other) == (
        "TrackState StepBudget StopOnNaN TimeBudget GracefulInterrupt StopTogether "
        "SaveBeforeValidation Scores KeepBest Checkpoint CompareLast"
    )
    assert [callback.path for callback in other[-3:-1]] == [None, None]


@pytest.mark.parametrize(
    ("monitor", "log_key"), [("loss", "val_token_loss"), ("bleu", "val_bleu"), ("accuracy", "val_accuracy")]
)
def test_the_best_weights_are_those_of_the_monitor(tmp_path, monitor, log_key):
    (keep_best,) = (one for one in listed(tmp_path, monitor=monitor) if isinstance(one, callbacks.KeepBest))
    assert keep_best.monitor.log_key == log_key
