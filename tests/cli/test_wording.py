import pytest

from kformer.wording import count, did_you_mean


def test_numbers_and_nouns():
    assert count(1, "step") == "1 step"
    assert count(0, "step") == "0 steps"
    assert count(1200, "pair") == "1,200 pairs"
    assert [count(minutes, "minute") for minutes in (1.0, 2.5, 90.0)] == ["1 minute", "2.5 minutes", "90 minutes"]


@pytest.mark.parametrize(
    ("unknown", "told"),
    [
        (["warmup_step"], " Did you mean 'warmup_steps'?"),  # almost: no longer one is meant
        (["warmup_step", "warmup_stepz"], " Did you mean 'warmup_steps'?"),  # once
        (["warmup"], " Did you mean 'warmup_steps', 'warmup_steps_in_all'?"),  # all that begin so
        (["dro"], " Did you mean 'dropout_rate'?"),
        (["dr"], ""),  # too little to tell
        (["dropratio"], " Did you mean 'dropout_rate'?"),  # the one that resembles it most
        (["xyz"], ""),
        ([], ""),
    ],
)
def test_a_name_that_resembles_the_wrong_one_is_asked_for(unknown, told):
    known = ["warmup_steps", "warmup_steps_in_all", "dropout_rate"]
    assert did_you_mean(unknown, known) == told
