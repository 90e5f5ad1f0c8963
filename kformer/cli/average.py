"""`kformer average`."""

from typing import Annotated

import typer

from kformer.cli.options import Path
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.files.writing import check_new_folder
from kformer.runs.folder import RunFolder


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[Path, typer.Argument(metavar="NEW", help="The run folder to make.")],
    last: Annotated[
        int | None,
        typer.Option(min=1, help="Number of last validations to average. By default all that the run has kept."),
    ] = None,
) -> None:
    """Average the weights of a run's last validations into a new run folder."""
    RunFolder(run).check_described().last_weights(last)
    check_new_folder(output)

    start_tensorflow()
    from kformer.training.averaging import average_weights

    with status(f"averaging the weights in {run}"):
        mean = average_weights(run, output, last)
    print(mean.path)
