"""Opens a run: process 0 begins it or goes on with it in its folder, and the other processes get a copy."""

import contextlib
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import rich.console

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig, task_kind
from kformer.data import Corpus
from kformer.presets import find_preset
from kformer.runs.folder import RunFolder
from kformer.runs.ownership import owned
from kformer.training.distributed import ProcessGroup
from kformer.training.new_run import start_run
from kformer.training.resumed_run import check_resumable, resume_run
from kformer.training.run_setup import RunSetup


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """Which run to open; the arguments are those of `kformer.train`."""

    folder: RunFolder
    corpus: Corpus
    transformer: TransformerConfig | None
    training: TrainingConfig | None
    resume: bool | Literal["auto"]
    initialize_from: str | pathlib.Path | None
    samples: Sequence[str] = ()
    decoding: DecodingConfig | None = None


@dataclasses.dataclass(frozen=True)
class OpenedRun:
    """A run that this process may train.

    Attributes:
        folder: The run folder; in processes other than the main one, a temporary copy.
        setup: What the run trains with.
        check_there: From `kformer.runs.ownership.owned`; None in processes that write nothing into the folder.
    """

    folder: RunFolder
    setup: RunSetup
    check_there: Callable[[], None] | None


@contextlib.contextmanager
def opened_run(request: RunRequest, group: ProcessGroup, console: rich.console.Console) -> Iterator[OpenedRun]:
    """Opens a run for the block. All processes of the group leave the block together.

    Args:
        request: Which run.
        group: The processes that train it.
        console: Where to print.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: See `kformer.train`.
        ConnectionError: Process 0 could not open the run.
    """
    if not group.is_main:
        with group.received_run() as copy:
            yield OpenedRun(copy, resume_run(copy, request.corpus), check_there=None)
            group.barrier()
        return
    tell = functools.partial(console.print, markup=False)  # a path may hold brackets
    with contextlib.ExitStack() as ownership:
        with group.failure_told():
            if request.resume is True:
                request.folder.check_begun()  # before `owned`, which makes the folder
            check_there = ownership.enter_context(owned(request.folder.path, tell))
            setup = _begin_or_go_on(request, group)
        group.send_run(request.folder)
        yield OpenedRun(request.folder, setup, check_there)
        group.barrier()


def _begin_or_go_on(request: RunRequest, group: ProcessGroup) -> RunSetup:
    folder, corpus, transformer, training = request.folder, request.corpus, request.transformer, request.training
    if request.resume is True or (request.resume == "auto" and folder.exists()):
        check_resumable(folder)
        _check_samples(folder.transformer_config().task, request.samples)
        return resume_run(folder, corpus, transformer, training, request.initialize_from)
    task = _new_task(request)
    _check_samples(task, request.samples)
    training = training or TrainingConfig.of_size("small", task)
    # The devices share every batch evenly.
    training = training.replace(batch_size_multiple=math.lcm(training.batch_size_multiple, group.replicas))
    return start_run(folder, corpus, transformer, training, request.initialize_from, request.decoding)


def _new_task(request: RunRequest) -> str:
    """What the model of a new run learns: what its configuration says, or else what its first weights have learned."""
    if request.transformer is not None:
        return request.transformer.task
    if request.initialize_from is not None:
        return find_preset(request.initialize_from).transformer_config().task
    return "translate"


def _check_samples(task: str, samples: Sequence[str]) -> None:
    if samples and task_kind(task).targets != "text":
        raise ValueError(f"samples are texts to translate. Received: samples, and the task {task}. Leave them out.")
