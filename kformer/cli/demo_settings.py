"""What each demo of `kformer demo` trains and shows, and how long on a machine of some speed."""

import dataclasses
import math
from collections.abc import Callable

from kformer.config import TrainingConfig, TransformerConfig
from kformer.wording import count, did_you_mean


@dataclasses.dataclass(frozen=True)
class Demo:
    """What a demo trains and shows.

    Attributes:
        task: What the model learns.
        model: What messages call the model.
        transformer, training: What is trained; the demo adds the budget.
        minutes: The usual budget.
        most_minutes: The largest budget, for a slow machine.
        updates: After so many updates the answers make sense.
        reached: What trainings of this corpus have reached, as measured, one line each.
        samples: Number of held-out sources shown during training.
        shown: Number of test sources shown at the end.
    """

    task: str
    model: str
    transformer: TransformerConfig
    training: TrainingConfig
    minutes: float
    most_minutes: float
    updates: int
    reached: tuple[str, ...]
    samples: int
    shown: int


DEMOS = {
    "bible-en-es": Demo(
        task="English to Spanish, on verses of the Bible",
        model="a Transformer of the size tiny",
        # A larger model, or dropout, takes more than an hour of a slow machine until it has learned to read the source.
        transformer=TransformerConfig.of_size("tiny", dropout_rate=0.0, norm_first=True),
        training=TrainingConfig.of_size(
            "tiny", tokens_per_batch=1024, warmup_steps=800, learning_rate_scale=1.0, validation_steps=1000
        ),
        minutes=10.0,
        most_minutes=60.0,
        updates=3000,
        reached=(
            "BLEU 21.4 after 3,000 updates: 30 minutes on one core of an AMD EPYC with AVX2",
            "BLEU 27.6 after 5,808 updates: 58 minutes on that core",
            "BLEU 34.6 after 12,906 updates of a model of the size small: the preset bible-en-es",
        ),
        samples=1,
        shown=5,
    ),
    "cmudict": Demo(
        task="spelling to pronunciation, on the CMU dictionary",
        model="a Transformer of the size tiny",
        transformer=TransformerConfig.of_size("tiny"),
        training=TrainingConfig.of_size(
            "tiny", tokens_per_batch=2048, warmup_steps=500, learning_rate_scale=1.2, validation_steps=500
        ),
        minutes=5.0,
        most_minutes=20.0,
        updates=2000,
        reached=(
            "a word error rate of 0.405 after 2,154 updates: 5 minutes on two cores of an AMD EPYC with AVX512-BF16",
            "a word error rate of 0.234 after 23,656 updates: the preset cmudict",
        ),
        samples=3,
        shown=10,
    ),
}


def find_demo(corpus: str, minutes: float | None = None) -> Demo:
    """The demo on this corpus. `minutes`: the budget that the user has chosen, if any.

    Raises:
        ValueError: There is no demo for this corpus, or it cannot be trained for this time.
    """
    if corpus not in DEMOS:
        raise ValueError(
            f"There is no demo for {corpus!r}. Choose one of {', '.join(DEMOS)}.{did_you_mean([corpus], DEMOS)}"
        )
    TrainingConfig(max_minutes=minutes)
    return DEMOS[corpus]


def choose_minutes(
    demo: Demo, minutes: float | None, seconds_per_update: float, say: Callable[[str], None]
) -> tuple[float, int]:
    """The minutes to train on this machine, and the updates that they hold.

    They are as many minutes as `demo.updates` need, from `demo.minutes` to `demo.most_minutes`.

    Args:
        demo: What is trained.
        minutes: The budget that the user has chosen, which stays; None: the demo chooses.
        seconds_per_update: The speed of this machine.
        say: Prints a line: what was measured, and what follows from it.
    """
    needed = float(math.ceil(demo.updates * seconds_per_update / 60))
    budget = minutes if minutes is not None else min(max(needed, demo.minutes), demo.most_minutes)
    expected = int(budget * 60 / seconds_per_update)
    say(
        f"An update takes {seconds_per_update:.2f} seconds: about {count(expected, 'update')} fit into "
        f"{count(budget, 'minute')}. Answers that make sense need about {demo.updates:,}."
    )
    if budget > demo.minutes and minutes is None:
        say(f"This machine is slow: the demo trains for {count(budget, 'minute')} instead of {demo.minutes:g}.")
    if expected < demo.updates:
        say(f"These are too few. Good answers would need about {count(needed, 'minute')} here (--minutes {needed:g}).")
    return budget, expected
