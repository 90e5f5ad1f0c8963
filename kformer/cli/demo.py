"""`kformer demo`; `demo_settings` says what each demo trains, and `demo_steps` does it."""

from typing import Annotated

import typer

from kformer.cli.demo_settings import choose_settings
from kformer.cli.options import SHIPPED_CORPORA, Path
from kformer.cli.startup import start_tensorflow
from kformer.files import check_folder_path


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
