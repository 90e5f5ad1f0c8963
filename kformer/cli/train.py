"""`kformer train`."""

import signal
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
    task_in,
)
from kformer.cli.startup import start_tensorflow
from kformer.config import (
    MONITORS,
    TASKS,
    TrainingConfig,
    TransformerConfig,
    check_first_weights,
    check_layers,
    check_positions,
    task_kind,
)
from kformer.data import Corpus
from kformer.data.labels import check_corpus
from kformer.files.writing import check_folder_path
from kformer.presets import find_preset
from kformer.recipes import load_recipe
from kformer.runs.folder import RunFolder
from kformer.runs.ownership import check_not_owned
from kformer.runs.summary import RESUME, check_summary, failures_noted
from kformer.runtime.paths import check_export_path
from kformer.wording import count, did_you_mean

FEW_PAIRS = 100  # with fewer, no translation is learned
FEW_VALIDATION_PAIRS = 20  # with fewer, chance decides which weights are the best


def train(
    output: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to write.", rich_help_panel="Run")],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"What the model learns: {', '.join(TASKS)}. The default is translate. For classify, the target is a "
            "label; for tag, a label for each word; the language models read plain text.",
            autocompletion=lambda: list(TASKS),
            rich_help_panel="Model",
        ),
    ] = None,
    corpus: CorpusName = None,
    train: Annotated[
        Path | None,
        typer.Option(
            help="Pairs to train on: source, tab and target on each line, or plain text for a language model; .gz, "
            ".xz and .bz2 are read.",
            rich_help_panel="Data",
        ),
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(
            help="Pairs to validate on. By default one source in 50 of --train is held out, and 20 or one in 10 of a "
            "small file.",
            rich_help_panel="Data",
        ),
    ] = None,
    columns: Columns = None,
    train_source: Annotated[
        Path | None,
        typer.Option(help="Source lines to train on, parallel to those of --train-target.", rich_help_panel="Data"),
    ] = None,
    train_target: Annotated[Path | None, typer.Option(help="Target lines to train on.", rich_help_panel="Data")] = None,
    valid_source: Annotated[
        Path | None,
        typer.Option(help="Source lines to validate on, parallel to those of --valid-target.", rich_help_panel="Data"),
    ] = None,
    valid_target: Annotated[
        Path | None, typer.Option(help="Target lines to validate on.", rich_help_panel="Data")
    ] = None,
    size: SizeName = None,
    recipe: RecipeName = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="JSON or YAML with the fields to change, under `transformer:` and `training:`.",
            rich_help_panel="Model",
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The figure that decides which weights are best: {', '.join(MONITORS)}. The default is loss.",
            autocompletion=lambda: list(MONITORS),
            rich_help_panel="Stopping",
        ),
    ] = None,
    source_embeddings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Word vectors, word2vec's or GloVe's, for the embeddings of the source.",
            rich_help_panel="Model",
        ),
    ] = None,
    target_embeddings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Word vectors for the embeddings of the target.", rich_help_panel="Model"),
    ] = None,
    train_embeddings: Annotated[
        bool | None,
        typer.Option(
            "--train-embeddings/--freeze-embeddings",
            help="Whether training changes the embeddings that do not begin at random. By default it does.",
            rich_help_panel="Model",
        ),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Export each model that is the best so far as a new version.",
            rich_help_panel="Run",
        ),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(help="Budget in minutes of training, those before a resume included.", rich_help_panel="Stopping"),
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(help="Budget in passes over the corpus.", rich_help_panel="Stopping")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(help="Budget in optimizer updates.", rich_help_panel="Stopping")
    ] = None,
    initialize_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Begin with the weights, the vocabulary and the sizes of a run folder or of a preset.",
            rich_help_panel="Model",
        ),
    ] = None,
    auto_resume: Annotated[
        bool,
        typer.Option(
            "--auto-resume",
            help="Go on as with --resume if RUN holds a run, and begin one if not.",
            rich_help_panel="Run",
        ),
    ] = False,
    stop_signal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A further signal that saves and ends the run as SIGTERM does, such as SIGUSR1. May be repeated.",
            rich_help_panel="Stopping",
        ),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file that says how the run ended: exit status, reason, steps, best, paths.",
            rich_help_panel="Run",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the last checkpoint in RUN, as if the run had not stopped.",
            rich_help_panel="Run",
        ),
    ] = False,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of devices of this machine that share every batch; by default all GPUs.",
            rich_help_panel="Machines",
        ),
    ] = None,
    num_processes: Annotated[
        int | None,
        typer.Option(
            envvar="KERAS_DISTRIBUTION_NUM_PROCESSES",
            help="Number of processes that train together, on one or more machines. Start the same command in each.",
            rich_help_panel="Machines",
        ),
    ] = None,
    process_id: Annotated[
        int | None,
        typer.Option(
            envvar="KERAS_DISTRIBUTION_PROCESS_ID",
            help="Number of this process, from 0 up.",
            rich_help_panel="Machines",
        ),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            envvar="KERAS_DISTRIBUTION_JOB_ADDRESSES", help="HOST:PORT of process 0.", rich_help_panel="Machines"
        ),
    ] = None,
) -> None:
    """Train a translator, or a model of another task, on a corpus, a file of pairs or two parallel files.

    Ctrl-C and SIGTERM save the run; --resume goes on as if it had not been stopped. Without a budget the run ends when
    the validation score has stopped improving. Exit status: 0 finished, 1 a mistake to correct, 2 wrong usage, 3 the
    loss diverged, 74 a file could not be written, 75 to be resumed: a signal came, a process was lost, or another
    process trains in RUN, 130 stopped at once.
    """
    alone = (num_processes, process_id, coordinator) == (None, None, None)
    main = alone or process_id == 0  # the other processes write and print nothing
    goes_on = resume or (auto_resume and RunFolder(output).exists())
    if main:
        check_not_owned(output)  # first, because an existing summary may be the owner's
        if summary is not None:
            check_summary(summary, RunFolder(output))
            summary.unlink(missing_ok=True)  # it is of an earlier run
    with failures_noted(summary if main else None):
        signals = [_signal(name) for name in stop_signal or ()]
        for number in signals:  # until the training sets its own handlers
            signal.signal(number, signal.default_int_handler)
        if main:
            _check_folders(RunFolder(output), goes_on, export_to)
        options = {
            "monitor": monitor,
            "max_minutes": max_minutes,
            "max_epochs": max_epochs,
            "max_steps": max_steps,
            "source_embeddings": None if source_embeddings is None else str(source_embeddings),
            "target_embeddings": None if target_embeddings is None else str(target_embeddings),
            "train_embeddings": train_embeddings,
        }
        learned = task or task_in(config)
        if goes_on and (size, recipe) == (None, None):
            start = start_of_resumed_run(output, learned)
        else:  # `kformer.train` refuses to resume with a size or recipe of other settings than the run's
            start = start_of_new_run(size, recipe, _origin(initialize_from, RunFolder(output), goes_on), learned)
        transformer, training = change(start, config, options, task)
        if training is not None and transformer is not None and not goes_on:
            _check_model(transformer, training, initialize_from)
        learned = learned if transformer is None else transformer.task
        if learned is not None:
            _check_task_options(learned, columns, export_to)
        if recipe is not None and (corpus, train, train_source, train_target) == (None,) * 4:
            corpus = load_recipe(recipe).corpus
        chosen = choose_corpus(
            corpus,
            (train, valid),
            (train_source, train_target),
            (valid_source, valid_target),
            columns,
            plain_text=learned is not None and task_kind(learned).learns_from_plain_text,
        )
        if learned is not None:
            check_corpus(learned, chosen)
        if main:
            _warn_of_few_pairs(chosen, translates=learned is None or task_kind(learned).targets == "text")

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
            resume="auto" if auto_resume else resume,
            initialize_from=initialize_from,
            export_to=export_to,
            devices=devices,
            stop_signals=signals,
            summary=summary,
        )
    if is_main():
        monitor = report.run.training_config().monitor
        best = "none" if report.best is None else f"{report.best:.4f}"
        if report.best is not None and report.best == MONITORS[monitor].uninformative:
            best += ", so the loss decided which weights are kept"
        print(f"{count(report.steps, 'step')}: {report.reason}.", end=" ")
        print(f"Best validation {monitor} {best}. The run is in {report.run.path}.")
        if report.interrupted:
            print("To go on, give the same command with --resume.")
    if report.interrupted:
        raise typer.Exit(RESUME)


def _origin(initialize_from: str | None, run: RunFolder, goes_on: bool) -> RunFolder | None:
    """The run folder with the transformer of the initial weights. A resumed run has its own copy of it."""
    if initialize_from is None:
        return None
    return run if goes_on else find_preset(initialize_from)


def _check_folders(run: RunFolder, goes_on: bool, export_to: Path | None) -> None:
    """Refuses folders that a run cannot begin in, go on in, or export to."""
    if goes_on:
        run.check_begun()
    else:
        run.check_new()
    check_folder_path(run.path)
    if export_to is not None:
        check_export_path(export_to)


def _check_model(transformer: TransformerConfig, training: TrainingConfig, initialize_from: str | None) -> None:
    """Refuses a transformer, and first weights, that do not suit the task or its texts."""
    if initialize_from is not None:
        check_first_weights(transformer.task, find_preset(initialize_from).transformer_config().task)
    check_layers(transformer)
    check_positions(transformer, training)


def _check_task_options(task: str, columns: str | None, export_to: Path | None) -> None:
    """Refuses options that say nothing to the task."""
    if columns is not None and task_kind(task).learns_from_plain_text:
        raise ValueError(
            f"--columns names the columns of a tab-separated file. The task {task} reads plain text, a text on each "
            "line. Leave out --columns."
        )
    if columns is not None and task_kind(task).targets != "label" and "second" in columns.split(","):
        raise ValueError(
            f"A column second is the second text of a classifier. Received: --columns {columns} for the task {task}. "
            "Give it another name, and it is left out."
        )
    if export_to is not None and task_kind(task).outputs is None:
        raise ValueError(f"A model of the task {task} answers nothing by itself. Leave out --export.")


def _signal(name: str) -> signal.Signals:
    names = [one.name for one in signal.Signals if one not in (signal.SIGKILL, signal.SIGSTOP)]
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if full not in names:
        raise ValueError(
            f"--stop-signal must name a signal that can be handled, such as SIGUSR1. Received: {name}."
            f"{did_you_mean([full], names)}"
        )
    return signal.Signals[full]


def _warn_of_few_pairs(corpus: Corpus, translates: bool) -> None:
    if translates and len(corpus.train) < FEW_PAIRS:
        typer.echo(
            f"kformer: warning: {len(corpus.train)} pairs are too few to learn a translation from. Use at least ten "
            "thousand or so; with fewer, begin with the weights of another model by --initialize-from.",
            err=True,
        )
    if len(corpus.valid) < FEW_VALIDATION_PAIRS:
        typer.echo(
            f"kformer: warning: with {count(len(corpus.valid), 'validation pair')}, chance decides which weights are "
            f"the best. Use at least {FEW_VALIDATION_PAIRS}, better some hundreds, from a file of their own (--valid).",
            err=True,
        )
