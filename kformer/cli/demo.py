"""`kformer demo`; `demo_settings` says what each demo trains, and `demo_steps` does it."""

from typing import Annotated

import typer

from kformer.cli.demo_settings import DEMOS, find_demo
from kformer.cli.options import Path
from kformer.cli.startup import start_tensorflow
from kformer.runtime.paths import check_export_path


def demo(
    corpus: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="bible-en-es (translation) or cmudict (pronunciation).",
            autocompletion=lambda: list(DEMOS),
        ),
    ] = "bible-en-es",
    output: Annotated[
        Path | None, typer.Option(help="The folder for the run and the export; by default demo-CORPUS.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes of training; by default 10, or 5 for cmudict, and more on a slow machine."),
    ] = None,
) -> None:
    """Train, evaluate, export and use a small translator.

    The demo first measures how fast this machine trains, and chooses the minutes for it: under fifteen minutes in all
    on two fast cores, under an hour and a quarter on a slow machine.
    """
    chosen = find_demo(corpus, minutes)
    folder = output or Path(f"demo-{corpus}")
    check_export_path(folder / "export")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty. Remove it, or name another folder with --output.")

    start_tensorflow()
    from kformer.cli.demo_steps import run_demo

    run_demo(corpus, chosen, minutes, folder)
