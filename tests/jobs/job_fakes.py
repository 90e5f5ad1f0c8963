"""Models and workers for jobs, whose answers a reader can tell: the text in capitals."""

import contextlib
import dataclasses
import os
import signal
import sys
import time

from kformer.inference.lines import InputLine
from kformer.jobs.answerer import Answers
from kformer.jobs.workers import Batch, Fate, Outcome
from kformer.text.batches import Hypothesis

REFUSED, KILLS, SLEEPS = b"refused", b"kills", b"sleeps"


def read(path):
    """The lines of a file."""
    for line in path.read_bytes().splitlines():
        yield InputLine(line)


def capitals(texts, seed=0):
    """The answers: the texts in capitals, and the seed of the batch as their score."""
    notes = [place for place, text in enumerate(texts) if text.startswith(b"odd")]
    return Answers(
        [[Hypothesis(text.decode().upper(), float(seed))] for text in texts], {"odd": notes} if notes else {}
    )


@dataclasses.dataclass(frozen=True)
class Capitals:
    """Opens `capitals`. A text can be refused, kill its process, or sleep for an hour.

    Args:
        fault: Raised when it is opened.
        log: A file to which the process writes its number when it is ready.
        seconds: For each batch.
        imports_tensorflow: Whether the process looks as if it had, as one that has made a SavedModel.
    """

    fault: str = ""
    log: str = ""
    seconds: float = 0.0
    imports_tensorflow: bool = False

    @contextlib.contextmanager
    def opened(self):
        if self.fault == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault:
            raise ValueError(self.fault)
        if self.imports_tensorflow:
            sys.modules.setdefault("tensorflow", sys)
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"{os.getpid()}\n")
        yield self.answer

    def answer(self, texts, seed):
        time.sleep(self.seconds)
        if REFUSED in texts:
            raise ValueError("it is a bad word")
        if KILLS in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        if SLEEPS in texts:
            time.sleep(3600)
        return capitals(texts, seed)


class OneWorker:
    """Answers one batch at a time, in this thread.

    Args:
        answer: From texts and a seed to `Answers`; an error that it raises is the outcome's fault.
    """

    def __init__(self, answer=capitals):
        self.answer = answer
        self.asked: list[Batch] = []
        self._batch = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def free(self):
        return self._batch is None

    def begin(self, batch):
        self._batch = batch
        self.asked.append(batch)

    def wait(self):
        batch, self._batch = self._batch, None
        try:
            return [Outcome(batch, Fate.ANSWERED, self.answer(batch.texts, batch.seed))]
        except ValueError as error:
            return [Outcome(batch, Fate.REFUSED, fault=str(error))]
        except EOFError as error:
            return [Outcome(batch, Fate.LOST, fault=str(error))]
        except ConnectionError as error:
            return [Outcome(batch, Fate.UNREACHED, fault=str(error))]
