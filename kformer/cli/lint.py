"""`kformer lint`."""

from typing import Annotated

import typer

from kformer.cli.options import Path
from kformer.cli.startup import start_tensorflow
from kformer.export.server_versions import known_server, oldest_server, processor, server_versions
from kformer.runtime.versions import find_saved_model
from kformer.wording import count

MOST_PLACES = 3  # shown of each finding; `--all` shows the rest


def lint(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A SavedModel, or the base folder of its versions.")],
    server_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The version of TensorFlow Serving that will run it, such as 2.17; by default the newest known one.",
            autocompletion=server_versions,
        ),
    ] = None,
    every_place: Annotated[bool, typer.Option("--all", help="Show every place of an operation in the graph.")] = False,
) -> None:
    """Report what would prevent a SavedModel, of kformer or not, from running in TensorFlow Serving.

    The exit status is 1 if the model would not load or a request would fail.
    """
    saved_model = find_saved_model(directory)
    if saved_model is None:
        raise ValueError(
            f"{directory} is no SavedModel, and holds no version that is one. Name the folder of an export."
        )
    server = server_versions()[-1] if server_version is None else known_server(server_version)

    start_tensorflow()
    from kformer.export.lint import lint as find_problems
    from kformer.export.operations import operations

    findings = find_problems(saved_model, server)
    for finding in findings:
        print(f"{'error' if finding.fatal else 'warning'}: {finding.problem}.\n    {finding.remedy}")
        shown = finding.paths if every_place else finding.paths[:MOST_PLACES]
        for path in shown:
            print(f"    at {' > '.join(path)}")
        if len(shown) < len(finding.paths):
            print(f"    and {count(len(finding.paths) - len(shown), 'further place')} (--all shows them)")
    used = operations(saved_model)
    oldest = oldest_server(used)
    needs = f"TensorFlow Serving from {oldest} on" if oldest else "no stock TensorFlow Serving"
    machine = "any processor" if processor(used) == "any" else processor(used)
    print(f"{saved_model}: {count(len(used), 'operation')}; by its operations it runs in {needs}, on {machine}.")
    if any(finding.fatal for finding in findings):
        raise typer.Exit(1)
