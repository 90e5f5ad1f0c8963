"""A queue of requests in which every client has a share: who asks for much waits behind who asks for little.

Requests are taken in the order in which they would begin if all clients were served at the same time, with equal shares
(start-time fair queuing, https://doi.org/10.1109/90.649569).
"""

import collections
import concurrent.futures
import dataclasses
import heapq
import itertools
import time
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

Arrays: TypeAlias = Mapping[str, np.ndarray]
Answer: TypeAlias = "concurrent.futures.Future[dict[str, np.ndarray]]"

# The most bytes of text that several requests have in one batch, so that nobody waits for another client's long text.
BATCH_BYTES = 16 * 1024
_LEAST = 1e-6  # seconds of a row that was never measured: rows count alike then


@dataclasses.dataclass(eq=False)
class Request:
    """A request that waits.

    Args:
        signature: The signature's name.
        inputs: Its inputs.
        rows: Of a batch; 1 if the request has a batch for itself.
        texts: Its texts.
        size: Bytes of its texts.
        longest: Bytes of the longest one.
        shared: Whether it may share a batch.
        client: Who asks.
        seconds: What it is expected to cost.
    """

    signature: str
    inputs: Arrays
    rows: int
    texts: int
    size: int
    longest: int
    shared: bool
    client: str
    seconds: float
    answer: Answer = dataclasses.field(default_factory=concurrent.futures.Future)
    entered: float = dataclasses.field(default_factory=time.monotonic)


@dataclasses.dataclass
class _Share:
    """What one client has in a queue."""

    requests: int = 0
    rows: int = 0
    seconds: float = 0.0
    end: float = 0.0  # of its last request, on the queue's clock


class FairQueue:
    """Requests that can share a batch.

    Args:
        max_rows: The most rows of a batch.
    """

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = 0
        self._clock = 0.0
        self._heap: list[tuple[float, int, Request]] = []
        self._arrived: dict[Request, None] = {}  # the oldest first
        self._shares: collections.defaultdict[str, _Share] = collections.defaultdict(_Share)
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._arrived)

    @property
    def requests(self) -> list[Request]:
        """Those that wait, the oldest first."""
        return list(self._arrived)

    @property
    def oldest(self) -> Request:
        return next(iter(self._arrived))

    @property
    def seconds(self) -> float:
        """What all that wait are expected to cost."""
        return sum(share.seconds for share in self._shares.values())

    def rows_before(self, client: str) -> int:
        """Rows that are taken before another request of this client, at most: as many of each client as of this one."""
        own = self._shares[client].rows if client in self._shares else 0
        return min(self.rows, own * self._clients_with(client))

    def seconds_before(self, client: str) -> float:
        """What they are expected to cost."""
        own = self._shares[client].seconds if client in self._shares else 0.0
        return min(self.seconds, own * self._clients_with(client))

    def put(self, request: Request) -> None:
        share = self._shares[request.client]
        begin = max(self._clock, share.end)
        share.end = begin + max(request.seconds, _LEAST * request.rows)
        share.requests += 1
        share.rows += request.rows
        share.seconds += request.seconds
        self.rows += request.rows
        self._arrived[request] = None
        heapq.heappush(self._heap, (begin, next(self._numbers), request))

    def drop_cancelled(self) -> None:
        """Forgets the requests whose clients have gone."""
        for request in [request for request in self._arrived if request.answer.cancelled()]:
            self._leave(request)
        self._heap = [entry for entry in self._heap if entry[2] in self._arrived]
        heapq.heapify(self._heap)

    def take(self) -> list[Request]:
        """A batch. Requests whose clients have gone are left out."""
        batch: list[Request] = []
        rows = size = 0
        while self._heap:
            begin, _, request = self._heap[0]
            if batch and (rows + request.rows > self.max_rows or size + request.size > BATCH_BYTES):
                break
            heapq.heappop(self._heap)
            self._clock = max(self._clock, begin)
            self._leave(request)
            if request.answer.set_running_or_notify_cancel():
                batch.append(request)
                rows += request.rows
                size += request.size
        return batch

    def _leave(self, request: Request) -> None:
        del self._arrived[request]
        self.rows -= request.rows
        share = self._shares[request.client]
        share.requests -= 1
        share.rows -= request.rows
        share.seconds -= request.seconds
        if not share.requests:
            del self._shares[request.client]

    def _clients_with(self, client: str) -> int:
        return len(self._shares) + (client not in self._shares)
