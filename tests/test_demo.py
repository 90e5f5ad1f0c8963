"""How long `kformer demo` trains on a machine of some speed."""

import dataclasses

import pytest

from kformer.cli.demo_settings import DEMOS, choose_minutes, find_demo
from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.training import speed
from kformer.training.speed import measure_seconds_per_update

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
        "An update takes 0.50 seconds: 10 minutes hold about 1,200 updates. Answers that make sense need about 600."
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


def test_an_unknown_demo_and_no_time_are_refused():
    with pytest.raises(ValueError, match=r"There is no demo for 'cmudic'. Choose one of .* Did you mean 'cmudict'\?"):
        find_demo("cmudic")
    with pytest.raises(ValueError, match="max_minutes must be greater than 0"):
        find_demo("cmudict", minutes=0.0)
