"""`kformer demo`: what each demo trains and shows; `demo_steps` does it."""

import dataclasses
from typing import Annotated

import typer

from kformer.cli.options import SHIPPED_CORPORA, Path
from kformer.cli.startup import start_tensorflow
from kformer.config import TrainingConfig, TransformerConfig, did_you_mean
from kformer.files import check_folder_path


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


def demo(
    corpus: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="bible-en-es (translation) or cmudict (pronunciation).",
            autocompletion=lambda: list(SHIPPED_CORPORA),
        ),
    ] = "bible-en-es",
    output: Annotated[
        Path | None, typer.Option(help="The folder for the run and the export; by default demo-CORPUS.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes of training; by default 10, or 5 for cmudict.")] = None,
) -> None:
    """Train, evaluate, export and use a small translator, in under fifteen minutes on two cores."""
    settings = choose_settings(corpus, minutes)
    folder = output or Path(f"demo-{corpus}")
    check_folder_path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty. Remove it, or name another folder with --output.")

    start_tensorflow()
    from kformer.cli.demo_steps import run_demo

    run_demo(corpus, settings, folder)


def choose_settings(corpus: str, minutes: float | None) -> DemoSettings:
    """The settings of the demo on this corpus, with another training time if one is given.

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
