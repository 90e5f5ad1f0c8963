import contextlib
import csv
import io
import itertools
import math
import os
import re
import signal
import subprocess
import sys
import threading

import h5py
import keras
import numpy as np
import pytest
import rich.console

from kformer.config import MONITORS, TrainingConfig
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss
from kformer.runs.weights import load_weights_file as load_weights
from kformer.training.callbacks import (
    Budget,
    CheckFolder,
    Checkpoint,
    CSVLog,
    GracefulInterrupt,
    InMainProcess,
    Interrupted,
    KeepBest,
    NoticeStop,
    ProgressBar,
    StepBudget,
    StopOnNaN,
    TensorBoardLog,
    TimeBudget,
    TrackState,
    UpdateTimer,
    Validation,
    update_timer,
)
from kformer.training.callbacks.kept_weights import keep_last
from kformer.training.checkpoints import TrainingState, load_checkpoint, save_checkpoint
from kformer.training.optimizers import build_optimizer, update_count
from kformer.training.plan import describe_minutes

IDS = np.array([[1, 2, 3], [4, 5, 0]], "int32")  # 5 tokens


def tiny_model(accumulation=1, ema_decay=0.0, **training):
    layers = [keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 3), keras.layers.Dense(7)]
    model = keras.Sequential(layers)
    config = TrainingConfig(warmup_steps=5, gradient_accumulation_steps=accumulation, ema_decay=ema_decay, **training)
    metrics = [TokenLoss(), TokenAccuracy(), Perplexity(), TokenCount()]
    model.compile(build_optimizer(8, config), LabelSmoothedCrossEntropy(), metrics=metrics)
    model.run_eagerly = keras.backend.backend() == "tensorflow"  # A graph takes longer to trace than these steps.
    return model


def endless():
    while True:
        yield IDS, IDS


def fit(model, callbacks, epochs=1, steps=5, **arguments):
    return model.fit(
        endless(), steps_per_epoch=steps, epochs=epochs, callbacks=callbacks, shuffle=False, verbose=0, **arguments
    ).history


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class AtBatch(keras.callbacks.Callback):
    """Runs `action` before every batch from number `first` on, counted over the epochs."""

    def __init__(self, action, first=0):
        super().__init__()
        self.action, self.first, self.batches = action, first, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.batches += 1
        if self.batches > self.first:
            self.action()

    def on_train_batch_end(self, batch, logs=None):
        """As this hook does not say `async_safe`, Keras ends every batch before it begins the next, on JAX too."""


def validation(path, state, patience=10, monitor=MONITORS["loss"], checkpoint=None, **arguments):
    """The callback that validates and keeps the best weights in `path`."""
    checkpoint = Checkpoint(None, state) if checkpoint is None else checkpoint
    budget = Budget(patience=patience, monitor=monitor)
    return Validation(state, checkpoint, KeepBest(path, state, monitor), budget, **arguments)


def recorded_console(terminal=False):
    return rich.console.Console(file=io.StringIO(), force_terminal=terminal, width=200)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_budget_stops_after_the_last_update(accumulation):
    model, state = tiny_model(accumulation), TrainingState()
    fit(model, [TrackState(state), StepBudget(state, max_steps=4)], epochs=7)
    assert (state.step, state.batch, state.end_reason) == (4, 4 * accumulation, "the budget of 4 steps is spent")
    fit(model, [TrackState(state)], steps=2)  # with accumulation, 2 of 3 micro-batches
    fit(model, [TrackState(state), StepBudget(state, max_steps=7)], epochs=7)  # resumed: all of these count
    assert (state.step, state.batch) == (7, 7 * accumulation)
    assert update_count(model.optimizer) == 7


def test_budget_stops_after_the_batch_in_which_time_runs_out():
    clock, model, state = FakeClock(), tiny_model(), TrainingState()

    def ten_seconds_pass():
        clock.now += 10

    fit(model, [AtBatch(ten_seconds_pass), TimeBudget(state, max_minutes=0.5, clock=clock)], epochs=7)
    assert (int(model.optimizer.iterations), state.end_reason) == (3, "the budget of 0.5 minutes is spent")


def test_a_run_whose_time_runs_out_in_a_validation_trains_and_validates_no_more():
    clock, model, state = FakeClock(), tiny_model(), TrainingState()
    hours_pass = keras.callbacks.LambdaCallback(on_test_begin=lambda logs: setattr(clock, "now", clock.now + 7200))
    budget = TimeBudget(state, max_minutes=60, clock=clock)
    history = fit(model, [hours_pass, budget], epochs=7, steps=2, validation_data=(IDS, IDS))
    assert (int(model.optimizer.iterations), len(history["val_loss"])) == (2, 1)
    assert state.end_reason == "the budget of 60 minutes is spent"


def test_budget_counts_from_a_given_start():
    clock, model = FakeClock(), tiny_model()
    fit(model, [TimeBudget(TrainingState(), max_minutes=1, started=clock.now - 61, clock=clock)], epochs=7)
    assert int(model.optimizer.iterations) == 1


def told_updates(max_steps=None, **changes):
    """What is told of a run whose first update takes 20 seconds, and each further one 2 seconds."""
    clock, state, told = FakeClock(), TrainingState(**changes), []

    def an_update():
        clock.now += 20 if clock.now == 1000 else 2

    def tell(seconds_per_update):
        told.append(describe_minutes(training, state, seconds_per_update, max_steps))

    training = TrainingConfig(warmup_steps=800, max_minutes=5)
    timer = UpdateTimer(tell, seconds=5, clock=clock)
    fit(tiny_model(), [AtBatch(an_update), TrackState(state, clock=clock), timer], epochs=2, steps=5)
    return told


def test_the_updates_that_minutes_hold_are_told_soon_and_once():
    # After three updates of 2 s, 26 of 300 s have passed: 4 updates are done, and 274 / 2 are to come.
    (told,) = told_updates()
    assert told.startswith(
        "At the speed of the first updates, about 141 updates fit into 5 minutes; the warm-up takes 800,"
    )
    assert "reaches 18% of its peak. Little is learned" in told


def test_the_updates_before_a_resume_count_among_the_expected_ones():
    # 100 updates and 200 s were before: 226 of 300 s have passed at update 104, and 74 / 2 are to come.
    (told,) = told_updates(step=100, batch=100, seconds=200.0)
    assert "about 141 updates fit into 5 minutes; " in told


def test_minutes_that_hold_more_than_the_budget_of_steps_are_not_told():
    assert told_updates(max_steps=141) == [""]
    assert told_updates(max_steps=142) == told_updates()


def test_micro_batches_are_not_timed_as_updates():
    clock, measured = FakeClock(), []

    def two_seconds_pass():
        clock.now += 2

    # Without the first batch, three updates of two batches of 2 s.
    timer = UpdateTimer(measured.append, seconds=5, clock=clock)
    fit(tiny_model(accumulation=2), [AtBatch(two_seconds_pass), timer], epochs=1, steps=10)
    assert measured == [4.0]


def test_batches_that_xla_compiles_are_not_taken_for_slow_updates():
    clock, measured, seconds = FakeClock(), [], iter([40, 30, 2, 30, 2, 2, 30, 2, 2, 2])

    def time_passes():
        clock.now += next(seconds)

    fit(tiny_model(), [AtBatch(time_passes), UpdateTimer(measured.append, seconds=98, clock=clock)], epochs=1, steps=10)
    assert measured == [2.0]


def test_one_slow_update_is_not_the_speed_where_updates_take_long():
    clock, measured, seconds = FakeClock(), [], iter([9, 30, 2, 2])

    def time_passes():
        clock.now += next(seconds)

    fit(tiny_model(), [AtBatch(time_passes), UpdateTimer(measured.append, seconds=1, clock=clock)], epochs=1, steps=4)
    assert measured == [2]


@pytest.mark.parametrize(("compiled", "seconds"), [(True, 30.0), (False, 5.0)])
def test_updates_are_timed_for_longer_where_xla_compiles_them(compiled, seconds, monkeypatch):
    monkeypatch.setattr(update_timer, "compiled_by_xla", lambda: compiled)
    assert UpdateTimer(print).seconds == seconds


def test_the_first_reason_to_end_is_kept():
    model, state = tiny_model(), TrainingState()
    fit(model, [StepBudget(state, max_steps=3), TimeBudget(state, max_minutes=1, started=0)], epochs=7)
    assert state.end_reason == "the budget of 1 minute is spent"  # at the first batch
    model, state = tiny_model(), TrainingState()
    fit(model, [StepBudget(state, max_steps=1), TimeBudget(state, max_minutes=1, started=0)], epochs=7)
    assert state.end_reason == "the budget of 1 step is spent"


@pytest.fixture
def sigterm():
    """How often SIGTERM has reached this process, which goes on."""
    received = []
    former = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, former)


def fit_until_a_signal(folder, *more, number_of_epochs=7, **arguments):
    """A `fit` with what saves a run and leaves it at a signal: the model and its state."""
    model, state = tiny_model(), TrainingState()
    checkpoint = Checkpoint(folder, state)
    with GracefulInterrupt(state, [signal.SIGUSR1]) as interrupt, contextlib.suppress(Interrupted):
        callbacks = [TrackState(state), interrupt, validation(None, state, checkpoint=checkpoint), *more, checkpoint]
        fit(model, callbacks, epochs=number_of_epochs, validation_data=(IDS, IDS), **arguments)
    return model, state


def saved(folder):
    """The state in a checkpoint, and the weights."""
    model = tiny_model()
    model.evaluate(IDS, IDS, verbose=0)
    return load_checkpoint(folder / "checkpoint.npz", model), model.get_weights()


def send(number, when=lambda: True):
    return lambda *arguments: when() and os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_the_first_signal_saves_the_run_and_leaves_fit_before_the_next_batch(number, sigterm, capfd, tmp_path):
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    former = [signal.getsignal(each) for each in handled]
    validated = keras.callbacks.LambdaCallback()
    validated.on_test_begin = lambda logs: pytest.fail("A validation here is none of an undisturbed run.")
    model, state = fit_until_a_signal(tmp_path, AtBatch(send(number), first=2), validated)
    assert state.end_reason == "interrupted"
    last, weights = saved(tmp_path)
    assert (last.step, last.batch, last.epoch_batch, last.validating) == (2, 2, 2, False)
    for ours, theirs in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [signal.getsignal(each) for each in handled] == former
    # Who sends SIGTERM wants the process to end, which it does where nobody says otherwise.
    assert sigterm == ([number] if number == signal.SIGTERM else [])
    assert "kformer: saving the run after this step. A second" in capfd.readouterr().err


def test_a_validation_is_left_at_a_signal_and_its_beginning_is_saved(tmp_path, capfd):
    late, ended = keras.callbacks.Callback(), []
    late.on_test_begin = send(signal.SIGINT)
    late.on_epoch_end = lambda epoch, logs: ended.append(epoch)
    _, state = fit_until_a_signal(tmp_path, late)
    assert (state.end_reason, ended) == ("interrupted", [])
    last, _ = saved(tmp_path)
    assert (last.step, last.epoch_batch, last.epoch, last.validating) == (5, 5, 0, True)
    assert last.metrics[-1] == 5 * 5  # the target tokens of training, not of the validation
    assert "kformer: saving the run after this batch of the validation." in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_signal_at_the_end_of_an_epoch_ends_the_run_after_it(tmp_path):
    late = keras.callbacks.Callback()
    late.on_epoch_end = send(signal.SIGINT)
    fit_until_a_signal(tmp_path, late)
    last, _ = saved(tmp_path)
    assert (last.step, last.epoch_batch, last.epoch, last.validating) == (5, 0, 1, False)


def test_a_signal_before_the_first_batch_is_not_lost():
    model, state = tiny_model(), TrainingState()
    with GracefulInterrupt(state) as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            fit(model, [interrupt, Checkpoint(None, state)], epochs=7)
    assert (int(model.optimizer.iterations), state.end_reason) == (0, "interrupted")


def test_signal_in_the_middle_of_a_step_harms_nothing(tmp_path):
    # On JAX the step has used up the weights by then, and Keras has not taken the new ones yet.
    model, state = tiny_model(), TrainingState()
    fit(model, [], steps=1)
    train_step = model.train_function

    def interrupted_step(*arguments):
        result = train_step(*arguments)
        if next(batches) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    batches, model.train_function = itertools.count(), interrupted_step
    with GracefulInterrupt(state) as interrupt, pytest.raises(Interrupted):
        fit(model, [interrupt, Checkpoint(tmp_path, state)], epochs=7)
    assert saved(tmp_path)[0].step == 1 + 3
    assert all(np.isfinite(weight).all() for weight in saved(tmp_path)[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_stops_at_once(number, sigterm):
    former = signal.getsignal(signal.SIGINT)
    model, state, went_on = tiny_model(), TrainingState(), []

    def twice():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        went_on.append(True)

    with pytest.raises(KeyboardInterrupt), GracefulInterrupt(state) as interrupt:
        fit(model, [interrupt, AtBatch(twice, first=2)], epochs=7)
    assert not went_on
    assert signal.getsignal(signal.SIGINT) is former
    assert sigterm == ([number] if number == signal.SIGTERM else [])


@pytest.mark.tensorflow_only
def test_sigterm_ends_a_process_that_trains_in_pytest(tmp_path):
    """In a process of its own, which must not outlive the signal that it gets while a test trains."""
    (tmp_path / "test_training.py").write_text(
        "import os, signal\n"
        "from kformer.training.callbacks import GracefulInterrupt\n"
        "from kformer.training.checkpoints import TrainingState\n\n"
        "def test_that_trains():\n"
        "    with GracefulInterrupt(TrainingState()):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == -signal.SIGTERM


PRINTS = """
import os, signal
from kformer.training.callbacks import GracefulInterrupt
from kformer.training.checkpoints import TrainingState
with GracefulInterrupt(TrainingState()):
    os.kill(os.getpid(), signal.SIGTERM)
    print("translations of the last validation")
"""


@pytest.mark.tensorflow_only
def test_what_was_printed_arrives_before_sigterm_ends_the_process():
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PRINTS]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=buffered)
    assert (answer.returncode, answer.stdout) == (-signal.SIGTERM, "translations of the last validation\n")


def test_sigterm_ends_a_process_that_was_started_without_an_output(monkeypatch, sigterm):
    monkeypatch.setattr(sys, "stdout", None)
    with GracefulInterrupt(TrainingState()):
        os.kill(os.getpid(), signal.SIGTERM)
    assert sigterm == [signal.SIGTERM]


def test_a_signal_that_is_named_twice_gets_its_former_handler_back(sigterm):
    former = signal.getsignal(signal.SIGTERM)
    with GracefulInterrupt(TrainingState(), [signal.SIGTERM, signal.SIGINT]):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (signal.getsignal(signal.SIGTERM), sigterm) == (former, [signal.SIGTERM])


def test_where_the_system_ignores_sigterm_the_process_exits_after_the_run_is_saved(monkeypatch, capfd):
    """As in the first process of a container."""
    former = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(signal, "raise_signal", lambda number: None)
    try:
        with pytest.raises(SystemExit) as end, GracefulInterrupt(TrainingState(step=7)):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert end.value.code == 128 + 15
    assert "kformer: the training ended at update 7, and SIGTERM is raised again." in capfd.readouterr().err


def test_a_terminal_that_is_gone_does_not_keep_the_run_from_being_saved(monkeypatch, tmp_path):
    def gone(*arguments):
        raise BrokenPipeError

    monkeypatch.setattr("os.write", gone)
    fit_until_a_signal(tmp_path, AtBatch(send(signal.SIGINT), first=2))
    assert saved(tmp_path)[0].step == 2


def test_a_signal_after_a_validation_says_that_a_step_is_in_hand(capfd, tmp_path):
    fit_until_a_signal(tmp_path, AtBatch(send(signal.SIGINT), first=7))  # batch 2 of the second epoch
    assert "kformer: saving the run after this step. A second" in capfd.readouterr().err


@pytest.mark.parametrize("content", [b"no,header\n1,2\n", b"epoch,loss\n,2\n", b"epoch\xff\n1\n"])
def test_a_damaged_log_is_named(content, tmp_path):
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(ValueError, match="log.csv is damaged: .* Move it away: the run continues as before"):
        fit(tiny_model(), [CSVLog(tmp_path / "log.csv", TrainingState(epoch=1))])


def test_checkpoints_are_as_far_apart_as_asked(monkeypatch, tmp_path):
    clock, state, written = FakeClock(), TrainingState(), []

    def fifty_seconds_pass():
        clock.now += 50

    def noted(path, model, state):
        written.append(state.batch)

    monkeypatch.setattr("kformer.training.callbacks.checkpoint.save_checkpoint", noted)
    fit(tiny_model(), [AtBatch(fifty_seconds_pass), Checkpoint(tmp_path, state, minutes=2, clock=clock)], steps=9)
    # 150 s are more than two minutes. The clock goes on before a batch, so the first one counts 50 s already.
    assert written == [2, 5, 8, 0]  # and at the end of the epoch, which nothing here counts


def test_the_time_to_the_next_checkpoint_begins_anew_after_an_epoch(monkeypatch, tmp_path):
    clock, state, written = FakeClock(), TrainingState(), []

    def fifty_seconds_pass():
        clock.now += 50

    def noted(path, model, state):
        written.append((state.epoch, state.epoch_batch))

    monkeypatch.setattr("kformer.training.callbacks.checkpoint.save_checkpoint", noted)
    tick, track = AtBatch(fifty_seconds_pass), TrackState(state, clock=clock)
    fit(tiny_model(), [tick, track, Checkpoint(tmp_path, state, minutes=2, clock=clock)], epochs=2, steps=4)
    # Within the first epoch at its third batch, 150 s after the start. Batch 3 of the next is 150 s after its start.
    assert written == [(0, 2), (1, 0), (1, 2), (2, 0)]


def test_the_folder_is_looked_at_before_each_batch_each_validation_and_the_end_of_an_epoch():
    looked = []
    where = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: looked.append(f"batch {batch}"),
        on_epoch_end=lambda epoch, logs: looked.append("end"),
    )
    where.on_test_begin = lambda logs: looked.append("validation")
    check = CheckFolder(lambda: looked.append("look"))
    fit(tiny_model(), [check, where], steps=2, validation_data=(IDS, IDS))
    assert looked == ["look", "batch 0", "look", "batch 1", "look", "validation", "look", "end"]


def test_a_validation_that_a_resumed_run_has_finished_is_over():
    state = TrainingState(batch=5, epoch_batch=5, validating=True)
    track = TrackState(state)
    track.set_model(tiny_model())
    track.on_train_begin()
    track.on_epoch_begin(0)
    track.on_epoch_end(0)
    assert (state.epoch, state.epoch_batch, state.validating) == (1, 0, False)


def test_tokens_per_second_count_the_time_before_a_resume():
    clock, state = FakeClock(), TrainingState(batch=5, epoch_batch=5, epoch_seconds=10.0)

    def two_seconds_pass():
        clock.now += 2

    history = fit(tiny_model(), [AtBatch(two_seconds_pass), TrackState(state, clock=clock)], steps=5)
    assert history["tokens_per_second"] == [5 * 5 / (10 + 5 * 2)]


def test_interrupt_does_nothing_outside_the_main_thread():
    former, seen = signal.getsignal(signal.SIGINT), []

    def in_thread():
        with GracefulInterrupt(TrainingState()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    assert seen == [former]


class StopsTraining(keras.callbacks.Callback):
    """Does what Keras's own callbacks do to end `fit`, in one of their hooks."""

    def __init__(self, hook):
        super().__init__()
        setattr(self, hook, self.stop)

    def stop(self, *position, logs=None):
        self.model.stop_training = True


@pytest.mark.parametrize(
    ("hook", "updates"),
    [("on_train_batch_begin", 1), ("on_train_batch_end", 1), ("on_test_end", 5), ("on_epoch_end", 5)],
)
def test_a_callback_that_knows_nothing_of_runs_gives_a_reason_too(hook, updates):
    model, state, callback = tiny_model(), TrainingState(), StopsTraining(hook)
    fit(model, [callback, NoticeStop(state, callback)], epochs=7, validation_data=(IDS, IDS))
    assert state.end_reason == "the callback StopsTraining stopped the training"
    assert int(model.optimizer.iterations) == updates


def test_keras_runs_ahead_unless_a_callback_looks_at_the_ends_of_batches():
    class OfOldName(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            pass

    state = TrainingState()
    assert not NoticeStop(state, OfOldName()).async_safe
    assert NoticeStop(state, keras.callbacks.EarlyStopping()).async_safe
    assert not NoticeStop(state, keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)).async_safe


def keep_best(losses, path, state, patience):
    """What is kept after epochs with these losses; the weights are set to the epoch's number."""
    model = tiny_model()
    callback = validation(path, state, patience)
    callback.set_model(model)
    model.stop_training = False
    for epoch, loss in enumerate(losses):
        for variable in model.weights:
            variable.assign(keras.ops.full(variable.shape, epoch))
        callback.on_epoch_end(epoch, {"val_token_loss": loss})
        if model.stop_training:
            return epoch
    return None


def test_keep_best_saves_the_best_and_stops_after_patience(tmp_path):
    state, path = TrainingState(), tmp_path / "best.weights.h5"
    assert keep_best([5.0, 6.0, 3.0, 4.0, float("nan"), 1.0], path, state, patience=2) == 4
    assert (state.best, state.waited) == (3.0, 2)
    assert state.end_reason == "2 validations brought no better loss"
    model = tiny_model()  # compiled, which Keras's own load_weights would refuse
    load_weights(path, model)
    assert {float(value) for weights in model.get_weights() for value in weights.flat} == {2.0}


@pytest.mark.parametrize(
    ("monitor", "values", "best", "kept", "waited"),
    [
        # 3.0 counts; 2.75 and 2.5 are better by no more than 0.5 than 3.0; 2.25 is; 2.0 is none again.
        ("loss", [3.0, 2.75, 2.5, 2.25, 2.0], 2.0, [0, 1, 2, 3, 4], [0, 1, 2, 0, 1]),
        ("chrf", [30.0, 30.5, 30.25, 30.75, 29.0], 30.75, [0, 1, 3], [0, 1, 2, 0, 1]),
        # As long as it is 0.0, which says nothing, everything better counts.
        ("bleu", [0.0, 0.25, 0.5, 1.0], 1.0, [0, 1, 2, 3], [0, 0, 1, 0]),
    ],
)
def test_a_small_improvement_is_kept_and_does_not_count_for_patience(monitor, values, best, kept, waited, tmp_path):
    state, model, found = TrainingState(), tiny_model(), []
    keep = KeepBest(tmp_path / "best.weights.h5", state, MONITORS[monitor], least_improvement=0.5)
    for value in values:
        state = keep.state
        is_best = keep(model, {MONITORS[monitor].log_key: value})
        found.append((is_best, state.waited))
        # A resumed run knows what counted.
        save_checkpoint(tmp_path / "checkpoint.npz", model, state)
        keep.state = load_checkpoint(tmp_path / "checkpoint.npz", model)
    assert [number for number, (is_best, _) in enumerate(found) if is_best] == kept
    assert ([waits for _, waits in found], keep.state.best) == (waited, best)


def test_a_run_whose_improvements_are_too_small_says_so(tmp_path):
    state, model = TrainingState(), tiny_model()
    budget = Budget(patience=2, least_improvement=0.5)
    keep = KeepBest(tmp_path / "best.weights.h5", state, budget.monitor, budget.least_improvement)
    validate = Validation(state, Checkpoint(None, state), keep, budget)
    validate.set_model(model)
    for loss in (3.0, 2.9, 2.8):
        assert state.end_reason == ""
        validate.on_epoch_end(0, {"val_token_loss": loss})
    assert (state.end_reason, state.best) == ("2 validations brought no better loss by more than 0.5", 2.8)


def test_keep_best_takes_the_highest_where_higher_is_better(tmp_path):
    state, path, model = TrainingState(), tmp_path / "best.weights.h5", tiny_model()
    keep = validation(path, state, patience=2, monitor=MONITORS["bleu"])
    keep.set_model(model)
    best = []
    for bleu in (3.0, 5.0, 4.0, float("nan")):
        keep.on_epoch_end(0, {"val_bleu": bleu})
        best.append(state.best)
    assert (best, state.waited) == ([3.0, 5.0, 5.0, 5.0], 2)


@pytest.mark.parametrize("name", ["bleu", "loss"])
def test_an_equal_figure_is_no_better_one(tmp_path, name):
    state, path, model, monitor = TrainingState(), tmp_path / "best.weights.h5", tiny_model(), MONITORS[name]
    keep = validation(path, state, patience=1, monitor=monitor)
    keep.set_model(model)
    keep.on_epoch_end(0, {monitor.log_key: 5.0})
    before = path.read_bytes()
    model.set_weights([weight + 1 for weight in model.get_weights()])
    keep.on_epoch_end(1, {monitor.log_key: 5.0})
    assert (state.waited, state.end_reason) == (1, f"1 validation brought no better {monitor.label}")
    assert path.read_bytes() == before


def test_a_validation_scores_keeps_shows_and_exports_what_is_better_in_this_order(tmp_path):
    state, console, model = TrainingState(), recorded_console(), tiny_model()
    path, bleu = tmp_path / "best.weights.h5", iter([3.0, 5.0, 4.0])

    def show():
        console.print(f"samples, best {path.is_file()}, last {len(os.listdir(tmp_path / 'weights')) - 1}")

    bar = ProgressBar(state, console=console, clock=FakeClock())
    main = InMainProcess(tmp_path / "weights", 2, bar, show, lambda: console.print(f"exported at {state.best}"))
    monitor = MONITORS["bleu"]
    validate = validation(path, state, 1, monitor, scores=[lambda: {"val_bleu": next(bleu)}], main=main)
    validate.set_model(model)
    for step in (7, 8, 9):
        state.step, logs = step, {"val_token_loss": 1.5}
        validate.on_epoch_end(0, logs)
    assert logs == {"val_token_loss": 1.5, "val_bleu": 4.0}
    assert console.file.getvalue().splitlines() == [
        *("step 7  validation:  loss 1.500  BLEU 3.0", "samples, best True, last 1", "exported at 3.0"),
        *("step 8  validation:  loss 1.500  BLEU 5.0", "samples, best True, last 2", "exported at 5.0"),
        *("step 9  validation:  loss 1.500  BLEU 4.0", "samples, best True, last 2"),
    ]
    assert (state.end_reason, model.stop_training) == ("1 validation brought no better BLEU", True)


def keep_by_bleu(validations, path, state, patience):
    """The numbers of the validations, BLEU and loss each, whose weights are kept, and why the run ended."""
    model, kept = tiny_model(), []
    keep = validation(path, state, patience, MONITORS["bleu"])
    keep.set_model(model)
    for number, (bleu, loss) in enumerate(validations):
        keep.on_epoch_end(number, {"val_bleu": bleu, "val_token_loss": loss})
        if state.waited == 0:
            kept.append(number)
    return kept, state.end_reason


def test_while_bleu_is_zero_the_loss_decides_and_patience_does_not_count(tmp_path):
    state, path = TrainingState(), tmp_path / "best.weights.h5"
    kept, ended = keep_by_bleu([(0.0, 5.0), (0.0, 4.0), (0.0, 6.0), (0.0, 4.5), (0.0, 3.0)], path, state, patience=1)
    assert (kept, ended, state.best, state.best_loss) == ([0, 1, 4], "", 0.0, 3.0)
    # From the first BLEU above zero on, the loss does not matter, and patience counts: also if BLEU falls to zero.
    kept, ended = keep_by_bleu([(0.1, 9.0), (0.2, 8.0), (0.0, 1.0)], path, state, patience=1)
    assert (kept, ended, state.best) == ([0, 1], "1 validation brought no better BLEU", 0.2)


def test_without_a_loss_in_the_logs_equal_figures_are_no_better_and_do_not_end_the_run(tmp_path):
    state = TrainingState()
    keep = validation(tmp_path / "best.weights.h5", state, 1, MONITORS["bleu"])
    keep.set_model(tiny_model())
    for number in range(3):
        keep.on_epoch_end(number, {"val_bleu": 0.0})
    assert (state.best, state.waited, state.end_reason) == (0.0, 2, "")


def test_a_resumed_run_knows_the_loss_that_decided(tmp_path):
    validations, path = [(0.0, 5.0), (0.0, 0.1 + 0.2), (0.0, 0.3), (0.0, 0.3)], tmp_path / "best.weights.h5"
    undisturbed, model = TrainingState(), tiny_model()
    keep_by_bleu(validations, path, undisturbed, patience=1)
    stopped = TrainingState()
    keep_by_bleu(validations[:2], path, stopped, patience=1)
    save_checkpoint(tmp_path / "checkpoint.npz", model, stopped)
    resumed = load_checkpoint(tmp_path / "checkpoint.npz", model)
    keep_by_bleu(validations[2:], path, resumed, patience=1)
    assert resumed == undisturbed
    assert (resumed.best_loss, resumed.waited) == (0.3, 1)


def test_keep_best_goes_on_where_a_resumed_run_stood(tmp_path):
    state = TrainingState(best=2.0, waited=2)
    assert keep_best([2.5], tmp_path / "best.weights.h5", state, patience=3) == 0
    assert not (tmp_path / "best.weights.h5").exists()


def test_a_resumed_run_may_keep_fewer_weights_or_none(tmp_path):
    model, kept = tiny_model(), []
    for step, number in enumerate((3, 3, 3, 2, 0), start=1):
        keep_last(tmp_path, model, step, number)
        kept.append([int(path.name[5:14]) for path in sorted(tmp_path.glob("*.h5"))])
    assert kept == [[1], [1, 2], [1, 2, 3], [3, 4], []]
    assert "step" not in (tmp_path / "SHA256SUMS").read_text()


def test_best_weights_hold_no_optimizer_and_load_uncompiled(tmp_path):
    model, path = tiny_model(), tmp_path / "best.weights.h5"
    state = TrainingState()
    fit(model, [TrackState(state), validation(path, state)], validation_data=(IDS, IDS))
    with h5py.File(path) as file:
        assert "layers" in file
        assert "optimizer" not in file
    layers = [keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 3), keras.layers.Dense(7)]
    fresh = keras.Sequential(layers)
    fresh.load_weights(path)
    for ours, theirs in zip(fresh.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert sorted(os.listdir(tmp_path)) == ["SHA256SUMS", "best.weights.h5"]


def test_keep_best_says_what_the_logs_have(tmp_path):
    with pytest.raises(ValueError, match=r"no 'val_token_loss' in the logs.*: .*loss.*Give fit validation"):
        fit(tiny_model(), [validation(tmp_path / "best.weights.h5", TrainingState())])
    with pytest.raises(ValueError, match=r"must end in .weights.h5. Received: best.h5"):
        KeepBest("best.h5", TrainingState())


def test_track_state_completes_the_logs(tmp_path):
    clock, state, model = FakeClock(), TrainingState(), tiny_model(accumulation=2)

    def two_seconds_pass():
        clock.now += 2

    def validation_takes_a_minute(logs):
        clock.now += 60

    slow_validation = keras.callbacks.LambdaCallback()
    slow_validation.on_test_end = validation_takes_a_minute
    tick = AtBatch(two_seconds_pass)
    log = CSVLog(tmp_path / "log.csv", state)
    callbacks = [tick, TrackState(state, clock=clock), slow_validation, log]
    history = fit(model, callbacks, epochs=2, steps=5, validation_data=(IDS, IDS))
    # 5 batches of 5 tokens in 10 seconds; 10 micro-batches are 5 updates, the next is number 6 (warm-up: 5).
    assert history["tokens_per_second"] == [2.5, 2.5]
    assert history["minutes"] == pytest.approx([70 / 60, 140 / 60])
    assert history["step"] == [2, 5]
    assert history["learning_rate"][1] == pytest.approx(8**-0.5 * 6**-0.5, rel=1e-5)
    assert state == TrainingState(step=5, batch=10, epoch=2)
    assert state.seconds == 140
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["2", "5"]
    assert "val_token_loss" in rows[0]


def test_the_minutes_of_a_resumed_run_go_on():
    clock, state, model = FakeClock(), TrainingState(seconds=300), tiny_model()

    def a_minute_passes():
        clock.now += 60

    budget = TimeBudget(state, max_minutes=7, started=clock.now - state.seconds, clock=clock)
    history = fit(model, [AtBatch(a_minute_passes), TrackState(state, clock=clock), budget], epochs=7, steps=5)
    assert (history["minutes"], state.seconds) == ([7], 7 * 60)  # five of them before
    assert (state.step, state.end_reason) == (2, "the budget of 7 minutes is spent")


def test_track_state_counts_batches_in_any_order():
    state = TrainingState(step=33, batch=101)  # 33 updates of 3 micro-batches, and 2 that await theirs
    callback = TrackState(state)
    callback.set_model(tiny_model(accumulation=3))
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in (0, 1, 3, 2):
        callback.on_train_batch_begin(batch)
        callback.on_train_batch_end(batch)
    assert (state.step, state.batch) == (35, 105)


def test_csv_log_of_a_resumed_run_has_one_header_and_every_row_once(tmp_path):
    path, model, state = tmp_path / "log.csv", tiny_model(), TrainingState()
    fit(model, [TrackState(state), CSVLog(path, state)], epochs=2)
    with path.open("a") as file:
        file.write("2,0.1,")  # a row that was cut short
    # Killed: the last checkpoint was that of step 5, before the second row.
    model, state = tiny_model(), TrainingState()
    fit(model, [TrackState(state)])
    fit(model, [TrackState(state), CSVLog(path, state)])
    with path.open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["5", "10"]


def test_values_of_a_users_callback_have_columns_of_their_own_from_when_they_come(tmp_path):
    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch != 2:
                logs["a_mine"] = epoch / 2

    path, model, state = tmp_path / "log.csv", tiny_model(), TrainingState()
    fit(model, [TrackState(state), CSVLog(path, state)])
    fit(model, [TrackState(state), Own(), CSVLog(path, state)], epochs=4, initial_epoch=1)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["a_mine"] for row in rows] == ["", "0.5", "", "1.5"]
    assert [row["step"] for row in rows] == ["5", "10", "15", "20"]
    assert all(None not in (*row, *row.values()) for row in rows)
    assert path.read_text().startswith("epoch,")


def test_the_columns_of_the_log_are_in_alphabetical_order_behind_the_epoch(tmp_path):
    log = CSVLog(tmp_path / "log.csv", TrainingState())
    log.on_epoch_end(0, {"val_loss": 3.0, "loss": 2.0, "accuracy": 0.5})
    assert (tmp_path / "log.csv").read_text().splitlines() == ["epoch,accuracy,loss,val_loss", "0,0.5,2.0,3.0"]


def test_an_empty_log_gets_a_header(tmp_path):
    """A run was killed when it had opened its log."""
    path, state = tmp_path / "log.csv", TrainingState()
    path.touch()
    fit(tiny_model(), [TrackState(state), CSVLog(path, state)], steps=1)
    with path.open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1"]


def test_a_loss_that_is_no_number_ends_the_run_and_names_the_step():
    model, state = tiny_model(), TrainingState(step=10, batch=10)
    model.compile(keras.optimizers.SGD(float("inf")), LabelSmoothedCrossEntropy())  # the first update ruins the weights
    one_by_one = AtBatch(lambda: None)
    with pytest.raises(FloatingPointError, match="The loss is nan after batch 12, update 12. .* learning_rate_scale"):
        fit(model, [TrackState(state), StopOnNaN(state), one_by_one])


@pytest.mark.parametrize("loss", [math.inf, -math.inf])
def test_an_infinite_loss_ends_the_run_too(loss):
    check = StopOnNaN(TrainingState(step=10, batch=10))
    check.on_epoch_begin(0)
    with pytest.raises(FloatingPointError, match=f"The loss is {loss} after batch 13, update 10."):
        check.on_train_batch_end(2, {"loss": loss})


def test_the_best_loss_is_a_number(tmp_path):
    model, state = tiny_model(), TrainingState()
    keep = validation(tmp_path / "best.weights.h5", state)
    keep.set_model(model)
    for loss, best in ((float("nan"), None), (2.0, 2.0), (float("nan"), 2.0), (float("-inf"), 2.0)):
        keep.on_epoch_end(0, {"val_token_loss": loss})
        assert state.best == best
    assert state.waited == 2


def shown_at_ends(bar):
    """Shows what `Validation` would show."""
    return keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: bar.show_validation(logs))


def test_plain_lines_where_there_is_no_terminal():
    clock, state, console = FakeClock(), TrainingState(), recorded_console()

    def ten_seconds_pass():
        clock.now += 10

    bar = ProgressBar(state, total_steps=20, console=console, line_seconds=25, clock=clock)
    callbacks = [AtBatch(ten_seconds_pass), TrackState(state, clock=clock), bar, shown_at_ends(bar)]
    fit(tiny_model(), callbacks, epochs=1, steps=5, validation_data=(IDS, IDS))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2  # at 30 s, then the validation
    # 3 batches of 5 tokens in 30 s; 17 updates of 10 s are left.
    assert lines[0].startswith("step 3/20  loss ")
    assert "accuracy " in lines[0]
    assert lines[0].endswith("0 tokens/s  0:02:50 left")
    assert lines[1].startswith("step 5  loss ")
    assert "validation:  loss " in lines[1]
    assert "perplexity " in lines[1]


def line_after_an_update_of_10_seconds(state, metrics, **budget):
    clock, console = FakeClock(), recorded_console()
    bar = ProgressBar(state, console=console, line_seconds=10, clock=clock, **budget)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    state.step, clock.now = state.step + 1, clock.now + 10
    bar.on_train_batch_end(0, metrics)
    return console.file.getvalue().splitlines()[0]


def test_the_time_left_of_a_resumed_run_is_that_of_the_whole_run():
    """Of two minutes, 50 seconds were used before."""
    metrics = {"loss": 2.0, "tokens": 30000.0}
    line = line_after_an_update_of_10_seconds(TrainingState(seconds=50.0), metrics, max_minutes=2)
    assert line.endswith("0:01:00 left")


def test_the_time_left_of_a_resumed_run_is_by_the_updates_since_the_resume():
    line = line_after_an_update_of_10_seconds(TrainingState(step=100), {}, total_steps=110)
    assert line == "step 101/110  0:01:30 left"  # 9 updates of 10 s


def test_tokens_per_second_of_a_line_are_those_since_the_last_line_or_the_beginning_of_the_epoch():
    """The metrics begin anew with each epoch, and a validation takes time before it."""
    clock, state, console = FakeClock(), TrainingState(), recorded_console()
    bar = ProgressBar(state, console=console, line_seconds=10, clock=clock)
    bar.on_train_begin()
    for epoch, tokens in enumerate((80000.0, 20000.0)):
        clock.now += 100
        bar.on_epoch_begin(epoch)
        clock.now += 10
        bar.on_train_batch_end(0, {"tokens": tokens})
    assert console.file.getvalue().splitlines() == ["step 0  8,000 tokens/s", "step 0  2,000 tokens/s"]


def test_the_tokens_before_a_resume_are_not_taken_for_those_of_the_first_line():
    """Where the run was stopped between two validations, the metrics go on."""
    clock, state, console = FakeClock(), TrainingState(step=5, epoch_batch=5), recorded_console()
    bar = ProgressBar(state, console=console, line_seconds=10, clock=clock)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    for tokens in (90000.0, 120000.0):
        clock.now += 10
        bar.on_train_batch_end(0, {"tokens": tokens})
    assert console.file.getvalue().splitlines() == ["step 5", "step 5  3,000 tokens/s"]


def test_tokens_per_second_of_the_line_and_time_left_of_the_nearer_limit():
    clock, state, console = FakeClock(), TrainingState(), recorded_console()
    bar = ProgressBar(state, total_steps=1000, max_minutes=2, console=console, line_seconds=10, clock=clock)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    state.step, clock.now = 1, clock.now + 10
    bar.on_train_batch_end(0, {"loss": 2.0, "tokens": 30000.0})
    state.step, clock.now = 2, clock.now + 10
    bar.on_train_batch_end(1, {"loss": 1.5, "tokens": 80000.0})
    assert console.file.getvalue().splitlines() == [
        "step 1/1000  loss 2.000  3,000 tokens/s  0:01:50 left",
        "step 2/1000  loss 1.500  5,000 tokens/s  0:01:40 left",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(59.6, "0:01:00"), (3600, "1:00:00"), (93784, "26:03:04"), (-5, "0:00:00")]
)
def test_the_time_left_is_shown_in_hours_minutes_and_seconds(seconds, shown):
    state, console, clock = TrainingState(seconds=60 - seconds), recorded_console(), FakeClock()
    bar = ProgressBar(state, max_minutes=1, console=console, line_seconds=0, clock=clock)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    bar.on_train_batch_end(0, {})
    assert console.file.getvalue() == f"step 0  {shown} left\n"


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ({"val_bleu": 31.416, "val_chrf": 53.8}, "BLEU 31.4  chrF 53.8"),
        (
            {"val_word_error_rate": 0.2895, "val_phoneme_error_rate": 0.07},
            "word error rate 0.289  phoneme error rate 0.070",
        ),
    ],
)
def test_the_line_of_a_validation_shows_what_translations_scored(scores, shown):
    state, console = TrainingState(step=7), recorded_console()
    bar = ProgressBar(state, console=console, clock=FakeClock())
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    bar.show_validation({"token_loss": 2.0, "val_token_loss": 1.5, **scores})
    assert console.file.getvalue() == f"step 7  loss 2.000  validation:  loss 1.500  {shown}\n"


def test_the_line_of_each_corpus_has_its_whole_name():
    """And the loss is that over tokens, not Keras's mean of the batches; a long line is not folded."""
    console = rich.console.Console(file=io.StringIO(), width=20)
    bar = ProgressBar(TrainingState(step=7), console=console, clock=FakeClock())
    of_corpus = {"val_token_loss my [/b] texts": 1.25, "val_accuracy my [/b] texts": 0.5}
    bar.show_validation({"loss": 9.0, "token_loss": 2.0, "val_loss": 8.0, "val_token_loss": 1.5, **of_corpus})
    assert console.file.getvalue().splitlines() == [
        "step 7  loss 2.000  validation:  loss 1.500",
        "  my [/b] texts: loss 1.250  accuracy 0.500",
    ]


def test_the_line_on_a_terminal_is_drawn_anew_within_a_second():
    clock, state = FakeClock(), TrainingState()
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    bar = ProgressBar(state, console=console, clock=clock)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    state.step, clock.now = 2, clock.now + 1
    bar.on_train_batch_end(0, {"loss": 2.5})
    bar.close()
    assert "step 2  loss 2.500" in console.file.getvalue()


def test_live_line_on_a_terminal_gives_the_terminal_back():
    state, console = TrainingState(), recorded_console(terminal=True)
    bar = ProgressBar(state, total_steps=5, console=console)
    fit(tiny_model(), [TrackState(state), bar, shown_at_ends(bar)], steps=5)
    written = console.file.getvalue()
    assert "compiling the first step" in written
    assert "step 5  loss " in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is shown again
    bar.close()


@pytest.mark.parametrize(
    ("limits", "filled"),
    [
        ({"total_steps": 8}, 10),  # a quarter of 40 cells
        ({"max_minutes": 2}, 30),  # of two minutes, one was before the resume, and half of one after it
        ({"total_steps": 8, "max_minutes": 2}, 30),
        ({"total_steps": 2, "max_minutes": 2}, 40),
        ({}, 0),
    ],
)
def test_the_bar_on_a_terminal_is_as_long_as_the_share_of_the_nearer_limit(limits, filled):
    clock, state = FakeClock(), TrainingState(seconds=60.0)
    console = rich.console.Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    bar = ProgressBar(state, console=console, clock=clock, **limits)
    bar.on_train_begin()
    bar.on_epoch_begin(0)
    state.step, clock.now = 2, clock.now + 30
    bar.on_train_batch_end(0, {"loss": 2.0})
    bar.on_test_begin()
    bar.close()
    assert "step 2  validating" in console.file.getvalue()
    drawn = re.findall(r"(━*) *step 2", console.file.getvalue())
    assert len(drawn[-1]) == filled


@pytest.mark.parametrize("with_validation", [True, False])
def test_tensorboard_scalars(tmp_path, with_validation):
    import tensorflow as tf

    state = TrainingState()
    validation = {"validation_data": (IDS, IDS)} if with_validation else {}
    callbacks = [TrackState(state), TensorBoardLog(tmp_path, state)]
    history = fit(tiny_model(), callbacks, epochs=2, steps=3, **validation)
    runs = {}
    for run in os.listdir(tmp_path):
        (file,) = (tmp_path / run).iterdir()
        records = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
        assert records[0].file_version == "brain.Event:2"
        runs[run] = [(event.step, {v.tag: v.simple_value for v in event.summary.value}) for event in records[2:]]
        # Whatever a killed run wrote from step 1 on no longer counts.
        assert (records[1].session_log.status, records[1].step) == (tf.compat.v1.SessionLog.START, 1)
    assert sorted(runs) == (["train", "validation"] if with_validation else ["train"])
    assert [step for step, _ in runs["train"]] == [3, 6]
    scalars = runs["train"][1][1]
    assert scalars["token_loss"] == pytest.approx(history["token_loss"][1], rel=1e-6)
    assert scalars["learning_rate"] == pytest.approx(history["learning_rate"][1], rel=1e-6)
    assert scalars["tokens_per_second"] > 0
    if with_validation:
        assert runs["validation"][1][1]["token_loss"] == pytest.approx(history["val_token_loss"][1], rel=1e-6)


def test_tensorboard_gets_texts_and_images(tmp_path):
    import tensorflow as tf

    state = TrainingState(step=7)
    log = TensorBoardLog(tmp_path, state)
    log.on_train_begin()
    log.write_text("samples", "hello")
    log.write_image("attention", np.array([[0, 255, 128]], "uint8"))
    log.on_train_end()
    (file,) = (tmp_path / "validation").iterdir()
    _, start, *events = (tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file)))
    assert start.step == 8  # what a killed run wrote from there on no longer counts
    text, image = (event.summary.value[0] for event in events)
    assert [event.step for event in events] == [7, 7]
    assert (text.tag, text.metadata.plugin_data.plugin_name) == ("samples", "text")
    assert tf.make_ndarray(text.tensor).tolist() == [b"hello"]
    assert (image.tag, image.image.height, image.image.width) == ("attention", 1, 3)
    assert tf.io.decode_png(image.image.encoded_image_string).numpy()[:, :, 0].tolist() == [[0, 255, 128]]


def test_logs_have_the_norm_of_the_last_gradient():
    class Slopes(keras.Loss):
        """Its gradient is 3 for one output and 4 for the other, at each of the 6 positions."""

        def call(self, y_true, y_pred):
            return 3.0 * y_pred[..., 0] + 4.0 * y_pred[..., 1]

    model = keras.Sequential([keras.Input((3, 1)), keras.layers.Dense(2, use_bias=False)])
    model.compile(build_optimizer(8, TrainingConfig()), Slopes(reduction="sum"))
    ones = np.ones((2, 3, 1), "float32")
    history = model.fit(ones, ones, batch_size=2, callbacks=[TrackState(TrainingState())], verbose=0).history
    assert history["gradient_norm"] == pytest.approx([6 * 5.0])
