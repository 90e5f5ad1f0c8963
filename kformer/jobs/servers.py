"""Workers that are servers: a batch goes to any of them, and to another one if that one is lost."""

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import Self

from kformer.client import ServerError
from kformer.jobs.answerer import Answerer, AnswererSource
from kformer.jobs.workers import Batch, Fate, Outcome
from kformer.text.batches import RefusedTextError

REQUESTS_AT_ONCE = 4  # for each server, which then always has the next request
_LONGEST_REST = 30.0  # seconds before a server that was lost is asked again
_SECONDS = 0.5  # between two looks at whether all servers are lost
_BUSY = (429, 503)  # statuses of a server that has not computed anything


class ServerWorkers:
    """Servers of the same model. A server that does not answer rests, longer each time, and is then asked again.

    Args:
        sources: One for each server.
        patience: Seconds during which no server answers anything; then the job ends, and can go on later.
        requests_at_once: For each server.
    """

    def __init__(
        self, sources: Sequence[AnswererSource], patience: float = 600.0, requests_at_once: int = REQUESTS_AT_ONCE
    ) -> None:
        self._patience = patience
        self._happened: queue.Queue[Outcome | _Requester] = queue.Queue()
        self._free: collections.deque[_Requester] = collections.deque()
        self._requesters = [_Requester(source, self._happened) for source in sources for _ in range(requests_at_once)]
        self._last_answer = 0.0

    def __enter__(self) -> Self:
        self._last_answer = time.monotonic()
        for requester in self._requesters:
            requester.start()
        return self

    def __exit__(self, *error: object) -> None:
        for requester in self._requesters:
            requester.end()

    def free(self) -> bool:
        return bool(self._free)

    def begin(self, batch: Batch) -> None:
        self._free.popleft().ask(batch)

    def wait(self) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            self._take(self._happened.get(timeout=_SECONDS), outcomes)
            while True:
                self._take(self._happened.get_nowait(), outcomes)
        if any(outcome.fate in (Fate.ANSWERED, Fate.REFUSED) for outcome in outcomes):
            self._last_answer = time.monotonic()
        elif time.monotonic() > self._last_answer + self._patience:
            raise ConnectionError(
                f"No server has answered for {self._patience:g} seconds. The last fault: {self._fault()}. Run the same "
                "command when they answer: it goes on."
            )
        return outcomes

    def _take(self, found: "Outcome | _Requester", outcomes: list[Outcome]) -> None:
        if isinstance(found, _Requester):
            self._free.append(found)
        else:
            outcomes.append(found)

    def _fault(self) -> str:
        return next((requester.fault for requester in self._requesters if requester.fault), "none is known")


class _Requester(threading.Thread):
    """Sends one batch after the other to a server.

    Args:
        source: Opens the client of the server.
        happened: Where outcomes go, and this requester itself whenever it can take a batch.
    """

    def __init__(self, source: AnswererSource, happened: "queue.Queue[Outcome | _Requester]") -> None:
        super().__init__(daemon=True)
        self._source = source
        self._happened = happened
        self._given: queue.Queue[Batch | None] = queue.Queue()
        self._ended = threading.Event()
        self._rest = 0.0
        self.fault = ""

    def ask(self, batch: Batch) -> None:
        self._given.put(batch)

    def end(self) -> None:
        self._ended.set()
        self._given.put(None)

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._source.opened() as answer:  # which asks the server for its model
                    self._serve(answer)
            except Exception as error:
                self.fault = f"{error}"
            self._rest = min(_LONGEST_REST, 2 * self._rest or 0.5)
            self._ended.wait(self._rest)

    def _serve(self, answer: Answerer) -> None:
        """Sends batches until one gets no answer."""
        while not self._ended.is_set():
            self._happened.put(self)
            batch = self._given.get()
            if batch is None:
                return
            outcome = _outcome(answer, batch)
            self._happened.put(outcome)
            if outcome.fate in (Fate.LOST, Fate.UNREACHED):
                self.fault = outcome.fault
                return
            self._rest, self.fault = 0.0, ""


def _outcome(answer: Answerer, batch: Batch) -> Outcome:
    try:
        return Outcome(batch, Fate.ANSWERED, answer(batch.texts, batch.seed))
    except RefusedTextError as error:
        return Outcome(batch, Fate.REFUSED, fault=f"{error}")
    except ServerError as error:
        fate = Fate.UNREACHED if error.code in _BUSY else Fate.LOST
        return Outcome(batch, fate, fault=f"{error}")
    except Exception as error:
        return Outcome(batch, Fate.REFUSED, fault=f"{error}")
