"""`kformer train`."""

import dataclasses
import functools
import signal
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from kformer.cli.command_form import with_options
from kformer.cli.options import Path
from kformer.cli.startup import start_tensorflow
from kformer.cli.train_config import FIELD_OPTIONS, StartOptions, choose_configs, read_changes
from kformer.cli.train_corpus import CleaningOptions, CorpusOptions, warn_of_corpus
from kformer.config import MONITORS, DecodingConfig, task_kind
from kformer.data import Corpus
from kformer.files.writing import check_folder_path
from kformer.runs.exit_status import RESUME
from kformer.runs.folder import RunFolder
from kformer.runs.ownership import check_not_owned
from kformer.runs.summary import check_summary, failures_noted, remove_summary
from kformer.runtime.paths import check_export_path
from kformer.wording import count, did_you_mean

_run = functools.partial(typer.Option, rich_help_panel="Run")
_machines = functools.partial(typer.Option, rich_help_panel="Machines")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The options that say what a run writes, how it is resumed, and which signals save it."""

    output: Annotated[Path, _run(metavar="RUN", help="The run folder to write.")]
    export_to: Annotated[
        Path | None,
        _run("--export", metavar="DIR", help="Export each model that is the best so far as a new version."),
    ] = None
    resume: Annotated[
        bool, _run("--resume", help="Go on from the last checkpoint in RUN, as if the run had not stopped.")
    ] = False
    auto_resume: Annotated[
        bool, _run("--auto-resume", help="Go on as with --resume if RUN holds a run, and begin one if not.")
    ] = False
    summary: Annotated[
        Path | None, _run(help="A JSON file that says how the run ended: exit status, reason, steps, best, paths.")
    ] = None
    stop_signal: Annotated[
        list[str] | None,
        _run(
            metavar="NAME",
            help="A further signal that saves and ends the run as SIGTERM does, such as SIGUSR1. May be repeated.",
        ),
    ] = None

    @property
    def goes_on(self) -> bool:
        """Whether the run goes on, and does not begin."""
        return self.resume or (self.auto_resume and RunFolder(self.output).exists())

    @property
    def signals(self) -> list[signal.Signals]:
        """The further signals."""
        return [_signal(name) for name in self.stop_signal or ()]


@dataclasses.dataclass(frozen=True)
class MachineOptions:
    """The options that say which devices and processes train together."""

    devices: Annotated[
        int | None,
        _machines(min=1, help="Number of devices of this machine that share every batch; by default all GPUs."),
    ] = None
    num_processes: Annotated[
        int | None,
        _machines(
            envvar="KERAS_DISTRIBUTION_NUM_PROCESSES",
            help="Number of processes that train together, on one or more machines. Start the same command in each.",
        ),
    ] = None
    process_id: Annotated[
        int | None, _machines(envvar="KERAS_DISTRIBUTION_PROCESS_ID", help="Number of this process, from 0 up.")
    ] = None
    coordinator: Annotated[
        str | None, _machines(envvar="KERAS_DISTRIBUTION_JOB_ADDRESSES", help="HOST:PORT of process 0.")
    ] = None

    @property
    def alone(self) -> bool:
        """Whether this process trains without others."""
        return (self.num_processes, self.process_id, self.coordinator) == (None, None, None)

    @property
    def are_main(self) -> bool:
        """Whether this is the main process. The others write and print nothing."""
        return self.alone or self.process_id == 0


@with_options(FIELD_OPTIONS)
def train(
    run: RunOptions,
    corpus: CorpusOptions,
    cleaning: CleaningOptions,
    start: StartOptions,
    machines: MachineOptions,
    **fields: Any,
) -> None:
    """Train a translator, or a model of another task, on a corpus, a file of pairs or two parallel files.

    Ctrl-C and SIGTERM save the run; --resume goes on as if it had not been stopped. Without a budget the run ends when
    the validation score has stopped improving. Exit status: 0 finished, 1 a mistake to correct, 2 wrong usage, 3 the
    loss diverged, 74 a file could not be written, 75 to be resumed: a signal came, a process was lost, or another
    process trains in RUN, 130 stopped at once.

    The defaults that are told below are those of the size small. Another size, a recipe and the run of --resume and
    --initialize-from have values of their own. The file of --config changes these, and an option wins over all.
    """
    run_training(run, corpus, cleaning, start, machines, fields)


def run_training(
    run: RunOptions,
    corpus: CorpusOptions,
    cleaning: CleaningOptions,
    start: StartOptions,
    machines: MachineOptions,
    fields: Mapping[str, Any],
    taught: Callable[[Corpus], Corpus] = lambda corpus: corpus,
    decoding: DecodingConfig | None = None,
) -> None:
    """Trains as the options say, on what `taught` makes of the corpus; `decoding` is the search of the model."""
    folder, goes_on = RunFolder(run.output), run.goes_on
    if machines.are_main:
        check_not_owned(run.output)  # first, because an existing summary may be the owner's
        if run.summary is not None:
            check_summary(run.summary, folder)
            remove_summary(run.summary)  # it is of an earlier run
    with failures_noted(run.summary if machines.are_main else None):
        for number in run.signals:  # until the training sets its own handlers
            signal.signal(number, signal.default_int_handler)
        if machines.are_main:
            _check_folders(folder, goes_on, run.export_to)
        changes = read_changes(start.config, fields)
        transformer, training = choose_configs(start, changes, folder, goes_on)
        task = changes.transformer.get("task") if transformer is None else transformer.task
        began_with = folder.corpus().get("name") if goes_on and folder.corpus_file.is_file() else None
        if run.export_to is not None and task is not None and task_kind(task).outputs is None:
            raise ValueError(f"A model of the task {task} answers nothing by itself. Leave out --export.")
        options = corpus.with_file(start.config)
        if training is not None:
            options.check_aligned(training)
        chosen = options.of_task(task, start.recipe, cleaning.rules, began_with)
        if machines.are_main:
            warn_of_corpus(chosen, task)
        chosen = taught(chosen)

        start_tensorflow()
        from kformer.training.distributed import initialize, is_main
        from kformer.training.train import train as train_run

        if not machines.alone:  # Join the process group last, so that a bad option stops only this process.
            initialize(machines.coordinator, machines.num_processes, machines.process_id)
        report = train_run(
            chosen,
            run.output,
            transformer,
            training,
            resume="auto" if run.auto_resume else run.resume,
            initialize_from=start.initialize_from,
            export_to=run.export_to,
            devices=machines.devices,
            decoding=decoding,
            stop_signals=run.signals,
            summary=run.summary,
        )
    if is_main():
        _tell(report)
    if report.interrupted:
        raise typer.Exit(RESUME)


def _tell(report: Any) -> None:
    """Prints how a run ended; `report` is a `kformer.training.train.TrainingReport`, which needs TensorFlow."""
    monitor = report.run.training_config().monitor
    best = "none" if report.best is None else f"{report.best:.4f}"
    if report.best is not None and report.best == MONITORS[monitor].uninformative:
        best += ", so the loss decided which weights are kept"
    print(f"{count(report.steps, 'step')}: {report.reason}.", end=" ")
    print(f"Best validation {monitor} {best}. The run is in {report.run.path}.")
    if report.interrupted:
        print("To go on, give the same command with --resume.")


def _check_folders(run: RunFolder, goes_on: bool, export_to: Path | None) -> None:
    """Refuses folders that a run cannot begin in, go on in, or export to."""
    if goes_on:
        run.check_begun()
    else:
        run.check_new()
    check_folder_path(run.path)
    if export_to is not None:
        check_export_path(export_to)


def _signal(name: str) -> signal.Signals:
    names = [one.name for one in signal.Signals if one not in (signal.SIGKILL, signal.SIGSTOP)]
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if full not in names:
        raise ValueError(
            f"--stop-signal must name a signal that can be handled, such as SIGUSR1. Received: {name}."
            f"{did_you_mean([full], names)}"
        )
    return signal.Signals[full]
