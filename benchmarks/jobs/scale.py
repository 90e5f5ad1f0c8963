"""How many lines a second does a job give with up to 10,000 workers, and where is the limit?

    python -m benchmarks.jobs.scale --worker 350 --bytes 20

First it measures what the leading process of a job does for each line: a real job runs whose worker answers at once, in
the same process. Then it simulates one leader with many workers, batch by batch: a batch of 64 lines is made and given
out by the leader, waits on the network, is answered, and comes back to the leader, which does one thing at a time. Some
workers are lost, at random, and their batch is answered again.

Measured: the leader's microseconds for a line. Given: lines a second of a worker (`benchmarks.jobs.speed`), bytes of a
line, price of a core. Assumed: the network and how often a worker is lost.
"""

import argparse
import heapq
import pathlib
import random
import tempfile
import time
from collections.abc import Sequence

from kformer.inference.lines import InputLine
from kformer.jobs import JobSettings, run_job
from kformer.jobs.answerer import Answers
from kformer.jobs.workers import Batch, Fate, Outcome
from kformer.text.batches import BATCH_SIZE, Hypothesis

LINES = 200_000
SENTENCES = 1_000_000_000


class AtOnce:
    """A worker that takes no time."""

    def __init__(self) -> None:
        self._done: list[Batch] = []

    def __enter__(self) -> "AtOnce":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def free(self) -> bool:
        return len(self._done) < 4

    def begin(self, batch: Batch) -> None:
        self._done.append(batch)

    def wait(self) -> Sequence[Outcome]:
        done, self._done = self._done, []
        return [
            Outcome(batch, Fate.ANSWERED, Answers([[Hypothesis(text.decode(), 0.0)] for text in batch.texts], {}))
            for batch in done
        ]


def leader_seconds(bytes_of_line: int) -> float:
    """The seconds that the leader of a job needs for a line."""

    def read(path: pathlib.Path):  # type: ignore[no-untyped-def]
        for number in range(LINES):
            yield InputLine(f"{number}".encode().ljust(bytes_of_line, b"x"))

    with tempfile.TemporaryDirectory() as folder:
        settings = JobSettings((pathlib.Path("lines"),), {})
        began = time.perf_counter()
        run_job(pathlib.Path(folder, "job"), settings, read, AtOnce())
        return (time.perf_counter() - began) / LINES


def simulated(workers: int, leader: float, worker: float, network: float, lost_every: float, batches: int) -> float:
    """Lines a second of a job of so many batches.

    Args:
        workers: Their number.
        leader: Seconds of the leader for a batch.
        worker: Seconds of a worker for a batch.
        network: Seconds for a batch there and back.
        lost_every: Hours after which a worker is lost, in the mean; its batch is then answered once more.
        batches: How many.
    """
    draw = random.Random(1)
    free_at = 0.0  # when the leader is
    ready = [0.0] * workers
    heapq.heapify(ready)
    last = 0.0
    for _ in range(batches):
        begins = max(heapq.heappop(ready), free_at)
        free_at = begins + leader
        times = 2 if draw.random() < worker / 3600 / lost_every else 1
        ends = free_at + network + times * worker * draw.uniform(0.8, 1.2)
        heapq.heappush(ready, ends)
        last = max(last, ends)
    return batches * BATCH_SIZE / last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=float, required=True, help="lines a second of one worker on one core")
    parser.add_argument("--bytes", type=int, default=130, help="of a line")
    parser.add_argument("--network", type=float, default=0.002, help="seconds for a batch there and back")
    parser.add_argument("--lost-every", type=float, default=24.0, help="hours")
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour")
    arguments = parser.parse_args()
    leader = leader_seconds(arguments.bytes) * BATCH_SIZE
    limit = BATCH_SIZE / leader
    line = f"a line of {arguments.bytes} bytes"
    print(f"The leader needs {leader / BATCH_SIZE * 1e6:.1f} microseconds for {line}: at most {limit:,.0f} lines/s.")
    megabytes = limit * arguments.bytes / 1e6
    print(f"Then {2 * megabytes:.0f} MB/s go over the network and {megabytes:.0f} MB/s to the disk.\n")
    print("| workers | lines/s | of workers x one | hours for 1 billion lines | price |")
    print("| --- | --- | --- | --- | --- |")
    for workers in (1, 2, 10, 100, 1_000, 10_000):
        batches = max(20_000, 20 * workers)
        found = simulated(
            workers, leader, BATCH_SIZE / arguments.worker, arguments.network, arguments.lost_every, batches
        )
        hours = SENTENCES / found / 3600
        share = found / workers / arguments.worker
        print(f"| {workers:,} | {found:,.0f} | {share:.2f} | {hours:,.1f} | {hours * workers * arguments.price:,.0f} |")


if __name__ == "__main__":
    main()
