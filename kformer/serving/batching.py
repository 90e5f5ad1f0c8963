"""Requests of several clients in one batch: a thread takes waiting requests, and gives every client its rows.

As in TensorFlow Serving, a request waits for others until the batch is full or its time is over.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np

from kformer.serving.config_files import Batching
from kformer.serving.errors import Code, ServingError

Arrays: TypeAlias = Mapping[str, np.ndarray]
Run: TypeAlias = Callable[[str, Arrays], dict[str, np.ndarray]]
Answer: TypeAlias = "concurrent.futures.Future[dict[str, np.ndarray]]"

# The most bytes of text that several requests have in one batch, so that nobody waits for another client's long text.
BATCH_BYTES = 16 * 1024
# A request with more bytes of text gets a batch for itself. Such batches leave one thread to the others.
LONG_BYTES = 8 * 1024


class ClosedError(Exception):
    """The batcher takes no more requests."""


@dataclasses.dataclass
class _Request:
    signature: str
    inputs: Arrays
    rows: int  # of a batch; 1 if the request has a batch for itself
    texts: int
    size: int  # bytes of its texts
    shared: bool
    answer: Answer = dataclasses.field(default_factory=concurrent.futures.Future)
    entered: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def is_long(self) -> bool:
        return self.size > LONG_BYTES


class _Queue:
    """Requests that can share a batch, the oldest first."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows  # of a batch
        self.requests: collections.deque[_Request] = collections.deque()
        self.rows = 0

    def put(self, request: _Request) -> None:
        self.requests.append(request)
        self.rows += request.rows

    def drop_cancelled(self) -> None:
        """Forgets the requests whose clients have gone."""
        self.requests = collections.deque(request for request in self.requests if not request.answer.cancelled())
        self.rows = sum(request.rows for request in self.requests)

    def take(self) -> list[_Request]:
        """A batch. Requests whose clients have gone are left out."""
        batch: list[_Request] = []
        rows = size = 0
        while self.requests and (
            not batch or (rows + self.requests[0].rows <= self.max_rows and size + self.requests[0].size <= BATCH_BYTES)
        ):
            request = self.requests.popleft()
            self.rows -= request.rows
            if request.answer.set_running_or_notify_cancel():
                batch.append(request)
                rows += request.rows
                size += request.size
        return batch


class Batcher:
    """Runs a model's signatures in threads of its own.

    Args:
        run: Computes a signature's outputs from its inputs; several threads call it at once.
        batching: How requests share batches.
        on_batch: Called after each batch with its signature, its rows and the seconds it took.
    """

    def __init__(self, run: Run, batching: Batching, on_batch: Callable[[str, int, float], None]) -> None:
        self._run = run
        self._batching = batching
        self._on_batch = on_batch
        self._queues: dict[object, _Queue] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._long_running = 0  # batches

    def start(self, requests: Sequence[tuple[str, Arrays]] = ()) -> None:
        """Starts the threads. They share these requests among them, and then answer those of clients.

        TensorFlow prepares a part of its work for each thread separately, so every thread should run some of them.

        Args:
            requests: Signatures and inputs.

        Raises:
            Exception: The error of a request that failed.
        """
        warmup: SimpleQueue[tuple[str, Arrays]] = SimpleQueue()
        for request in requests:
            warmup.put(request)
        ready: list[concurrent.futures.Future[None]] = []
        for number in range(self._batching.num_batch_threads):
            done: concurrent.futures.Future[None] = concurrent.futures.Future()
            thread = threading.Thread(target=self._work, args=(warmup, done), name=f"batch-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)
            ready.append(done)
        try:
            for done in ready:
                done.result()
        except BaseException:
            self.close()
            raise

    def submit(self, signature: str, inputs: Arrays, shared: bool) -> Answer:
        """Puts a request into its queue.

        Args:
            signature: The signature's name.
            inputs: If `shared`, all have the same first dimension.
            shared: Whether it may share a batch with other requests, if it is not long.

        Raises:
            ServingError: The queue is full.
            ClosedError: After `close`.
        """
        size = sum(len(text) for array in inputs.values() if array.dtype == object for text in array.flat)
        shared = shared and size <= LONG_BYTES
        texts = max((len(array) for array in inputs.values() if array.ndim), default=1)
        rows = texts if shared else 1
        request = _Request(signature, inputs, rows, texts, size, shared)
        # Requests that share no batch wait in two queues, one for short requests and one for long ones.
        shapes = ((name, array.shape[1:]) for name, array in sorted(inputs.items()))
        key = (signature, *shapes) if shared else (request.is_long,)
        with self._changed:
            if self._closed:
                raise ClosedError
            max_rows = self._batching.max_batch_size if shared else 1
            queue = self._queues.setdefault(key, _Queue(max_rows))
            most = max_rows * self._batching.max_enqueued_batches
            if queue.rows + rows > most:
                queue.drop_cancelled()
            if queue.rows + rows > most:
                texts = sum(request.texts for request in queue.requests)
                raise ServingError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The server is busy: {texts} texts wait already. Send the request again later.",
                )
            queue.put(request)
            self._changed.notify()
        return request.answer

    def waiting(self) -> int:
        """How many texts wait, without those whose clients have gone."""
        with self._changed:
            waiting = [request for queue in self._queues.values() for request in queue.requests]
        return sum(request.texts for request in waiting if not request.answer.cancelled())

    def close(self) -> None:
        """Takes no more requests, answers those that wait, and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, warmup: "SimpleQueue[tuple[str, Arrays]]", done: "concurrent.futures.Future[None]") -> None:
        try:
            with contextlib.suppress(Empty):
                while True:
                    self._run(*warmup.get_nowait())
        except BaseException as error:  # handed to `start`
            done.set_exception(error)
            return
        done.set_result(None)
        while (batch := self._next_batch()) is not None:
            if batch:
                self._answer(batch)
                with self._changed:
                    self._long_running -= batch[0].is_long
                    self._changed.notify_all()

    def _next_batch(self) -> list[_Request] | None:
        """Waits for a batch; None after `close`, when nothing is left."""
        with self._changed:
            while True:
                waiting = [(key, queue) for key, queue in self._queues.items() if self._may_begin(queue)]
                if not waiting:
                    if self._closed and not any(queue.requests for queue in self._queues.values()):
                        return None
                    self._changed.wait()
                    continue
                # Among the queues whose time is over or whose batch is full, the one with the oldest request.
                left = {key: self._seconds_left(queue) for key, queue in waiting}
                ready = [item for item in waiting if left[item[0]] <= 0]
                if not ready:
                    self._changed.wait(min(left.values()))
                    continue
                key, queue = min(ready, key=lambda item: item[1].requests[0].entered)
                batch = queue.take()
                self._long_running += bool(batch) and batch[0].is_long
                if not queue.requests:
                    del self._queues[key]
                self._changed.notify()  # another thread may take what is left
                return batch

    def _seconds_left(self, queue: _Queue) -> float:
        """How long the oldest request of a queue may still wait for others."""
        if queue.rows >= queue.max_rows or self._closed:
            return 0.0
        return queue.requests[0].entered + self._batching.batch_timeout_micros / 1e6 - time.monotonic()

    def _may_begin(self, queue: _Queue) -> bool:
        """Whether a thread may take a batch from this queue."""
        most_long = max(1, self._batching.num_batch_threads - 1)
        return bool(queue.requests) and (not queue.requests[0].is_long or self._long_running < most_long)

    def _answer(self, batch: Sequence[_Request]) -> None:
        """Computes a batch. If that fails, computes each request alone, so that only the faulty one gets an error."""
        try:
            outputs = self._compute(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for request in batch:
                self._answer([request])
            return
        for request, output in zip(batch, outputs, strict=True):
            request.answer.set_result(output)

    def _compute(self, batch: Sequence[_Request]) -> list[dict[str, np.ndarray]]:
        """The outputs of each request."""
        signature = batch[0].signature
        began = time.perf_counter()
        rows = sum(request.rows for request in batch)
        missing = self._filling(rows) if batch[0].shared else 0
        if len(batch) == 1 and not missing:
            outputs = [self._run(signature, batch[0].inputs)]
        else:
            joined = {name: _joined([request.inputs[name] for request in batch], missing) for name in batch[0].inputs}
            outputs = _split(self._run(signature, joined), [request.rows for request in batch])
        self._on_batch(signature, sum(request.texts for request in batch), time.perf_counter() - began)
        return outputs

    def _filling(self, rows: int) -> int:
        """How many rows must be added to reach the next allowed size."""
        return next((size - rows for size in self._batching.allowed_batch_sizes if size >= rows), 0)


def _joined(arrays: Sequence[np.ndarray], missing: int) -> np.ndarray:
    """All rows, and a copy of the first row for each that is missing."""
    rows = np.concatenate(arrays)
    return np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]) if missing else rows


def _split(outputs: Arrays, sizes: Sequence[int]) -> list[dict[str, np.ndarray]]:
    places = np.cumsum([0, *sizes])
    return [{name: array[start:end] for name, array in outputs.items()} for start, end in itertools.pairwise(places)]
