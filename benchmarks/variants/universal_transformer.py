"""Does a layer that is applied again and again learn an algorithm better than a stack of layers?

    python -m benchmarks.variants.universal_transformer --tasks reversal addition --digits 10 --updates 20000 --seeds 3

Trains models of one width on numbers of 1 to N digits: a stack of layers, one shared layer, one shared layer that halts
(see `kformer.layers.Depth`), and two stacks with as many parameters as the shared layer: one layer of the same width,
and as many layers of a smaller width. Prints a table for each task: parameters, how much of the test numbers is right
at the trained lengths and at N + 1 to 2 N digits, and the mean number of steps of a token in the encoder and in the
decoder.

The tasks are two of those of Dehghani et al. 2018 ("Universal Transformers"): to turn a number around, and to add two
numbers of equally many digits, with the last digit first. A token counts as right if it is the most probable one behind
the right tokens. So a greedy search finds a number exactly if all its tokens are right.

Shape letters: B batch, S source length, T target length.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.common.sequence_tasks import FIRST, PAD, Batch, batch_of, hits, train
from kformer.config import POSITIONAL_ENCODINGS, TransformerConfig
from kformer.layers import AdaptiveDepth
from kformer.models import ponder

ZERO, PLUS = FIRST, FIRST + 10
VOCABULARY = PLUS + 1  # special ids, ten digits and the plus

Digits = np.ndarray  # (B, L) integers from 0 to 9, the last digit of a number first
Generator = np.random.Generator


class Task(NamedTuple):
    """What a model learns; lengths are numbers of digits."""

    draw: Callable[[Generator, int, int], tuple[np.ndarray, np.ndarray]]  # B numbers of L digits: source, target ids
    source_length: Callable[[int], int]  # S for numbers of L digits, without the end
    target_length: Callable[[int], int]  # T for numbers of L digits, without the end


def reversal(rng: Generator, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of numbers, and of the same numbers turned around."""
    digits = rng.integers(0, 10, (rows, length))
    return digits + ZERO, digits[:, ::-1] + ZERO


def addition(rng: Generator, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of two numbers with a plus between them, and of their sum, which has one digit more (it may be 0)."""
    first, second = rng.integers(0, 10, (2, rows, length))
    return np.concatenate([first + ZERO, np.full((rows, 1), PLUS), second + ZERO], axis=1), added(first, second) + ZERO


def added(first: Digits, second: Digits) -> Digits:
    """(B, L + 1) digits of the sums of two (B, L) numbers, the last digit first."""
    carry, digits = np.zeros(len(first), int), []
    for column in (first + second).T:
        carry, digit = np.divmod(column + carry, 10)
        digits.append(digit)
    return np.stack([*digits, carry], axis=1)


TASKS = {
    "reversal": Task(reversal, lambda length: length, lambda length: length),
    "addition": Task(addition, lambda length: 2 * length + 1, lambda length: length + 1),
}


def examples(task: Task, rng: Generator, rows: int, lengths: range) -> Batch:
    """A batch with numbers of these lengths, each as often as another; it has the shape of the longest numbers."""
    drawn = lengths[0] + rng.integers(0, len(lengths), rows)
    pairs = [pair for n in np.unique(drawn) for pair in zip(*task.draw(rng, (drawn == n).sum(), n), strict=True)]
    return batch_of(pairs, task.source_length(lengths[-1]) + 1, task.target_length(lengths[-1]) + 1)


def endless(task: Task, seed: int, rows: int, lengths: range) -> Iterator[Batch]:
    """Batches to train on; the test numbers are drawn from another seed."""
    rng = np.random.default_rng([1, seed])
    while True:
        yield examples(task, rng, rows, lengths)


def configurations(options: argparse.Namespace) -> dict[str, TransformerConfig]:
    """The models of the table by their names."""

    def of(width: int, steps: int, depth: str) -> TransformerConfig:
        return TransformerConfig(
            VOCABULARY,
            VOCABULARY,
            num_encoder_layers=steps,
            num_decoder_layers=steps,
            d_model=width,
            d_ff=4 * width,
            num_heads=options.heads,
            dropout_rate=options.dropout,
            positional_encoding=options.positions,
            depth=depth,
            ponder_cost=options.ponder_cost,
        )

    width, steps = options.width, options.steps
    # The width at which `steps` layers have about as many parameters as one layer of the whole width.
    narrow = max(1, round(width / steps**0.5 / (2 * options.heads))) * 2 * options.heads
    return {
        f"stacked, {steps} layers": of(width, steps, "stacked"),
        f"shared, {steps} steps": of(width, steps, "shared"),
        f"adaptive, up to {steps} steps": of(width, steps, "adaptive"),
        "stacked, 1 layer": of(width, 1, "stacked"),
        f"stacked, {steps} layers of width {narrow}": of(narrow, steps, "stacked"),
    }


def trained(config: TransformerConfig, task: Task, seed: int, options: argparse.Namespace) -> keras.Model:
    batches = endless(task, seed, options.batch, range(1, options.digits + 1))
    schedule = {"warmup_steps": options.warmup, "learning_rate_scale": options.learning_rate_scale}
    return train(config, batches, options.updates, seed, schedule)


class Figures(NamedTuple):
    """What is measured at numbers of some lengths."""

    tokens: float  # share of the tokens that are right
    numbers: float  # share of the numbers all of whose tokens are right
    encoder_steps: float
    decoder_steps: float


def measured(model: keras.Model, task: Task, lengths: range, options: argparse.Namespace) -> Figures:
    rng = np.random.default_rng(0)
    batches = [examples(task, rng, options.batch, lengths) for _ in range(options.test_batches)]
    right, counted = (np.concatenate(parts) for parts in zip(*(hits(model, batch) for batch in batches), strict=True))
    steps = [mean_steps(model, *batch) for batch in batches]
    return Figures(right[counted].mean(), np.all(right | ~counted, axis=1).mean(), *np.mean(steps, axis=0))


def mean_steps(model: keras.Model, inputs: dict[str, np.ndarray], labels: np.ndarray) -> tuple[float, ...]:
    """The mean number of steps of the tokens in the encoder and in the decoder."""
    stacks = [model.get_layer(name) for name in ("encoder", "decoder")]
    if not isinstance(stacks[0].depth, AdaptiveDepth):
        return tuple(float(stack.depth.num_steps) for stack in stacks)
    both = zip(ponder(model, **inputs), (inputs["source"], labels), strict=True)
    return tuple(keras.ops.convert_to_numpy(of.steps)[ids != PAD].mean() for of, ids in both)


def row(name: str, parameters: int, trained_lengths: list[Figures], longer: list[Figures]) -> str:
    """A line of the table: means over the seeds."""
    cells: list[Any] = [name, f"{parameters:,}"]
    means = [Figures(*np.mean(of_seeds, axis=0)) for of_seeds in (trained_lengths, longer)]
    cells += [f"{100 * mean.tokens:.1f} / {100 * mean.numbers:.1f}" for mean in means]
    cells += [f"{mean.encoder_steps:.2f} + {mean.decoder_steps:.2f}" for mean in means]
    return f"| {' | '.join(cells)} |"


def run_task(name: str, options: argparse.Namespace) -> None:
    short, long = range(1, options.digits + 1), range(options.digits + 1, 2 * options.digits + 1)
    print(f"\n{name}, {options.updates:,} updates, {options.seeds} seeds; tokens / whole numbers right, in percent\n")
    columns = [f"{part}, {lengths[0]}-{lengths[-1]} digits" for part in ("right", "steps") for lengths in (short, long)]
    print(f"| model | parameters | {' | '.join(columns)} |\n| --- | {' | '.join(['---:'] * 5)} |")
    for title, config in configurations(options).items():
        models = [trained(config, TASKS[name], seed, options) for seed in range(options.seeds)]
        figures = [[measured(model, TASKS[name], part, options) for model in models] for part in (short, long)]
        print(row(title, models[0].count_params(), *figures), flush=True)
        keras.backend.clear_session()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--digits", type=int, default=10, help="N, the longest numbers in training")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--test-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=128, help="d_model; d_ff is four times as large")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--positions", choices=POSITIONAL_ENCODINGS, default="relative")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--ponder-cost", type=float, default=0.001)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--learning-rate-scale", type=float, default=0.5)
    options = parser.parse_args()
    for name in options.tasks:
        run_task(name, options)


if __name__ == "__main__":
    main()
