"""What each demo of `kformer demo` trains and shows."""

import dataclasses

from kformer.config import TrainingConfig, TransformerConfig
from kformer.wording import did_you_mean


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """What a demo trains and shows."""

    task: str
    transformer: TransformerConfig
    training: TrainingConfig
    samples: int  # held-out sources shown during training
    shown: int  # test sources shown at the end


DEMOS = {
    "bible-en-es": DemoSettings(
        task="English to Spanish, on verses of the Bible",
        transformer=TransformerConfig.of_size("small"),
        training=TrainingConfig.of_size(
            "small", max_minutes=10.0, warmup_steps=500, learning_rate_scale=1.0, validation_steps=150
        ),
        samples=1,
        shown=5,
    ),
    "cmudict": DemoSettings(
        task="spelling to pronunciation, on the CMU dictionary",
        transformer=TransformerConfig.of_size("tiny"),
        training=TrainingConfig.of_size(
            "tiny", max_minutes=5.0, tokens_per_batch=2048, warmup_steps=500, validation_steps=500
        ),
        samples=3,
        shown=10,
    ),
}


def choose_settings(corpus: str, minutes: float | None) -> DemoSettings:
    """The settings of the demo on this corpus, trained for `minutes` if they are given.

    Raises:
        ValueError: There is no demo for this corpus, or it cannot be trained for this time.
    """
    if corpus not in DEMOS:
        raise ValueError(
            f"There is no demo for {corpus!r}. Choose one of {', '.join(DEMOS)}.{did_you_mean([corpus], DEMOS)}"
        )
    settings = DEMOS[corpus]
    if minutes is None:
        return settings
    return dataclasses.replace(settings, training=settings.training.replace(max_minutes=minutes))
