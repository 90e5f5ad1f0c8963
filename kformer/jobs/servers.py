"""Workers that are servers: a batch goes to any of them, and to another one if that one is lost."""

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Sequence
from typing import Self

from kformer.client import ServerError
from kformer.client.batches import REQUESTS_AT_ONCE
from kformer.jobs.answerer import Answerer, AnswererSource
from kformer.jobs.workers import Batch, Fate, Outcome

LONGEST_REST = 30.0  # seconds before a server that was lost is asked again
_SECONDS = 0.5  # between two looks at whether all servers are lost
LONGEST_HELD = 10.0  # seconds that a batch waits for another server than the one that did not answer it
_MOST_SERVERS = 2  # that do not answer the same batch
_BUSY, _LATE = (429, 503), 504  # statuses of a server that has not computed anything, or takes too long


class ServerWorkers:
    """Servers of the same model. A server that does not answer rests, longer each time, and is then asked again.

    A batch that one server refuses, or that is lost with a server, goes to another one, if there are several. What the
    first two of them do not answer comes back.

    Args:
        sources: One for each server.
        patience: Seconds during which no server answers anything; then the job ends, and can go on later.
        requests_at_once: For each server.
    """

    def __init__(
        self, sources: Sequence[AnswererSource], patience: float = 600.0, requests_at_once: int = REQUESTS_AT_ONCE
    ) -> None:
        self._patience = patience
        self._happened: queue.Queue[Outcome | _Requester | Exception] = queue.Queue()
        self._free: list[_Requester] = []
        self._held: list[tuple[Batch, float]] = []  # for another server than the one that has had them, and since when
        self._had: dict[tuple[int, tuple[int, ...]], list[int]] = {}  # the servers that a batch has had
        self._servers = range(len(sources))
        self._requesters = [
            _Requester(number, sources[number], self._happened)
            for number in self._servers
            for _ in range(requests_at_once)
        ]
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
        self._free.pop(0).ask(batch)

    def wait(self) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            self._take(self._happened.get(timeout=_SECONDS), outcomes)
            while True:
                self._take(self._happened.get_nowait(), outcomes)
        self._give_what_was_held_too_long()
        if any(outcome.fate in (Fate.ANSWERED, Fate.REFUSED) for outcome in outcomes):
            self._last_answer = time.monotonic()
        elif time.monotonic() > self._last_answer + self._patience:
            raise ConnectionError(
                f"No server has answered for {self._patience:g} seconds. The last fault: {self._fault()}. Run the same "
                "command when they answer: it goes on."
            )
        return outcomes

    def _take(self, found: "Outcome | _Requester | Exception", outcomes: list[Outcome]) -> None:
        if isinstance(found, Exception):
            raise found
        if isinstance(found, _Requester):
            self._ask_or_free(found)
        elif found.fate in (Fate.REFUSED, Fate.LOST) and self._has_another(found):
            self._held.append((found.batch, time.monotonic()))
            for requester in self._free:
                if self._may_have(requester, found.batch):
                    self._free.remove(requester)
                    self._ask_or_free(requester)
                    break
        else:
            if found.fate is not Fate.UNREACHED:  # or else nobody would know that a server was lost with it
                self._had.pop(_key(found.batch), None)
            outcomes.append(found)

    def _has_another(self, outcome: Outcome) -> bool:
        """Whether the batch may be asked of another server; notes the one that has had it."""
        if len(self._servers) < 2:
            return False
        had = self._had.setdefault(_key(outcome.batch), [])
        had.append(outcome.server)
        return len(had) < _MOST_SERVERS

    def _may_have(self, requester: "_Requester", batch: Batch) -> bool:
        return requester.server not in self._had.get(_key(batch), ())

    def _ask_or_free(self, requester: "_Requester") -> None:
        """Gives a requester a batch that is held for it, or else to whoever begins one."""
        for held in self._held:
            if self._may_have(requester, held[0]):
                self._held.remove(held)
                requester.ask(held[0])
                return
        self._free.append(requester)

    def _give_what_was_held_too_long(self) -> None:
        """No other server may be there."""
        now = time.monotonic()
        for held in [held for held in self._held if now - held[1] > LONGEST_HELD]:
            if self._free:
                self._held.remove(held)
                self._free.pop(0).ask(held[0])

    def _fault(self) -> str:
        return next((requester.fault for requester in self._requesters if requester.fault), "none is known")


def _key(batch: Batch) -> tuple[int, tuple[int, ...]]:
    return batch.part, batch.places


class _Requester(threading.Thread):
    """Sends one batch after the other to a server.

    Args:
        server: The number of the server.
        source: Opens its client.
        happened: Where outcomes go, and this requester itself whenever it can take a batch.
    """

    def __init__(
        self, server: int, source: AnswererSource, happened: "queue.Queue[Outcome | _Requester | Exception]"
    ) -> None:
        super().__init__(daemon=True)
        self.server = server
        self._source = source
        self._happened = happened
        self._given: queue.Queue[Batch | None] = queue.Queue()
        self._ended = threading.Event()
        self._rest = 0.0
        self._late: Outcome | None = None  # a batch that took too long, until it is known whether the server answers
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
                    self._tell_late(Fate.REFUSED)
                    self._serve(answer)
            except (ServerError, ValueError) as error:  # it may be another one when it comes back
                self.fault = f"{error}"
                self._tell_late(Fate.LOST)
            except Exception as error:
                self._happened.put(error)
                return
            self._rest = min(LONGEST_REST, 2 * self._rest or 0.5)
            self._ended.wait(self._rest)

    def _serve(self, answer: Answerer) -> None:
        """Sends batches until one gets no answer."""
        while not self._ended.is_set():
            self._happened.put(self)
            batch = self._given.get()
            if batch is None:
                return
            outcome = _outcome(answer, batch, self.server)
            if outcome.fate is Fate.LATE:
                self._late = outcome
                return
            self._happened.put(outcome)
            if outcome.fate in (Fate.LOST, Fate.UNREACHED):
                self.fault = outcome.fault
                return
            self._rest, self.fault = 0.0, ""

    def _tell_late(self, fate: Fate) -> None:
        """Tells the fate of a batch that took too long: of itself, or because the server does not answer any more."""
        if self._late is not None:
            self._happened.put(dataclasses.replace(self._late, fate=fate))
            self._late = None


def _outcome(answer: Answerer, batch: Batch, server: int) -> Outcome:
    try:
        return Outcome(batch, Fate.ANSWERED, answer(batch.texts, batch.seed), server=server)
    except ServerError as error:
        return Outcome(batch, _fate(error), fault=f"{error}", server=server)
    except ValueError as error:  # a text is refused, or the answer is no answer
        return Outcome(batch, Fate.REFUSED, fault=f"{error}", server=server)


def _fate(error: ServerError) -> Fate:
    if error.code in _BUSY and error.is_answer:
        return Fate.UNREACHED
    return Fate.LATE if error.code == _LATE else Fate.LOST
