"""Do lines that are no text hold up the others in a job?

    python -m benchmarks.jobs.hostile_lines [--preset bible-en-es] [--lines 3000]

The same lines are answered twice by a worker for each core: alone, and with hostile lines among them. Hostile are an
image in base64, 40,000 letters without a blank, 2,000 dots, 49,000 bytes of prose in one line, and 50 words of 900
letters. Printed are the seconds from the moment that a worker has a batch until its answers come, for batches without a
hostile line: the median, the 99th percentile and the longest; and the seconds of the whole job.
"""

import argparse
import base64
import os
import pathlib
import random
import tempfile
import time
from collections.abc import Iterator, Sequence

import numpy as np

import kformer
from kformer.data import load_corpus
from kformer.inference import Model
from kformer.inference.lines import InputLine
from kformer.jobs import JobSettings, run_job
from kformer.jobs.answerer import LocalModel
from kformer.jobs.processes import ProcessWorkers
from kformer.jobs.workers import Batch, Outcome

CORPORA = {"bible-en-es": "bible-en-es", "cmudict": "cmudict"}


class Timed(ProcessWorkers):
    """Notes how long each batch takes.

    Attributes:
        seconds: Of each batch, with its texts.
    """

    def __init__(self, source: LocalModel, processes: int, seconds: float) -> None:
        super().__init__(source, processes, seconds)
        self.seconds: list[tuple[float, tuple[bytes, ...]]] = []
        self._begun: dict[tuple[int, ...], float] = {}

    def begin(self, batch: Batch) -> None:
        self._begun[(batch.part, *batch.places)] = time.monotonic()
        super().begin(batch)

    def wait(self) -> Sequence[Outcome]:
        outcomes = super().wait()
        for outcome in outcomes:
            batch = outcome.batch
            began = self._begun.pop((batch.part, *batch.places))
            self.seconds.append((time.monotonic() - began, batch.texts))
        return outcomes


def hostile_lines(prose: list[str]) -> list[str]:
    """Lines that a model should not have to answer."""
    draw = random.Random(1)
    return [
        "data:image/png;base64," + base64.b64encode(draw.randbytes(20_000)).decode(),
        "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=40_000)),
        "." * 2_000,
        " ".join(prose)[:49_000],
        " ".join("".join(draw.choices("abcdefghij", k=900)) for _ in range(50)),
    ]


def run(folder: pathlib.Path, model: pathlib.Path, lines: list[str], hostile: list[str]) -> tuple[float, list[float]]:
    """The seconds of a job, and those of its batches without a hostile line."""

    def read(path: pathlib.Path) -> Iterator[InputLine]:
        return (InputLine(line.encode()) for line in lines)

    workers = Timed(LocalModel(Model(model, threads_per_operation=1)), len(os.sched_getaffinity(0)), 120.0)
    began = time.monotonic()
    report = run_job(folder, JobSettings((pathlib.Path("lines"),), {}, lines_per_part=1000), read, workers)
    whole = time.monotonic() - began
    print(f"{report.lines:,} lines, {report.faults} without an answer, {whole:.1f} s", flush=True)
    bad = {line.encode() for line in hostile}
    return whole, [seconds for seconds, texts in workers.seconds if not bad.intersection(texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CORPORA, default="bible-en-es")
    parser.add_argument("--lines", type=int, default=3000)
    arguments = parser.parse_args()
    lines = [source for source, _ in load_corpus(CORPORA[arguments.preset]).train][: arguments.lines]
    hostile = hostile_lines(lines)
    middle = len(lines) // 2
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = kformer.export_saved_model(kformer.Translator.from_preset(arguments.preset), folder / "export")
        for title, added in (("alone", []), ("with hostile lines", hostile)):
            _, seconds = run(folder / title, pathlib.Path(model), [*lines[:middle], *added, *lines[middle:]], hostile)
            low, high, longest = np.percentile(seconds, [50, 99, 100])
            told = f"median {low:.2f} s, 99th percentile {high:.2f} s, longest {longest:.2f} s"
            print(f"{title}: {len(seconds)} batches, {told}")


if __name__ == "__main__":
    main()
