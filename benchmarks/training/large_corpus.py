"""Seconds and memory from the start of a process to its updates, over corpora of up to 36 million prepared pairs.

    python -m benchmarks.training.large_corpus [PAIRS ...] [--updates 100] [--folder FOLDER]

The pairs are random ids in a cache, as `kformer prepare` leaves them (see `random_ids`); 36 million take 5 GB. Each row
has two processes of its own: a new run of size `tiny`, and a resumed run, each of so many updates, with a validation at
each hundredth. "Ready" is the time from the start of the process to the end of the first update: TensorFlow, all
checksums, the plan of the batches, the graph of the step. "CPU" is what the processor has worked for it, which other
programs hardly change. "Cold" is a resumed run whose files the system must read from the disk again.

Memory is that of the process and its children. "Own" are pages that no file backs. "Mapped" are pages of files, its
libraries and the corpus. Both are proportional set sizes (PSS): a page that several processes map counts in equal
shares. The system takes mapped pages back when it needs memory. "Steady" is the median over the second half of the
updates.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

SECONDS_BETWEEN = 0.25


class Memory(NamedTuple):
    """GB of some processes."""

    own: float
    mapped: float

    @property
    def all(self) -> float:
        return self.own + self.mapped

    def __str__(self) -> str:
        return f"{self.own:.2f} + {self.mapped:.2f}"


class Course(NamedTuple):
    """What happened in a process.

    Attributes:
        updates: When each update ended, in seconds from its start.
        cpu: The seconds of the processor up to the end of each update.
        memory: The memory at many moments.
    """

    updates: list[float]
    cpu: list[float]
    memory: list[tuple[float, Memory]]

    def ready(self) -> str:
        """Seconds to the end of the first update."""
        return f"{self.updates[0]:.1f}, {self.cpu[0]:.1f}"

    def rate(self) -> float:
        """Updates a second in the second half."""
        half = self._half()
        return (len(half) - 1) / (half[-1] - half[0])

    def peak(self) -> Memory:
        """When it was the most in all."""
        return max((found for _, found in self.memory), key=lambda found: found.all)

    def steady(self) -> Memory:
        """Of the second half."""
        half = self._half()
        found = [found for when, found in self.memory if half[0] <= when <= half[-1]]
        return Memory(*map(statistics.median, zip(*found, strict=True)))

    def _half(self) -> list[float]:
        return self.updates[len(self.updates) // 2 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int, nargs="*", default=[100_000, 36_000_000])
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--folder", type=pathlib.Path, help="where the files are made; by default that for such files")
    arguments = parser.parse_args()
    print("| pairs | run | ready: seconds, CPU | peak: own + mapped (GB) | steady: own + mapped (GB) | updates/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for number in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for row in measure(pathlib.Path(folder), number, arguments.updates):
                print(f"| {number:,} | {row} |", flush=True)


def measure(folder: pathlib.Path, number: int, updates: int) -> Iterator[str]:
    """The rows of a corpus."""
    command = [sys.executable, "-m", "benchmarks.training.random_ids"]
    subprocess.run([*command, "write", folder, str(number)], check=True)
    for run, last in (("new", updates), ("resumed", 2 * updates)):
        course = watched([*command, "train", str(folder), str(number), str(last)])
        yield f"{run} | {course.ready()} | {course.peak()} | {course.steady()} | {course.rate():.2f}"
    forget(folder / "cache")
    course = watched([*command, "train", str(folder), str(number), str(2 * updates + 2)])
    yield f"cold | {course.ready()} | {course.peak()} | |"


def watched(command: list[str]) -> Course:
    """Runs a process that prints a line after each update."""
    course, began = Course([], [], []), time.monotonic()
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SECONDS_BETWEEN):
            course.memory.append((time.monotonic() - began, memory_of(process.pid)))

    looking = threading.Thread(target=look)
    looking.start()
    for line in process.stdout or ():
        if line == "update\n":
            course.updates.append(time.monotonic() - began)
            course.cpu.append(cpu_of(process.pid))
    ended.set()
    looking.join()
    if process.wait():
        sys.exit(f"This command failed: {' '.join(command)}")
    return course


def cpu_of(process: int) -> float:
    """Seconds of the processor, of all threads of a process."""
    words = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> Memory:
    """The memory of a process and its children; of one that has ended, nothing."""
    folder = pathlib.Path(f"/proc/{process}")
    try:
        lines = (line.split() for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
        kilobytes = {words[0]: int(words[1]) for words in lines}
        children = [child for file in folder.glob("task/*/children") for child in file.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return Memory(0, 0)
    own, whole = kilobytes["Pss_Anon:"], kilobytes["Pss:"]
    found = [Memory(own * 1024 / 1e9, (whole - own) * 1024 / 1e9), *map(memory_of, map(int, children))]
    return Memory(*map(sum, zip(*found, strict=True)))


def forget(folder: pathlib.Path) -> None:
    """Asks the system to read files from the disk the next time."""
    os.sync()
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


if __name__ == "__main__":
    main()
