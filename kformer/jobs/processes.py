"""Workers that are processes of this machine."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from kformer.jobs.answerer import AnswererSource
from kformer.jobs.settings import BATCH_SECONDS
from kformer.jobs.workers import Batch, Fate, Outcome

_LOADING_SECONDS = 600.0  # for a worker to be ready
_MOST_FAILED_STARTS = 3  # in a row
_ENDING_SECONDS = 5.0
_STOPPED_SECONDS = 1.0  # so much later than it wanted, this process goes on: it was stopped, and its workers, too
_READY, _ANSWERS, _FAULT = "ready", "answers", "fault"


class WorkerLostError(ConnectionError):
    """Worker processes end before they can answer anything."""


@dataclasses.dataclass
class _Worker:
    """A process, and what it does."""

    process: Any
    pipe: Connection
    last_moment: float  # of what it does, by the monotonic clock
    is_ready: bool = False
    batch: Batch | None = None
    has_batch: bool = False  # and not only this process


class ProcessWorkers:
    """Worker processes, each with a model of its own. They end when this process ends, however it ends.

    A process that dies, or takes longer for a batch than it may, is replaced by a new one.

    Args:
        source: Opens the model in each process.
        processes: How many; by default as many as there are cores.
        seconds: For a batch; then its process is killed.
    """

    def __init__(self, source: AnswererSource, processes: int | None = None, seconds: float = BATCH_SECONDS) -> None:
        self._source = source
        self.processes = processes or len(os.sched_getaffinity(0))
        self.seconds = seconds
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._has_begun = False  # one worker was ready

    def __enter__(self) -> Self:
        self._workers = [self._started()]  # which makes the model ready for all, if that is needed
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.pipe.close()  # by which a worker without a batch ends
        for worker in self._workers:
            if worker.batch is not None or not worker.is_ready:
                worker.process.kill()
            worker.process.join(_ENDING_SECONDS)
            worker.process.kill()
            worker.process.join()

    def free(self) -> bool:
        return any(worker.is_ready and worker.batch is None for worker in self._workers)

    def begin(self, batch: Batch) -> None:
        worker = next(worker for worker in self._workers if worker.is_ready and worker.batch is None)
        worker.batch, worker.last_moment = batch, time.monotonic() + self.seconds
        worker.has_batch = False
        with contextlib.suppress(OSError):  # it has just died, which `wait` finds
            worker.pipe.send((batch.texts, batch.seed))
            worker.has_batch = True

    def wait(self) -> Sequence[Outcome]:
        busy = [worker for worker in self._workers if worker.batch is not None or not worker.is_ready]
        began = time.monotonic()
        first = max(began, min((worker.last_moment for worker in busy), default=began))
        happened = wait([worker.pipe for worker in busy], timeout=first - began)
        outcomes = [self._heard(worker) for worker in busy if worker.pipe in happened]
        now = time.monotonic()
        if now - first > _STOPPED_SECONDS:
            for worker in busy:  # nobody knows how much of its time a worker has had
                worker.last_moment = max(worker.last_moment, now + self.seconds)
        late = [worker for worker in busy if worker.pipe not in happened and worker.last_moment <= now]
        outcomes += [self._late(worker) for worker in late]
        return [outcome for outcome in outcomes if outcome is not None]

    def _started(self) -> _Worker:
        here, there = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(self._source, there), daemon=True)
        process.start()
        there.close()  # so that a read ends when the process does
        return _Worker(process, here, time.monotonic() + _LOADING_SECONDS)

    def _heard(self, worker: _Worker) -> Outcome | None:
        """What a worker has sent, or the loss of the worker."""
        try:
            said, value = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(_ENDING_SECONDS)
            fate = Fate.LOST if worker.has_batch else Fate.UNREACHED
            return self._lost(worker, fate, f"its process ended ({_how(worker.process.exitcode)})")
        batch, worker.batch = worker.batch, None
        if said == _READY:
            self._failed_starts = 0
            worker.is_ready = True
            if value and not self._has_begun:
                self._replace(worker)
            self._has_begun = True
            self._workers += [self._started() for _ in range(self.processes - len(self._workers))]
            return None
        if batch is None:  # it could not load the model
            if self._has_begun:  # as others could
                return self._lost(worker, Fate.UNREACHED, value)
            raise ValueError(value)
        if said == _ANSWERS:
            return Outcome(batch, Fate.ANSWERED, value)
        return Outcome(batch, Fate.REFUSED, fault=value)

    def _late(self, worker: _Worker) -> Outcome | None:
        told = f"no answer within {self.seconds:g} s" if worker.is_ready else f"not ready in {_LOADING_SECONDS:g} s"
        return self._lost(worker, Fate.REFUSED, told)

    def _lost(self, worker: _Worker, fate: Fate, fault: str) -> Outcome | None:
        """Puts a new process in the place of a lost one, and gives back its batch."""
        self._failed_starts += not worker.is_ready
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise WorkerLostError(
                f"{self._failed_starts} worker processes ended before the model was loaded; the last one: "
                f"{fault}. Is there memory for {self.processes}? Try --processes 1."
            )
        self._replace(worker)
        return None if worker.batch is None else Outcome(worker.batch, fate, fault=fault)

    def _replace(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers[self._workers.index(worker)] = self._started()


_SPAWN = multiprocessing.get_context("spawn")  # after a fork, TensorFlow's threads would not exist


def _how(exitcode: int | None) -> str:
    """How a process ended."""
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit status {exitcode}"


def _end_with_the_leader() -> None:
    """Ends this process when the one that leads it ends, also within a batch that takes for ever."""
    leader = multiprocessing.parent_process()
    if leader is not None:
        leader.join()
        os._exit(1)


def _work(source: AnswererSource, pipe: Connection) -> None:
    """What a worker process does, until nobody is at the other end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that leads
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_leader, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(source.opened())
        except Exception as error:
            pipe.send((_FAULT, f"{error}"))
            return
        # A worker that has made a SavedModel has imported TensorFlow for it, which takes 1 GB: a new one takes over.
        pipe.send((_READY, "tensorflow" in sys.modules))
        while True:
            texts, seed = pipe.recv()
            try:
                pipe.send((_ANSWERS, answer(texts, seed)))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:  # the next batch may succeed
                pipe.send((_FAULT, f"{error}"))
