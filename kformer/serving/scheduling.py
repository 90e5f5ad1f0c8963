"""Which request is computed next, and which is refused because too many wait.

Small requests and large ones wait in lanes of their own. How clients share a lane: see `fair_queue`. Where both lanes
have work, they get equal time. Large requests leave a thread to small ones, so that a word does not wait for a page.
The methods are called by one thread at a time.
"""

import dataclasses
import math
import time

from kformer.runtime.status_codes import Code
from kformer.serving.errors import ServingError
from kformer.serving.fair_queue import FairQueue, Request
from kformer.serving.model_settings import Batching

# A request with more bytes of text gets a batch for itself. Such batches leave one thread to the others.
LONG_BYTES = 8 * 1024
# A request with more bytes of text is large. So is one with more texts than these, and than an eighth of a batch.
SMALL_BYTES = 1024
SMALL_TEXTS = 4
# For so long after a small request, large batches leave one thread to small ones.
SECONDS_KEPT = 5.0


@dataclasses.dataclass(eq=False)
class Lane:
    """The small requests, or the large ones.

    Args:
        queues: Of those that can share a batch, by what they have in common. None of them is empty.
        running: Batches that are being computed, and when each began.
        served: Seconds of threads that it has had.
        seen: When a request came last.
        promised: When the one that was refused last may come back.
    """

    queues: dict[object, FairQueue] = dataclasses.field(default_factory=dict)
    running: "dict[Batch, float]" = dataclasses.field(default_factory=dict)
    served: float = 0.0
    seen: float = -math.inf
    promised: float = -math.inf

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.queues

    def drop_cancelled(self) -> None:
        """Forgets the requests whose clients have gone."""
        for queue in self.queues.values():
            queue.drop_cancelled()
        self.queues = {key: queue for key, queue in self.queues.items() if len(queue)}


@dataclasses.dataclass(eq=False)
class Batch:
    """Requests that are computed together.

    Args:
        lane: Where they waited.
        requests: Without those whose clients have gone; none may be left.
    """

    lane: Lane
    requests: list[Request]

    @property
    def is_long(self) -> bool:
        return any(is_long(request) for request in self.requests)

    @property
    def seconds(self) -> float:
        """What it is expected to take."""
        return sum(request.seconds for request in self.requests)


class Lanes:
    """The requests that wait.

    Args:
        batching: How requests share batches.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._small, self._large = Lane(), Lane()
        self._long_running = 0  # batches

    @property
    def is_empty(self) -> bool:
        return not self._small.queues and not self._large.queues

    def waiting(self) -> list[Request]:
        """All requests that wait."""
        return [request for _, _, queue in self._all() for request in queue.requests]

    def put(self, request: Request, key: object, max_rows: int, seconds: float) -> None:
        """Puts a request into its queue.

        Args:
            request: The request.
            key: What it has in common with those that can share a batch with it.
            max_rows: The most rows of such a batch.
            seconds: The longest time that it may have to wait.

        Raises:
            ServingError: There is no room, or it would wait longer.
        """
        lane, other = (self._large, self._small) if self._is_large(request) else (self._small, self._large)
        if not self._has_room(lane, key, max_rows, request, seconds):
            lane.drop_cancelled()
        if not self._has_room(lane, key, max_rows, request, seconds):
            raise self._busy(lane, request, seconds)
        if lane.is_idle:  # a lane that had no work does not get extra time for that later
            lane.served = max(lane.served, other.served)
        lane.seen = time.monotonic()
        lane.queues.setdefault(key, FairQueue(max_rows)).put(request)

    def next(self, at_once: bool) -> Batch | float | None:
        """The next batch; or the seconds until there may be one; or None: nothing may begin before something ends.

        Args:
            at_once: Whether requests wait for no others.
        """
        found = [(lane, key, queue) for lane, key, queue in self._all() if self._may_begin(lane, queue)]
        if not found:
            return (self._seconds_kept() or None) if self._large.queues else None
        left = [0.0 if at_once else self._seconds_left(queue) for _, _, queue in found]
        ready = [entry for entry, seconds in zip(found, left, strict=True) if seconds <= 0]
        if not ready:
            return min(left)
        # One of the lane that has had less time, and there the one with the oldest request.
        lane, key, queue = min(ready, key=lambda entry: (entry[0].served, entry[2].oldest.entered))
        batch = Batch(lane, queue.take())
        if not queue:
            del lane.queues[key]
        if batch.requests:
            lane.running[batch] = time.monotonic()
            lane.served += batch.seconds
            self._long_running += batch.is_long
        return batch

    def end(self, batch: Batch, seconds: float) -> None:
        """Notes that a batch has been computed, and how long it took."""
        del batch.lane.running[batch]
        batch.lane.served += seconds - batch.seconds
        self._long_running -= batch.is_long

    def _all(self) -> list[tuple[Lane, object, FairQueue]]:
        return [(lane, key, queue) for lane in (self._small, self._large) for key, queue in lane.queues.items()]

    def _has_room(self, lane: Lane, key: object, max_rows: int, request: Request, seconds: float) -> bool:
        rows = lane.queues[key].rows_before(request.client) if key in lane.queues else 0
        # Before which nothing waits has room, even if it is larger than the queue.
        has_rows = not rows or rows + request.rows <= max_rows * self._batching.max_enqueued_batches
        return has_rows and self._wait(lane, request) <= seconds

    def _wait(self, lane: Lane, request: Request) -> float:
        """How long a request would wait, in seconds."""
        before = sum(queue.seconds_before(request.client) for queue in lane.queues.values())
        threads = self._threads(lane, request)
        if not before and len(lane.running) < threads:
            return 0.0
        now = time.monotonic()
        rest = sum(max(0.0, batch.seconds - (now - began)) for batch, began in lane.running.items())
        return (before + rest) / threads

    def _threads(self, lane: Lane, request: Request) -> int:
        """How many threads a request's lane has while others wait, too."""
        if lane is self._large:
            return self._most_large(is_long(request))
        return self._batching.num_batch_threads if self._large.is_idle else 1

    def _busy(self, lane: Lane, request: Request, seconds: float) -> ServingError:
        """Refuses a request, and says when there may be room: those that are refused come back one after the other."""
        wait, now = self._wait(lane, request), time.monotonic()
        turn = max(lane.promised, now + wait - seconds) + request.seconds / self._threads(lane, request)
        # Clients that do not obey are refused very often, and would put off the turns of others for hours.
        lane.promised = min(turn, now + self._batching.max_queue_seconds)
        texts = sum(entry.texts for queue in lane.queues.values() for entry in queue.requests)
        return ServingError(
            Code.RESOURCE_EXHAUSTED,
            f"The server is busy: {texts} texts wait already, and take about {wait:.1f} seconds. Send the request "
            "again later.",
            # What waits now lasts as long as `wait`: the threads would have nothing to do after it.
            retry_seconds=max(1, math.ceil(min(lane.promised - now, wait))),
        )

    def _seconds_left(self, queue: FairQueue) -> float:
        """How long the oldest request of a queue may still wait for others."""
        if queue.rows >= queue.max_rows:
            return 0.0
        return queue.oldest.entered + self._batching.batch_timeout_micros / 1e6 - time.monotonic()

    def _may_begin(self, lane: Lane, queue: FairQueue) -> bool:
        """Whether a thread may take a batch from this queue."""
        if lane is self._small:
            return True
        most_long = self._most_large(is_long=True)
        return len(lane.running) < self._most_large(is_long=False) and (
            not is_long(queue.oldest) or self._long_running < most_long
        )

    def _most_large(self, is_long: bool) -> int:
        """How many threads large requests may have, or long ones."""
        threads = self._batching.num_batch_threads
        return max(1, threads - (is_long or bool(self._small.queues) or self._seconds_kept() > 0))

    def _seconds_kept(self) -> float:
        """How long a thread is still kept for small requests after the last one; 0: it is not."""
        return max(0.0, self._small.seen + SECONDS_KEPT - time.monotonic())

    def _is_large(self, request: Request) -> bool:
        most = max(SMALL_TEXTS, self._batching.max_batch_size // 8)
        return request.texts > most or request.size > SMALL_BYTES


def is_long(request: Request) -> bool:
    """Whether a request has a batch for itself because of its text."""
    return request.size > LONG_BYTES
