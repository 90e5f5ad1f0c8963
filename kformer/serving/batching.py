"""Requests of several clients in one batch: a thread takes waiting requests, and gives every client its rows.

As in TensorFlow Serving, a request waits for others until the batch is full or its time is over. By default that time
is 0: while all threads compute, requests gather by themselves, and a thread that has nothing to do gains nothing by
waiting.
"""

import concurrent.futures
import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np

from kformer.serving.costs import Costs, longest_text
from kformer.serving.fair_queue import Answer, Arrays, Request
from kformer.serving.model_settings import Batching
from kformer.serving.scheduling import LONG_BYTES, Batch, Lanes, is_long

Run: TypeAlias = Callable[[str, Arrays], dict[str, np.ndarray]]


class ClosedError(Exception):
    """The batcher takes no more requests."""


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
        self._costs = Costs()
        self._called: set[str] = set()  # signatures whose first batch is done
        self._lanes = Lanes(batching)
        self._changed = threading.Condition()
        self._closed = False
        self._threads: list[threading.Thread] = []

    def start(self, requests: Sequence[tuple[str, Arrays]] = ()) -> None:
        """Starts the threads. They share these requests among them, and then answer those of clients.

        TensorFlow prepares a part of its work for each thread separately, so every thread should run some of them.

        Args:
            requests: Signatures and inputs.

        Raises:
            Exception: The error of a request that failed, or of a thread that the system does not start.
        """
        warmup: SimpleQueue[tuple[str, Arrays]] = SimpleQueue()
        for request in requests:
            warmup.put(request)
        ready: list[concurrent.futures.Future[None]] = []
        try:
            for number in range(self._batching.num_batch_threads):
                done: concurrent.futures.Future[None] = concurrent.futures.Future()
                thread = threading.Thread(target=self._work, args=(warmup, done), name=f"batch-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
                ready.append(done)
            for done in ready:
                done.result()
        except BaseException:
            self.close()
            raise

    def submit(
        self, signature: str, inputs: Arrays, shared: bool, client: str = "", seconds: float = math.inf
    ) -> Answer:
        """Puts a request into its queue.

        Args:
            signature: The signature's name.
            inputs: If `shared`, all have the same first dimension.
            shared: Whether it may share a batch with other requests, if it is not long.
            client: Who asks. Clients have equal shares of a queue.
            seconds: How long the client waits.

        Raises:
            ServingError: The queue is full, or the request would wait too long.
            ClosedError: After `close`.
        """
        size = sum(len(text) for array in inputs.values() if array.dtype == object for text in array.flat)
        shared = shared and size <= LONG_BYTES
        texts = _texts(inputs)
        longest = longest_text(inputs)
        cost = self._costs.seconds(signature, longest, texts)
        rows = texts if shared else 1
        request = Request(signature, inputs, rows, texts, size, longest, shared, client, cost)
        # Requests that share no batch wait in queues of their own, one of them for long ones.
        shapes = ((name, array.shape[1:]) for name, array in sorted(inputs.items()))
        key = (signature, *shapes) if shared else (is_long(request),)
        with self._changed:
            if self._closed:
                raise ClosedError
            max_rows = self._batching.max_batch_size if shared else 1
            # The client's time must be enough for the wait and the work. A request that need not wait is always taken.
            longest_wait = min(max(0.0, seconds - cost), self._batching.max_queue_seconds)
            self._lanes.put(request, key, max_rows, longest_wait)
            self._changed.notify()
        return request.answer

    def waiting(self) -> int:
        """How many texts wait, without those whose clients have gone."""
        with self._changed:
            waiting = self._lanes.waiting()
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
                    signature, inputs = warmup.get_nowait()
                    self._measured(signature, inputs, longest_text(inputs), _texts(inputs))
        except BaseException as error:  # handed to `start`
            done.set_exception(error)
            return
        done.set_result(None)
        while (batch := self._next_batch()) is not None:
            if batch.requests:
                began = time.perf_counter()
                self._answer(batch.requests)
                with self._changed:
                    self._lanes.end(batch, time.perf_counter() - began)
                    if self._closed:
                        self._changed.notify_all()  # threads that may have nothing left to wait for

    def _next_batch(self) -> Batch | None:
        """Waits for a batch; None after `close`, when nothing is left."""
        with self._changed:
            while not (self._closed and self._lanes.is_empty):
                found = self._lanes.next(at_once=self._closed)
                if isinstance(found, Batch):
                    if not self._lanes.is_empty:
                        self._changed.notify()  # another thread may take what is left
                    return found
                self._changed.wait(found)
        return None

    def _answer(self, batch: Sequence[Request]) -> None:
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

    def _compute(self, batch: Sequence[Request]) -> list[dict[str, np.ndarray]]:
        """The outputs of each request."""
        signature = batch[0].signature
        rows, texts = sum(request.rows for request in batch), sum(request.texts for request in batch)
        longest = max(request.longest for request in batch)
        missing = self._filling(rows) if batch[0].shared else 0
        if len(batch) == 1 and not missing:
            outputs, seconds = self._measured(signature, batch[0].inputs, longest, texts)
            found = [outputs]
        else:
            joined = {name: _joined([request.inputs[name] for request in batch], missing) for name in batch[0].inputs}
            outputs, seconds = self._measured(signature, joined, longest, texts)
            found = _split(outputs, [request.rows for request in batch])
        self._on_batch(signature, texts, seconds)
        return found

    def _measured(
        self, signature: str, inputs: Arrays, longest: int, texts: int
    ) -> tuple[dict[str, np.ndarray], float]:
        """A signature's outputs, and the seconds that they took.

        Those of its first batch are no measure of others: TensorFlow prepares the graph for it.
        """
        is_first, began = signature not in self._called, time.perf_counter()
        outputs = self._run(signature, inputs)
        seconds = time.perf_counter() - began
        self._called.add(signature)
        if not is_first:
            self._costs.note(signature, longest, texts, seconds)
        return outputs, seconds

    def _filling(self, rows: int) -> int:
        """How many rows must be added to reach the next allowed size."""
        return next((size - rows for size in self._batching.allowed_batch_sizes if size >= rows), 0)


def _texts(inputs: Arrays) -> int:
    return max((len(array) for array in inputs.values() if array.ndim), default=1)


def _joined(arrays: Sequence[np.ndarray], missing: int) -> np.ndarray:
    """All rows, and a copy of the first row for each that is missing."""
    rows = np.concatenate(arrays)
    return np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]) if missing else rows


def _split(outputs: Arrays, sizes: Sequence[int]) -> list[dict[str, np.ndarray]]:
    places = np.cumsum([0, *sizes])
    return [{name: array[start:end] for name, array in outputs.items()} for start, end in itertools.pairwise(places)]
