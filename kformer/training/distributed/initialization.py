"""Connects this process with the others of its group. A process that fails ends without waiting for the others."""

import atexit
import os
import sys
import time

import keras

from kformer.training.distributed.watchdog import watchdog

# All in seconds. A process without a heartbeat for this time counts as lost, and the others end.
_HEARTBEAT_TIMEOUT = 30
_START_TIMEOUT = 300  # for all processes to start
_END_TIMEOUT = 7 * 24 * 3600  # for process 0, which may go on to evaluate and export while the others wait
_MAIN_EXIT_DELAY = 3  # before a process 0 that has failed exits
_VARIABLE = "KERAS_DISTRIBUTION_"


def initialize(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Makes this process a member of the group that trains together. Call it first, before anything is computed.

    Use it instead of `keras.distribution.initialize`, which would notice a lost process only after 100 seconds.
    Arguments that are not given are read from Keras's environment variables, `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
    `KERAS_DISTRIBUTION_NUM_PROCESSES` and `KERAS_DISTRIBUTION_PROCESS_ID`. If a value is still missing, JAX asks Slurm
    or Open MPI for it, where they run.

    Args:
        coordinator: "host:port" of process 0, which all others can reach.
        num_processes: The number of processes.
        process_id: The number of this process, from 0 up.

    Raises:
        ValueError: The backend is not JAX, or a value was neither given nor found.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"Several processes train on the JAX backend only. The backend is {keras.backend.backend()}. "
            "Set the environment variable KERAS_BACKEND=jax (and install kformer[jax])."
        )
    import jax
    from jax.experimental import multihost_utils

    if coordinator is None and _VARIABLE + "JOB_ADDRESSES" in os.environ:
        coordinator = os.environ[_VARIABLE + "JOB_ADDRESSES"]
    num_processes = _number(num_processes, "NUM_PROCESSES")
    process_id = _number(process_id, "PROCESS_ID")
    message = (
        f"kformer: process {process_id} of {num_processes} found no connection at {coordinator}. Start all of "
        f"them within {_START_TIMEOUT} seconds, with process ids from 0 up and one coordinator: an address of process "
        "0 that all can reach, with a free port."
    )
    with watchdog(message):  # JAX ends the process if the others do not come in time.
        try:
            jax.distributed.initialize(
                coordinator.split(",")[0] if coordinator else None,
                num_processes,
                process_id,
                initialization_timeout=_START_TIMEOUT,
                heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
                shutdown_timeout_seconds=_END_TIMEOUT,
            )
        except ValueError as error:
            raise ValueError(
                f"{error} Received: coordinator={coordinator}, num_processes={num_processes}, process_id={process_id}. "
                "Give all three."
            ) from error
        multihost_utils.sync_global_devices("kformer")  # The processes connect with each other now, not during work.
    atexit.register(_leave_after_an_error)


def _number(given: int | None, name: str) -> int | None:
    if given is None and _VARIABLE + name in os.environ:
        return int(os.environ[_VARIABLE + name])
    return given


def is_main() -> bool:
    """Whether this process is the only one, or number 0: the one that writes and prints."""
    if keras.backend.backend() != "jax":
        return True
    import jax

    return jax.process_index() == 0


def wait_for_the_others() -> None:
    """Waits until all processes of the group end, before this one ends without the exit functions of Python.

    Otherwise JAX would count this process as lost, and end the others. A process alone does not wait.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def _leave_after_an_error() -> None:
    if getattr(sys, "last_value", None) is not None:  # Python has just printed its traceback.
        leave(1)


def leave(status: int) -> None:
    """Ends this process after a failure, without JAX's final barrier, which waits for all processes.

    At that barrier the process would wait for processes that are lost, or that wait for this one. Python calls this
    function before JAX's exit function, because it is registered later. Process 0 waits a little before it exits: JAX
    ends the others as soon as process 0 is gone, and they may not have printed their messages yet.
    """
    if is_main():
        time.sleep(_MAIN_EXIT_DELAY)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
