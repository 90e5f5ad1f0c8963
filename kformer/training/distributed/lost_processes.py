"""Prints a message and ends this process when another process of its group is lost."""

import atexit
import contextlib
import pathlib
import re
from collections.abc import Iterator

from kformer.runs.exit_status import RESUME, exit_status
from kformer.training.distributed.initialization import leave
from kformer.training.distributed.process_group import ProcessGroup
from kformer.training.distributed.watchdog import watchdog


@contextlib.contextmanager
def lost_processes_explained(group: ProcessGroup, run: pathlib.Path) -> Iterator[None]:
    """Says what to do when another process is lost. A process that fails in the block does not wait for the others.

    When a process is lost, JAX either raises an error in the others during a step, or ends them at once, from one of
    its own threads. In the second case the message comes from a helper process, see `watchdog`.

    Raises:
        ConnectionError: Another process was lost.
    """
    if group.world_size == 1:
        yield
        return
    folder = str(run) if group.is_main else "of process 0"
    again = f"The files of the run folder {folder} are undamaged: start all processes again with resume (`--resume`)."
    name = f"Process {group.rank} of {group.world_size}"
    ended = f"kformer: {name} was ended before its run was over: it was killed, or another process was lost."
    with watchdog(f"{ended} {again}"):
        try:
            yield
        except BaseException as error:
            loss = _loss(error)
            atexit.register(leave, exit_status(error) if loss is None else RESUME)
            if loss is None:
                raise
            raise ConnectionError(
                f"{name} could not finish a step with the others: one of them has ended or cannot be reached; "
                f"see their output. {again} (JAX says: {str(loss).splitlines()[0]})"
            ) from error


def _loss(error: BaseException | None) -> BaseException | None:
    """The error that reports a lost process: `error` itself, or one that was raised before it. None if there is none.

    JAX raises RuntimeErrors and ValueErrors of the libraries that exchange the gradients. Keras may raise another error
    after them, because it reads weights whose memory the failed step has released.
    """
    while error is not None:
        if isinstance(error, RuntimeError | ValueError) and re.search("gloo|nccl|coordination", str(error), re.I):
            return error
        error = error.__context__
    return None
