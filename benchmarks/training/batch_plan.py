"""How long the plan of a large corpus takes, and how much memory: pairs of ids that lie on the disk.

    python -m benchmarks.training.batch_plan [PAIRS ...]

The ids are zeros, and the lengths of both sides are drawn from a gamma distribution with a mean of 30 tokens. The files
are made in the folder for temporary files: 136 bytes a pair, most of which take no place on the disk. The plan is that
of a run without XLA with 4,096 tokens a batch. "Own memory" is what the process holds beyond the modules alone (RssAnon
of Linux); the pages of the files are the system's, which takes them back when it needs memory.
"""

import argparse
import itertools
import pathlib
import tempfile
import time

import numpy as np

from kformer.data import BatchPlan, EncodedPairs
from kformer.data.buckets import MANY_BUCKETS

LONGEST = 128
TOKENS = 4096
BATCHES = 2000
PIECE = 1 << 20  # pairs that are made at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int, nargs="*", default=[100_000, 4_500_000, 36_000_000])
    print("| pairs | seconds of the plan | its own memory (MB) | a batch in the middle of an epoch (s) | batches/s |")
    print("| --- | --- | --- | --- | --- |")
    for number in parser.parse_args().pairs:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(pathlib.Path(folder), number), flush=True)


def measure(folder: pathlib.Path, number: int) -> str:
    """A row of the table."""
    sides = {side: _side(folder, side, number) for side in ("source", "target")}
    arrays = {f"{side}_{name}": array for side, found in sides.items() for name, array in found.items()}
    encoded = EncodedPairs(
        **arrays, source_pad_id=0, target_pad_id=0, start_id=1, max_length=LONGEST, skipped_blank=0, skipped_long=0
    )
    before, began = _own_memory(), time.monotonic()
    plan = BatchPlan(encoded, TOKENS, max_buckets=MANY_BUCKETS)
    planned = time.monotonic()
    stream = plan.endless(shuffle_seed=1, start_step=plan.steps_per_epoch // 2)
    next(stream)
    first = time.monotonic()
    for _ in itertools.islice(stream, BATCHES):
        pass
    ended = time.monotonic()
    memory = (_own_memory() - before) / 1024
    cells = [f"{number:,}", f"{planned - began:.1f}", f"{memory:.0f}", f"{first - planned:.2f}"]
    return f"| {' | '.join([*cells, f'{BATCHES / (ended - first):.0f}'])} |"


def _side(folder: pathlib.Path, side: str, number: int) -> dict[str, np.ndarray]:
    """The ids and offsets of one side, in files."""
    generator = np.random.default_rng(len(side) + number)
    offsets = np.lib.format.open_memmap(folder / f"{side}-offsets.npy", "w+", np.int64, (number + 1,))
    for start in range(0, number, PIECE):
        count = min(PIECE, number - start)
        lengths = generator.gamma(3, 10, count).astype(int).clip(2, LONGEST)
        offsets[start + 1 : start + count + 1] = offsets[start] + np.cumsum(lengths)
    ids = np.lib.format.open_memmap(folder / f"{side}-ids.npy", "w+", np.uint16, (int(offsets[-1]),))
    del ids, offsets
    return {name: np.load(folder / f"{side}-{name}.npy", mmap_mode="r") for name in ("ids", "offsets")}


def _own_memory() -> int:
    """KiB of this process that are no pages of files."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
