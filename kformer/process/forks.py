"""Refuses a forked process to compute: TensorFlow's threads do not exist there, and a call would wait for ever."""

import os

_computes_in: int | None = None  # the process in which TensorFlow was first used


def check_process() -> None:
    """Raises an error in a process that was forked after its parent had used TensorFlow.

    Raises:
        RuntimeError: This is such a process.
    """
    global _computes_in
    if _computes_in is None:
        _computes_in = os.getpid()
    if _computes_in != os.getpid():
        raise RuntimeError(
            f"A model cannot compute in process {os.getpid()}, which was forked from process {_computes_in} after a "
            "model had been loaded there: TensorFlow's threads do not exist in the copy. Start the workers with "
            'multiprocessing.get_context("spawn"), or load the first model in the workers and not before.'
        )
