"""What a large corpus of text costs: preparing it, a new run of it, and a resumed run.

    python -m benchmarks.training.preparation [PAIRS ...] [--folder FOLDER]

The pairs are distinct and as long as verses: those of `bible-en-es`, with the words of each in another order, and ten
pairs to validate on. Each row has a process of its own for each of the commands
    kformer prepare --train FILE --valid FILE --size tiny --cache CACHE
    kformer train   (the same) --max-steps 1 --output RUN
    kformer train   (the same) --max-steps 2 --output RUN --resume
"Seconds" are those of the clock, "CPU" those of all threads. "Peak" is the largest resident memory of the process, with
the pages of the memory maps that the system has given it at the time.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from kformer.data import load_corpus

SETTINGS = ("--size", "tiny", "--validation-steps", "1")


class Cost(NamedTuple):
    """What a process cost: seconds of the clock and of the processor, and GB of memory."""

    seconds: float
    cpu: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=pathlib.Path, help="where the files are made; by default that for such files")
    arguments = parser.parse_args()
    print("| pairs | prepare: seconds, CPU, peak GB | pairs/s | new run: seconds, CPU, peak GB | resumed run |")
    print("| --- | --- | --- | --- | --- |")
    for number in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            print(measure(pathlib.Path(folder), number), flush=True)


def measure(folder: pathlib.Path, number: int) -> str:
    """A row of the table."""
    train, valid = folder / "train.tsv", folder / "valid.tsv"
    write(train, number, seed=1)
    write(valid, 10, seed=2)
    corpus = ["--train", train, "--valid", valid, "--cache", folder / "cache", *SETTINGS]
    prepared = run("prepare", *corpus)
    begun = run("train", *corpus, "--max-steps", "1", "--output", folder / "run")
    resumed = run("train", *corpus, "--max-steps", "2", "--output", folder / "run", "--resume")
    costs = [f"{cost.seconds:.0f}, {cost.cpu:.0f}, {cost.peak:.1f}" for cost in (prepared, begun, resumed)]
    return f"| {number:,} | {costs[0]} | {number / prepared.seconds:,.0f} | {costs[1]} | {costs[2]} |"


def write(path: pathlib.Path, number: int, seed: int) -> None:
    """Writes distinct pairs."""
    verses = [tuple(text.split() for text in pair) for pair in load_corpus("bible-en-es").train]
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for place in range(number):
            source, target = verses[place % len(verses)]
            file.write(f"{' '.join(draw.sample(source, len(source)))}\t{' '.join(draw.sample(target, len(target)))}\n")


def run(*arguments: object) -> Cost:
    """Runs a command of kformer."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "kformer", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    said = process.stderr.read() if process.stderr is not None else b""
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(said.decode("utf-8", "replace"))
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


if __name__ == "__main__":
    main()
