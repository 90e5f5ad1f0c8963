"""`kformer pack`."""

from typing import Annotated

import typer

from kformer.cli.options import Path, Samples, SearchRecipe, read_samples
from kformer.cli.progress import status
from kformer.cli.startup import start_tensorflow
from kformer.config import read_mapping
from kformer.files.writing import check_new_folder
from kformer.presets.about import check_about
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder


def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[Path, typer.Argument(metavar="NEW", help="The folder to make.")],
    about: Annotated[
        Path | None,
        typer.Option(
            help="JSON or YAML with facts about the model: description, command, scores, licence, provenance."
        ),
    ] = None,
    recipe: SearchRecipe = None,
    samples: Samples = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1, max=127, help="Steps from zero to the largest weight of a row. Fewer steps: smaller, less exact."
        ),
    ] = 127,
) -> None:
    """Make a run folder small enough to be passed on: its best weights in bytes, without logs and checkpoints.

    The packed model has the search of the recipe, or else that of the run folder.
    """
    RunFolder(run).check()
    check_new_folder(output)
    said = read_mapping(about) if about is not None else {}
    check_about(said)
    decoding = load_recipe(recipe).decoding if recipe is not None else None
    lines = read_samples(samples)

    start_tensorflow()
    from kformer.presets import pack_run

    with status(f"packing {run}"):
        report = pack_run(run, output, said, steps, decoding, lines)
    print(
        f"{report.run.path}: {report.parameters:,} parameters, {report.size / 1e6:.2f} MB in all; the packed weights "
        f"are {report.relative_error:.2%} from the run's."
    )
