"""Whether training over a prepared corpus, whose ids lie on the disk, is as fast as over one in memory.

    python -m benchmarks.training.shards [--updates 200] [--rounds 5]

Two runs of the size `tiny` on `bible-en-es`, written as a file: one holds the ids in memory, the other opens them from
a cache. They take turns; the first 20 updates of each are not counted. The ratio is that of their updates a second,
each the best of its rounds, and the spread of the ratios of single rounds is beside it.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import keras

import kformer
from kformer.data import Corpus, TsvFile, corpus_from_pairs, load_corpus, prepare_corpus, read_tsv

WARM_UP = 20  # updates


class Clock(keras.callbacks.Callback):
    """Measures the updates after the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.done += 1
        if self.done >= WARM_UP:
            self.times.append(time.perf_counter())

    def rate(self) -> float:
        """Updates a second."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = folder / "pairs.tsv"
        file.write_text("".join(f"{source}\t{target}\n" for source, target in load_corpus("bible-en-es").train))
        rates: dict[str, list[float]] = {"memory": [], "disk": []}
        for number in range(arguments.rounds):
            corpora: dict[str, Corpus] = {
                "memory": corpus_from_pairs("memory", read_tsv(file)),
                "disk": prepare_corpus("disk", TsvFile(file), cache=folder / "cache"),
            }
            for where in sorted(corpora, reverse=number % 2 == 1):
                rates[where].append(measure(corpora[where], folder / f"{where}{number}", arguments.updates))
    ratios = [disk / memory for disk, memory in zip(rates["disk"], rates["memory"], strict=True)]
    for where, found in rates.items():
        print(f"{where}: {max(found):.2f} updates/s at best; {', '.join(f'{rate:.2f}' for rate in found)}")
    best = max(rates["disk"]) / max(rates["memory"])
    print(f"disk / memory: {best:.3f}; of the rounds: {', '.join(f'{ratio:.3f}' for ratio in ratios)}, ", end="")
    print(f"median {statistics.median(ratios):.3f}")


def measure(corpus: Corpus, run: pathlib.Path, updates: int) -> float:
    """Updates a second."""
    clock = Clock()
    training = kformer.TrainingConfig.of_size("tiny", max_steps=updates, validation_steps=updates)
    kformer.train(corpus, run, kformer.TransformerConfig.of_size("tiny"), training, callbacks=[clock])
    return clock.rate()


if __name__ == "__main__":
    main()
