"""How long `kformer demo` trains on a machine of some speed."""

import contextlib
import dataclasses
import functools
import subprocess
import types

import pytest
import typer
from typer.testing import CliRunner

from kformer.cli import demo_steps
from kformer.cli.demo_settings import DEMOS, choose_minutes, find_demo
from kformer.cli.main import app
from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.process.console import Console
from kformer.runs.folder import RunFolder
from kformer.training import speed
from kformer.training.callbacks import update_timer
from kformer.training.plan import shorten_warmup
from kformer.training.speed import measure_seconds_per_update
from kformer.training.train import TrainingReport

pytestmark = pytest.mark.tensorflow_only  # that is: once
# Its answers make sense after 600 updates, which are ten minutes at one second an update.
DEMO = dataclasses.replace(DEMOS["bible-en-es"], minutes=10.0, most_minutes=40.0, updates=600)


def chosen(seconds_per_update, minutes=None):
    """The minutes, the updates that they hold, and what was said."""
    said = []
    return *choose_minutes(DEMO, minutes, seconds_per_update, said.append), said


def test_a_fast_machine_trains_for_the_usual_minutes():
    minutes, updates, said = chosen(0.5)
    assert (minutes, updates) == (10, 1200)
    assert said == [
        "An update takes 0.50 seconds: about 1,200 updates fit into 10 minutes. Answers that make sense need about 600."
    ]


def test_a_machine_of_half_the_speed_trains_for_twice_the_minutes_and_says_so():
    minutes, updates, said = chosen(2.0)
    assert (minutes, updates) == (20, 600)
    assert said[1:] == ["This machine is slow: the demo trains for 20 minutes instead of 10."]


def test_a_very_slow_machine_is_told_that_even_the_longest_demo_is_too_short():
    minutes, updates, said = chosen(8.0)  # 600 updates take 80 minutes
    assert (minutes, updates) == (40, 300)
    assert said[1:] == [
        "This machine is slow: the demo trains for 40 minutes instead of 10.",
        "These are too few. Good answers would need about 80 minutes here (--minutes 80).",
    ]


def test_chosen_minutes_stay():
    minutes, updates, said = chosen(2.03)  # 20.3 minutes: too few would be told otherwise
    assert (minutes, updates >= 600, len(said)) == (21, True, 2)
    assert chosen(0.5, minutes=5.0)[:2] == (5.0, 600)
    minutes, updates, said = chosen(0.5, minutes=30.0)
    assert (minutes, updates, len(said)) == (30.0, 3600, 1)  # nobody says that the machine is slow
    minutes, updates, said = chosen(1.0, minutes=5.0)
    assert (minutes, updates) == (5.0, 300)
    assert said[1:] == ["These are too few. Good answers would need about 10 minutes here (--minutes 10)."]


@pytest.mark.parametrize("name", DEMOS)
def test_the_settings_of_a_demo_fit_each_other(name):
    demo = find_demo(name)
    assert demo.minutes < demo.most_minutes
    assert demo.training.warmup_steps < demo.updates
    assert demo.training.validation_steps < demo.updates


def test_a_measurement_that_a_signal_ends_is_an_interrupt(monkeypatch):
    monkeypatch.setattr(speed, "train", lambda *arguments, **options: None)  # as after Ctrl-C: no update was timed
    with pytest.raises(KeyboardInterrupt):
        measure_seconds_per_update(Corpus("none", [], [], []), TransformerConfig(), TrainingConfig())


QUIET = Console(quiet=True)


@pytest.mark.parametrize(
    ("seconds", "given", "minutes", "updates"), [(2.0, None, 20, None), (1.0, 1.0, 1.0, 60), (0.5, None, 10, None)]
)
def test_the_demo_trains_for_the_chosen_minutes_with_a_warm_up_that_fits(seconds, given, minutes, updates, monkeypatch):
    monkeypatch.setattr(demo_steps, "measure_seconds_per_update", lambda *arguments: seconds)
    training = demo_steps.choose_training(DEMO, given, Corpus("none", [], [], []), QUIET)
    expected = DEMO.training.replace(max_minutes=minutes)
    assert training == (expected if updates is None else shorten_warmup(expected, updates))
    assert (training.warmup_steps < DEMO.training.warmup_steps) is (updates is not None)


def test_a_demo_that_is_stopped_says_how_to_go_on_and_does_nothing_more(monkeypatch, tmp_path, capsys):
    stopped = TrainingReport(RunFolder(tmp_path / "run"), 7, None, "interrupted", True)
    monkeypatch.setattr(demo_steps, "load_corpus", lambda name: Corpus(name, [], [("a", "b")], []))
    monkeypatch.setattr(demo_steps, "measure_seconds_per_update", lambda *arguments: 1.0)
    monkeypatch.setattr(demo_steps, "train", lambda *arguments, **options: stopped)
    with pytest.raises(typer.Exit) as end:
        demo_steps.run_demo("bible-en-es", DEMO, None, tmp_path)
    assert end.value.exit_code == 75
    printed = capsys.readouterr().out
    assert "7 steps: interrupted. Best validation loss none." in printed
    assert printed.endswith(f"kformer train --corpus bible-en-es --output {tmp_path / 'run'} --resume\n")


def test_a_demo_is_scored_on_pairs_that_nobody_trained_on(monkeypatch, tmp_path):
    corpus = Corpus("numbers", [("one", "uno")], [("two", "dos")], [("six", "seis"), ("ten", "diez")])
    scored = []
    monkeypatch.setattr(demo_steps, "Model", lambda path: None)
    monkeypatch.setattr(demo_steps, "score", lambda translate, pairs, *rest, **options: scored.extend(pairs))
    demo_steps.evaluate(RunFolder(tmp_path), corpus, QUIET)
    assert scored == corpus.test


class FakeModel:
    """What a callback sees of a model that trains."""

    optimizer = None
    stop_training = False


def test_a_measurement_ends_as_soon_as_the_speed_is_known(monkeypatch):
    """It takes an update of a second, and validates on ten pairs at most."""

    def train(corpus, *arguments, callbacks, **options):
        (timer,) = callbacks
        timer.set_model(FakeModel())
        assert len(corpus.valid) == 10
        for update in range(100):
            now[0] = float(update)
            timer.on_train_batch_end(update)
            if timer.model.stop_training:
                return
        raise AssertionError("the training goes on")

    now = [0.0]
    monkeypatch.setattr(speed, "train", train)
    monkeypatch.setattr(update_timer, "accumulation_steps", lambda optimizer: 1)
    corpus = Corpus("none", [], [("a", "b")] * 40, [])
    timed = functools.partial(update_timer.UpdateTimer, clock=lambda: now[0])
    monkeypatch.setattr(speed, "UpdateTimer", timed)
    assert measure_seconds_per_update(corpus, TransformerConfig(), TrainingConfig(), seconds=5) == 1.0


@pytest.mark.parametrize("code", [0, 1])
def test_the_demo_shows_what_the_export_answers_and_ends_if_it_fails(code, monkeypatch, tmp_path, capsys):
    done = subprocess.CompletedProcess([], code, '["uno"]' if code == 0 else "", "why")
    monkeypatch.setattr(demo_steps.subprocess, "run", lambda *arguments, **options: done)
    corpus = Corpus("numbers", [], [], [("one", "uno")])
    with contextlib.nullcontext() if code == 0 else pytest.raises(ValueError, match="failed in a process .*\nwhy"):
        demo_steps.use(tmp_path, dataclasses.replace(DEMO, shown=1), corpus, Console())
        assert "source     one\n  kformer    uno\n  reference  uno\n" in capsys.readouterr().out


def test_a_demo_takes_an_empty_folder(monkeypatch, tmp_path):
    taken = []
    monkeypatch.setattr(demo_steps, "run_demo", lambda *arguments: taken.append(arguments[-1]))
    CliRunner().invoke(app, ["demo", "--output", str(tmp_path)], catch_exceptions=False)
    assert taken == [tmp_path]


def test_an_unknown_demo_and_no_time_are_refused():
    with pytest.raises(ValueError, match=r"There is no demo for 'cmudic'. Choose one of .* Did you mean 'cmudict'\?"):
        find_demo("cmudic")
    with pytest.raises(ValueError, match="max_minutes must be greater than 0"):
        find_demo("cmudict", minutes=0.0)


def test_a_demo_that_has_trained_is_exported_and_says_what_comes_next(monkeypatch, tmp_path, capsys):
    def export(translator, folder):
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "saved_model.pb").write_bytes(bytes(2_600_000))
        return folder / "1"

    trained, used = TrainingReport(RunFolder(tmp_path / "run"), 2154, 1.25, "the budget is spent", False), []
    corpus = Corpus("cmudict", [], [("a", "A")], [("b", "B")])
    for name, double in {
        "load_corpus": lambda name: corpus,
        "measure_seconds_per_update": lambda *arguments: 0.1,
        "train": lambda *arguments, **options: trained,
        "evaluate": lambda *arguments: {"word_error_rate": 0.4},
        "Translator": types.SimpleNamespace(from_run=lambda path: None),
        "export_saved_model": export,
        "use": lambda saved_model, *arguments: used.append(saved_model),
    }.items():
        monkeypatch.setattr(demo_steps, name, double)
    assert demo_steps.run_demo("cmudict", DEMOS["cmudict"], None, tmp_path) == {"word_error_rate": 0.4}
    assert used == [tmp_path / "export" / "1"]
    printed = capsys.readouterr().out
    for told in (
        "2,154 steps: the budget is spent. Best validation loss 1.250.\n",
        f"{tmp_path}/export/1, 3 MB\n",
        f'echo "c h e e s e" | kformer translate {tmp_path}/run\n',
        "kformer train --corpus cmudict --output runs/cmudict --max-minutes 60\n",
        f"serve {tmp_path}/export: see export/README.md\n",
        "This was a Transformer of the size tiny after 2,154 updates.",
        "a word error rate of 0.234 after 23,656 updates: the preset cmudict\n",
    ):
        assert told in printed
