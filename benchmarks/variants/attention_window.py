"""How do time and memory of self-attention grow with the length, in full and within a window?

    python -m benchmarks.variants.attention_window --plot window.png

One attention layer, forward and backward (the gradients of its inputs and weights), on one sequence, in TensorFlow
without XLA. Every kind and length runs in a fresh process. Its time is that of the best of several steps. Its memory
is the peak of the process (`getrusage`) less what the process held before the first step.

The slope is the exponent p of length^p: a straight line through the logarithms, over all lengths and over the longer
half of them, where what does not grow with the length counts little.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np

KINDS = ("full", "window")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


class Cost(NamedTuple):
    """What a step takes."""

    seconds: float
    megabytes: float


def measure(kind: str, length: int, arguments: argparse.Namespace) -> Cost:
    """Runs steps in this process."""
    import tensorflow as tf

    from kformer.layers import Band, MultiHeadAttention

    layer = MultiHeadAttention(arguments.d_model, arguments.heads)
    layer.build((1, length, arguments.d_model))
    mask = Band(arguments.window, arguments.causal) if kind == "window" else None

    @tf.function(autograph=False)
    def step(inputs: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(layer(inputs, attention_mask=mask) ** 2)
        return tape.gradient(loss, [inputs, *(variable.value for variable in layer.trainable_variables)])

    inputs = tf.random.normal((1, length, arguments.d_model), seed=1)
    step.get_concrete_function(inputs)  # Tracing is no part of a step.
    before, seconds = _peak(), []
    for _ in range(arguments.steps + 1):
        began = time.perf_counter()
        step(inputs)[0].numpy()
        seconds.append(time.perf_counter() - began)
    return Cost(min(seconds[1:]), _peak() - before)


def _peak() -> float:
    """The largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_fresh_process(kind: str, length: int, command: list[str]) -> Cost | None:
    """The cost; None if a signal ended the process, as the system does when there is not enough memory."""
    command = [sys.executable, "-m", __spec__.name, *command, "--one", kind, str(length)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode > 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{answer.stderr}")
    return Cost(*json.loads(answer.stdout)) if answer.returncode == 0 else None


def slope(lengths: list[int], values: list[float]) -> float:
    """The exponent p of the power length^p that is nearest to the values."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def print_table(found: dict[str, dict[int, Cost]], lengths: list[int]) -> None:
    print("| positions | full: ms | window: ms | full: MB | window: MB |")
    print("| --- | --- | --- | --- | --- |")
    for length in lengths:
        costs = [found[kind].get(length) for kind in KINDS]
        cells = ["-" if cost is None else f"{1000 * cost.seconds:,.1f}" for cost in costs]
        cells += ["-" if cost is None else f"{cost.megabytes:,.0f}" for cost in costs]
        print(f"| {length:,} | {' | '.join(cells)} |")
    for title, part in (("slope", lengths), ("slope of the longer half", lengths[len(lengths) // 2 :])):
        cells = [_slope_of(found[kind], part, field) for field in Cost._fields for kind in KINDS]
        print(f"| {title} | {' | '.join(cells)} |")


def _slope_of(costs: dict[int, Cost], lengths: list[int], field: str) -> str:
    measured = [length for length in lengths if length in costs]
    if len(measured) < 2:
        return "-"
    return f"{slope(measured, [getattr(costs[length], field) for length in measured]):.2f}"


def draw(found: dict[str, dict[int, Cost]], path: pathlib.Path) -> None:
    """Draws time and memory over the length, both axes logarithmic."""
    from kformer.visualization.figures import LINES, new_figure

    figure, both = new_figure(9, 4, columns=2)
    for axes, field, label in zip(both, Cost._fields, ("seconds a step", "MB a step"), strict=True):
        for number, (kind, costs) in enumerate(found.items()):
            values = [getattr(cost, field) for cost in costs.values()]
            axes.loglog(list(costs), values, "o-", color=LINES[number], label=kind)
        lengths = sorted({length for costs in found.values() for length in costs})
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set(xlabel="positions", ylabel=label)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--causal", action="store_true", help="the last positions only, as in a decoder")
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--plot", type=pathlib.Path, help="a PNG file to draw")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # for the processes of this script
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments)))
        return
    found: dict[str, dict[int, Cost]] = {kind: {} for kind in KINDS}
    for length in arguments.lengths:
        for kind in KINDS:
            cost = in_a_fresh_process(kind, length, sys.argv[1:])
            if cost is not None:
                found[kind][length] = cost
    print_table(found, arguments.lengths)
    if arguments.plot:
        draw(found, arguments.plot)


if __name__ == "__main__":
    main()
