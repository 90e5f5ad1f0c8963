"""Does a model that was trained on short sequences work on longer ones? A table for each kind of positions.

    pip install -e '.[plots]'
    python -m benchmarks.variants.length_extrapolation --updates 2000 --plot extrapolation.png

Two tasks: to copy random ids, and to pronounce words of `cmudict`, as many in a row as there is room for. Models of
one size, one for each kind of positions, learn from sequences of 1 to 40 source tokens, and are tested with sequences
of 40, 80 and 160. Printed are the tokens that are the most probable ones behind the right tokens, in percent, and for
the copies the sequences all of whose tokens are. The plot shows the hits at each position of the longest sequences.

`--longest 100 --tests 100 200` answers whether a model trained on 100 positions has trouble with 200.

Shape letters: B batch.
"""

import argparse
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.common.results import missing
from benchmarks.common.sequence_tasks import FIRST, Batch, Pair, batch_of, hits, train
from kformer.config import POSITIONAL_ENCODINGS, TransformerConfig
from kformer.data import load_corpus

SYMBOLS = 20  # different ids of the copies
SEPARATOR = "|"  # between words
Draw = Callable[[np.random.Generator, int], Pair]  # a sequence of at most so many source tokens, and its target


class Copies:
    """Random ids, to be copied."""

    name = "copy"
    vocab_size = FIRST + SYMBOLS

    def train(self, rng: np.random.Generator, length: int) -> Pair:
        ids = (rng.integers(0, SYMBOLS, length) + FIRST).tolist()
        return ids, ids

    test = train

    def target_length(self, length: int) -> int:
        return length


class Pronunciations:
    """Words of the dictionary one after the other, to be pronounced. Test words are none of the training words."""

    name = "cmudict"

    def __init__(self) -> None:
        corpus = load_corpus("cmudict")
        texts = [text for pair in corpus.train for text in pair]
        symbols = [SEPARATOR, *sorted({symbol for text in texts for symbol in text.split()})]
        self._ids = {symbol: FIRST + number for number, symbol in enumerate(symbols)}
        self._words = {"train": corpus.train, "test": corpus.test}
        self.vocab_size = FIRST + len(symbols)

    def train(self, rng: np.random.Generator, length: int) -> Pair:
        return self._sequence("train", rng, length)

    def test(self, rng: np.random.Generator, length: int) -> Pair:
        return self._sequence("test", rng, length)

    def target_length(self, length: int) -> int:
        return length + length // 4  # a word may have more phonemes than letters

    def _sequence(self, part: str, rng: np.random.Generator, length: int) -> Pair:
        """Words until one has no room any more; a first word that is too long is left out."""
        sides: tuple[list[int], list[int]] = ([], [])
        room = (length, self.target_length(length))
        while True:
            word = self._words[part][rng.integers(len(self._words[part]))]
            added = [[*([SEPARATOR] if side else []), *text.split()] for side, text in zip(sides, word, strict=True)]
            if any(len(side) + len(more) > limit for side, more, limit in zip(sides, added, room, strict=True)):
                if sides[0]:
                    return sides
                continue
            for side, more in zip(sides, added, strict=True):
                side.extend(self._ids[symbol] for symbol in more)


TASKS = {task.name: task for task in (Copies, Pronunciations)}


def batch(task: Copies | Pronunciations, draw: Draw, rng: np.random.Generator, lengths: list[int]) -> Batch:
    """A batch whose sequences have at most these lengths; it has room for the longest of them."""
    room = max(lengths)
    return batch_of([draw(rng, length) for length in lengths], room + 1, task.target_length(room) + 1)


def endless(task: Copies | Pronunciations, options: argparse.Namespace) -> Iterator[Batch]:
    """Batches of all lengths from 1 to the longest, each of the shape of the longest."""
    rng = np.random.default_rng([1, options.seed])
    first = 1 if task.name == "copy" else 8  # few words are shorter than 8 letters and fit
    while True:
        lengths = rng.integers(first, options.longest + 1, options.batch)
        lengths[0] = options.longest
        yield batch(task, task.train, rng, lengths.tolist())


def run(task_name: str, positions: str, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one model, and measures it at every length."""
    task = TASKS[task_name]()
    config = TransformerConfig(
        task.vocab_size,
        task.vocab_size,
        num_encoder_layers=options.layers,
        num_decoder_layers=options.layers,
        d_model=options.width,
        d_ff=4 * options.width,
        num_heads=4,
        positional_encoding=positions,
        norm_first=options.norm_first,
        max_length=task.target_length(max(options.tests)) + 1,
    )
    schedule = {"warmup_steps": options.warmup, "learning_rate_scale": options.learning_rate_scale}
    model = train(config, endless(task, options), options.updates, options.seed, schedule)
    found: dict[str, Any] = {"tokens": {}, "sequences": {}, "hits": {}}
    for length in options.tests:
        rng = np.random.default_rng(0)
        batches = [batch(task, task.test, rng, [length] * options.batch) for _ in range(options.test_batches)]
        right, real = (np.concatenate(parts) for parts in zip(*(hits(model, one) for one in batches), strict=True))
        found["tokens"][length] = right[real].mean()
        found["sequences"][length] = np.all(right | ~real, axis=1).mean()
        found["hits"][length] = (np.sum(right & real, axis=0) / np.maximum(real.sum(axis=0), 1)).round(4).tolist()
    return found


def print_table(task: str, rows: list[dict[str, Any]], tests: list[int]) -> None:
    columns = " | ".join(f"{length} tokens" for length in tests)
    print(f"\n| {task}: positions | {columns} |\n| --- {'| --- ' * len(tests)}|")
    for row in rows:
        cells = [f"{100 * row['tokens'][str(length)]:.1f}" for length in tests]
        if task == "copy":
            whole = [f" ({100 * row['sequences'][str(length)]:.0f})" for length in tests]
            cells = [tokens + sequences for tokens, sequences in zip(cells, whole, strict=True)]
        print(f"| `{row['positions']}` | {' | '.join(cells)} |")


def draw(results: dict[str, list[dict[str, Any]]], longest: int, path: pathlib.Path) -> None:
    """Draws the hits over the position in the longest sequences, a panel for each task."""
    from kformer.visualization.figures import LINES, new_figure

    figure, panels = new_figure(10, 4, columns=len(results))
    for axes, (task, rows) in zip(np.atleast_1d(panels), results.items(), strict=True):
        for number, row in enumerate(rows):
            *_, values = row["hits"].values()
            reached = np.trim_zeros(np.array(values), "b")  # no sequence has a token further on
            smooth = np.convolve(reached, np.ones(5) / 5, mode="valid")
            axes.plot(np.arange(len(smooth)) + 3, 100 * smooth, color=LINES[number], label=row["positions"])
        axes.axvline(longest, color="gray", linestyle=":")
        axes.set(title=task, xlabel="position of the target token", ylabel="right tokens, percent", ylim=(0, 102))
        axes.grid(alpha=0.3)
    np.atleast_1d(panels)[0].legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--positions", nargs="+", choices=POSITIONAL_ENCODINGS, default=list(POSITIONAL_ENCODINGS))
    parser.add_argument("--longest", type=int, default=40, help="source tokens of the longest sequence in training")
    parser.add_argument("--tests", nargs="+", type=int, default=[40, 80, 160], help="source tokens in the tests")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--test-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=128, help="d_model; d_ff is four times as large")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder, and of the decoder")
    parser.add_argument("--norm-first", action="store_true")
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--learning-rate-scale", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=pathlib.Path, help="a PNG file to draw")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/extrapolation"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = options.folder / "results.jsonl"
    names = ("longest", "tests", "updates", "batch", "test_batches", "width", "layers", "norm_first", "seed")
    made = {name: getattr(options, name) for name in (*names, "warmup", "learning_rate_scale")}
    wanted = [{**made, "task": task, "positions": kind} for task in options.tasks for kind in options.positions]
    for row in missing(results, wanted):
        line = {**row, **run(row["task"], row["positions"], options), "date": time.strftime("%Y-%m-%d")}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    rows = {
        task: [line for row in wanted if row["task"] == task for line in lines if row.items() <= line.items()]
        for task in options.tasks
    }
    for task in options.tasks:
        print_table(task, rows[task], options.tests)
    if options.plot:
        draw(rows, options.longest, options.plot)


if __name__ == "__main__":
    main()
