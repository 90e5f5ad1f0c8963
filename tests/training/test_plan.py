"""What a run says of its budget before it begins."""

import pytest

from kformer.config import MONITORS, TrainingConfig
from kformer.data import BatchPlan, encode_pairs
from kformer.tokenizers import SymbolTokenizer
from kformer.training.callbacks import Budget
from kformer.training.checkpoints import TrainingState
from kformer.training.plan import (
    batches_between_validations,
    budget_of,
    describe_budget,
    describe_minutes,
    describe_warmup,
    fit_warmup,
    plan_batches,
)


@pytest.mark.parametrize(
    ("epochs", "accumulation", "updates", "told"),
    [
        (1, 1, 4, "The budget is 4 updates (1.14 passes over"),  # 7 pairs in batches of 2: 3.5 batches a pass
        (2, 1, 7, "The budget is 7 updates (2.00 passes over"),
        (2, 3, 3, "The budget is 3 updates (2.57 passes over"),
        (1, 30, 1, "The budget is 1 update (8.57 passes over"),
    ],
)
def test_a_budget_of_epochs_is_rounded_up_and_its_passes_are_told(epochs, accumulation, updates, told):
    tokenizer = SymbolTokenizer(["a"])
    plan = BatchPlan(encode_pairs([("a", "a")] * 7, tokenizer, tokenizer, max_length=4), tokens_per_batch=4)
    training = TrainingConfig(max_steps=None, max_epochs=epochs, gradient_accumulation_steps=accumulation)
    assert budget_of(training, plan).max_steps == updates
    assert describe_budget(training, plan, updates).startswith(told)


@pytest.mark.parametrize(("steps", "updates"), [(3, 3), (4, 4), (9, 4)])
def test_of_a_budget_in_steps_and_one_in_epochs_the_smaller_ends_the_run(steps, updates):
    tokenizer = SymbolTokenizer(["a"])
    plan = BatchPlan(encode_pairs([("a", "a")] * 7, tokenizer, tokenizer, max_length=4), tokens_per_batch=4)
    assert budget_of(TrainingConfig(max_steps=steps, max_epochs=1), plan).max_steps == updates


@pytest.mark.parametrize(("steps", "accumulation", "batches"), [(None, 1, 50), (None, 3, 150), (7, 1, 7), (7, 3, 21)])
def test_a_small_corpus_is_validated_each_50_updates_or_as_often_as_is_asked(steps, accumulation, batches):
    """An update has as many batches as are accumulated."""
    tokenizer = SymbolTokenizer(["a"])
    plan = BatchPlan(encode_pairs([("a", "a")] * 7, tokenizer, tokenizer, max_length=4), tokens_per_batch=4)
    training = TrainingConfig(validation_steps=steps, gradient_accumulation_steps=accumulation)
    assert batches_between_validations(training, plan) == batches


def test_the_patience_of_the_configuration_arrives_in_the_budget():
    training = TrainingConfig(max_steps=7, patience=3, monitor="ter", least_improvement=0.5, max_minutes=2)
    assert budget_of(training, plan=None) == Budget(7, 2.0, 3, MONITORS["ter"], 0.5)


def pairs_of_one_word(number):
    tokenizer = SymbolTokenizer(["a"])
    return encode_pairs([("a", "a")] * number, tokenizer, tokenizer, max_length=4)


@pytest.mark.parametrize(("accumulation", "batches"), [(1, 60), (2, 100)])
def test_a_larger_corpus_is_validated_once_an_epoch(accumulation, batches):
    """120 pairs in batches of 2 are 60 batches, which are only 30 updates if two make an update."""
    training = TrainingConfig(gradient_accumulation_steps=accumulation)
    assert batches_between_validations(training, BatchPlan(pairs_of_one_word(120), tokens_per_batch=4)) == batches


def test_batches_have_a_multiple_of_rows_and_at_most_the_tokens_that_are_asked():
    for multiple, rows in ((1, 5), (2, 4), (3, 3)):
        plan = plan_batches(
            pairs_of_one_word(60), TrainingConfig(tokens_per_batch=10, max_length=4, batch_size_multiple=multiple)
        )
        assert {len(labels) for _, labels in plan.once(shuffle_seed=None)} == {rows}


@pytest.mark.parametrize(
    ("budget", "fitted"),
    [
        ({"max_epochs": 4}, (3, 0.5)),  # 7 pairs in batches of 2, four times, are 14 updates
        ({"max_steps": 8, "max_epochs": 4}, (2, 0.408)),  # 1 * (2 / 12)**0.5
        ({"max_steps": 47}, (11, 0.957)),
        ({"max_steps": 48}, (12, 1.0)),
        ({"max_steps": 4000}, (12, 1.0)),
        ({"max_minutes": 0.1}, (12, 1.0)),  # which nobody knows in updates
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_warmup_is_fitted_to_a_budget_of_updates_if_that_is_asked(budget, fitted, asked):
    limits = {"max_steps": None, "max_epochs": None, **budget}
    training = TrainingConfig(
        warmup_steps=12, learning_rate_scale=1.0, tokens_per_batch=4, max_length=4, fit_warmup=asked, **limits
    )
    found = fit_warmup(training, pairs_of_one_word(7), None)
    assert (found.warmup_steps, found.learning_rate_scale) == pytest.approx(fitted if asked else (12, 1.0), rel=1e-3)
    assert found.fit_warmup == asked


def test_a_warmup_of_a_schedule_with_a_peak_is_fitted_and_the_peak_stays():
    training = TrainingConfig(schedule="cosine", learning_rate=0.1, warmup_steps=12, fit_warmup=True, max_steps=20)
    assert fit_warmup(training, pairs_of_one_word(7), None) == training.replace(warmup_steps=5, fit_warmup=True)
    told = describe_warmup(training, 20)
    assert told.startswith("the warm-up takes 12 of them (60%), which leaves few for the rest. Little is learned")
    assert told.endswith("a smaller model or a shorter warm-up: warmup_steps 5.")


def test_a_warmup_that_leaves_time_is_told_in_a_few_words():
    assert describe_warmup(TrainingConfig(warmup_steps=800), 12_900) == "the warm-up takes 800 of them (6%)."
    assert describe_warmup(TrainingConfig(warmup_steps=500), 1000) == "the warm-up takes 500 of them (50%)."


def test_a_warmup_longer_than_half_of_the_run_is_told_with_a_remedy():
    told = describe_warmup(TrainingConfig(warmup_steps=800, learning_rate_scale=1.2), 1280)
    assert told.startswith("the warm-up takes 800 of them (62%), which leaves few for the rest. Little is learned")
    # A quarter of 1,280 is 320, and 1.2 * (320 / 800)**0.5 = 0.759.
    assert "warmup_steps 320 and learning_rate_scale 0.759 keep the peak of the learning rate" in told
    told = describe_warmup(TrainingConfig(warmup_steps=800), 800)
    assert told.startswith("the warm-up takes 800 of them (100%), which leaves few for the rest")


@pytest.mark.parametrize(("updates", "share", "warmup"), [(63, "8%", 15), (3, "0%", 1)])
def test_a_run_that_ends_inside_its_warmup_is_told_how_little_of_the_rate_it_reaches(updates, share, warmup):
    told = describe_warmup(TrainingConfig(warmup_steps=800), updates)
    assert f"takes 800, so the learning rate only reaches {share} of its peak. Little is learned" in told
    assert f"a shorter warm-up: warmup_steps {warmup} and learning_rate_scale" in told


def test_minutes_that_are_over_hold_the_updates_that_were_done():
    training, state = TrainingConfig(warmup_steps=1, max_minutes=0.1), TrainingState(step=4, seconds=26.0)
    assert "about 4 updates fit into 0.1 minutes; " in describe_minutes(
        training, state, seconds_per_update=2.0, max_steps=None
    )


def test_a_run_out_of_patience_trains_no_further_when_it_is_resumed() -> None:
    state = TrainingState(step=400, best=2.5, waited=3)
    reason = "3 validations brought no better loss"
    told = (reason, f"{reason} already; raise patience to go on")
    assert Budget(patience=3).spent(state) == told
    assert Budget(patience=4).spent(state) is None
    state.best = None  # every loss was NaN
    assert Budget(patience=3).spent(state) == told
    state.best = 0.0  # a BLEU of 0.0 tells nothing, so that no validation counts
    assert Budget(patience=3, monitor=MONITORS["bleu"]).spent(state) is None


@pytest.mark.parametrize(
    ("step", "seconds", "waited", "reason"),
    [
        (3, 59.9, 1, None),
        (4, 60.0, 2, "the budget of 4 steps is spent"),
        (3, 60.0, 2, "the budget of 1 minute is spent"),
        (3, 59.9, 2, "2 validations brought no better loss"),
    ],
)
def test_a_budget_is_spent_when_a_limit_is_reached_and_steps_are_told_before_minutes(step, seconds, waited, reason):
    state = TrainingState(step=step, seconds=seconds, waited=waited)
    spent = Budget(max_steps=4, max_minutes=1, patience=2).spent(state)
    assert (spent and spent.now) == reason
