"""`kformer train`."""

from typing import Annotated

import typer

from kformer.cli.options import (
    Columns,
    CorpusName,
    Path,
    RecipeName,
    SizeName,
    change,
    choose_corpus,
    start_of_new_run,
    start_of_resumed_run,
)
from kformer.cli.startup import start_tensorflow
from kformer.config import MONITORS
from kformer.data import Corpus
from kformer.files import check_folder_path
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder

FEW_PAIRS = 100  # a translation is not learned from fewer


def train(
    output: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to write.")],
    corpus: CorpusName = None,
    train: Annotated[
        Path | None, typer.Option(help="Pairs to train on: source, tab and target on each line; .gz and .xz are read.")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Pairs to validate on. By default one source in 50 of --train is held out.")
    ] = None,
    columns: Columns = None,
    train_source: Annotated[
        Path | None, typer.Option(help="Source lines to train on, parallel to those of --train-target.")
    ] = None,
    train_target: Annotated[Path | None, typer.Option(help="Target lines to train on.")] = None,
    valid_source: Annotated[
        Path | None, typer.Option(help="Source lines to validate on, parallel to those of --valid-target.")
    ] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Target lines to validate on.")] = None,
    size: SizeName = None,
    recipe: RecipeName = None,
    config: Annotated[
        Path | None, typer.Option(help="JSON or YAML with the fields to change, under `transformer:` and `training:`.")
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The figure that decides which weights are best: {', '.join(MONITORS)}. The default is loss.",
            autocompletion=lambda: list(MONITORS),
        ),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Export each model that is the best so far as a new version."),
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Budget in minutes of training.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Budget in passes over the corpus.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Budget in optimizer updates.")] = None,
    initialize_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Begin with the weights, the vocabulary and the sizes of a run folder or of a preset.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN, as if the run had not stopped.")
    ] = False,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Number of devices of this machine that share every batch; by default all GPUs."),
    ] = None,
    num_processes: Annotated[
        int | None,
        typer.Option(
            envvar="KERAS_DISTRIBUTION_NUM_PROCESSES",
            help="Number of processes that train together, on one or more machines. Start the same command in each.",
        ),
    ] = None,
    process_id: Annotated[
        int | None,
        typer.Option(envvar="KERAS_DISTRIBUTION_PROCESS_ID", help="Number of this process, from 0 up."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(envvar="KERAS_DISTRIBUTION_JOB_ADDRESSES", help="HOST:PORT of process 0."),
    ] = None,
) -> None:
    """Train a translator on a corpus, a file of pairs or two parallel files.

    Ctrl-C ends the run cleanly: the best weights and the last checkpoint are saved. Without a budget the
    run ends when the validation score has stopped improving.
    """
    alone = (num_processes, process_id, coordinator) == (None, None, None)
    main = alone or process_id == 0  # the other processes write and print nothing
    if main:
        _check_folders(RunFolder(output), resume, export_to)
    options = {"monitor": monitor, "max_minutes": max_minutes, "max_epochs": max_epochs, "max_steps": max_steps}
    if resume and (size, recipe) == (None, None):
        start = start_of_resumed_run(output)
    else:  # `kformer.train` refuses to resume with a size or recipe of other settings than the run's
        start = start_of_new_run(size, recipe, initialize_from)
    transformer, training = change(start, config, options)
    if recipe is not None and (corpus, train, train_source, train_target) == (None,) * 4:
        corpus = load_recipe(recipe).corpus
    chosen = choose_corpus(corpus, (train, valid), (train_source, train_target), (valid_source, valid_target), columns)
    if main:
        _warn_of_few_pairs(chosen)

    start_tensorflow()
    from kformer.training.distributed import initialize, is_main
    from kformer.training.train import train as train_run

    if not alone:  # Join the process group last, so that a bad option stops only this process.
        initialize(coordinator, num_processes, process_id)
    report = train_run(
        chosen,
        output,
        transformer,
        training,
        resume=resume,
        initialize_from=initialize_from,
        export_to=export_to,
        devices=devices,
    )
    if is_main():
        monitor = report.run.training_config().monitor
        best = "none" if report.best is None else f"{report.best:.4f}"
        print(f"{report.steps:,} steps: {report.reason}.", end=" ")
        print(f"Best validation {monitor} {best}. The run is in {report.run.path}.")


def _check_folders(run: RunFolder, resume: bool, export_to: Path | None) -> None:
    """Refuses folders that a run cannot begin in, go on in, or export to."""
    if resume:
        run.check_begun()
    else:
        run.check_new()
    for folder in filter(None, (run.path, export_to)):
        check_folder_path(folder)


def _warn_of_few_pairs(corpus: Corpus) -> None:
    if len(corpus.train) < FEW_PAIRS:
        typer.echo(
            f"kformer: warning: {len(corpus.train)} pairs are too few to learn a translation from. Use at least ten "
            "thousand or so; with fewer, begin with the weights of another model by --initialize-from.",
            err=True,
        )
