"""What the paper's two models cost to train: steps, tokens, floating point operations, hours.

    python -m benchmarks.training.wmt14_cost                                     # the tables of docs/wmt14.md
    python -m benchmarks.training.wmt14_cost --throughput base=150000 big=60000  # hours at what your card does

A throughput is target tokens a second of one card, as `benchmarks/training_gpu.py` or a run's progress bar shows it.
Needs neither TensorFlow nor a GPU.
"""

import argparse
from typing import NamedTuple

from benchmarks.common.flops import training_flops
from kformer.recipes import Recipe, load_recipe

TOKENS_A_STEP = 25_000  # of the source, and as many of the target (section 5.1)
PAPER_CARDS = 8  # NVIDIA P100 (section 5.2)
P100_FLOPS = 9.5e12  # a second, single precision, sustained: the paper's estimate (footnote 5)


class Paper(NamedTuple):
    """What the paper says of a model (section 5.2 and table 2)."""

    seconds_a_step: float
    hours: float
    flops: float


PAPER = {"base": Paper(0.4, 12, 3.3e18), "big": Paper(1.0, 3.5 * 24, 2.3e19)}


class Cost(NamedTuple):
    """What a recipe costs."""

    steps: int
    tokens: float  # target tokens in all
    flops_a_token: float  # a target token and the source token beside it, forward and backward
    flops: float  # in all

    def hours(self, tokens_a_second: float) -> float:
        return self.tokens / tokens_a_second / 3600


def cost(recipe: Recipe, length: float) -> Cost:
    """The cost of a recipe, with sentences of `length` tokens on both sides."""
    steps = recipe.training.max_steps
    tokens = steps * TOKENS_A_STEP
    flops_a_token = training_flops(recipe.transformer, length, length) / length
    return Cost(steps, tokens, flops_a_token, tokens * flops_a_token)


def cost_table(costs: dict[str, Cost]) -> str:
    lines = [
        "| recipe | steps | target tokens | FLOPs a target token | FLOPs in all |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in costs.items():
        lines.append(
            f"| `wmt14-en-de-{name}` | {found.steps:,} | {found.tokens / 1e9:.1f} billion "
            f"| {found.flops_a_token / 1e9:.3f} billion | {found.flops:.2e} |"
        )
    return "\n".join(lines)


def paper_table(costs: dict[str, Cost]) -> str:
    """The paper's own figures beside those that follow from the sizes."""
    lines = [
        "| model | the paper's step (s) | x steps (hours) | the paper's hours | tokens/s, 8 cards | the paper's FLOPs "
        "| 8 x 9.5e12 x its hours | share that products with matrices took |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in costs.items():
        paper = PAPER[name]
        capacity = PAPER_CARDS * P100_FLOPS * paper.hours * 3600
        lines.append(
            f"| {name} | {paper.seconds_a_step} | {found.steps * paper.seconds_a_step / 3600:.1f} | {paper.hours:g} "
            f"| {TOKENS_A_STEP / paper.seconds_a_step:,.0f} | {paper.flops:.1e} | {capacity:.1e} "
            f"| {found.flops / capacity:.0%} |"
        )
    return "\n".join(lines)


def hours_table(costs: dict[str, Cost], throughputs: dict[str, float], scaling: float) -> str:
    """Hours on one card and on eight.

    Args:
        costs: of each model.
        throughputs: target tokens a second of one card.
        scaling: the speed of each of eight cards, as a share of the speed of one card alone.
    """
    lines = ["| model | tokens/s, one card | FLOP/s | hours, one card | hours, eight cards |", "| --- " * 5 + "|"]
    for name, rate in throughputs.items():
        found = costs[name]
        lines.append(
            f"| {name} | {rate:,.0f} | {rate * found.flops_a_token:.1e} | {found.hours(rate):,.1f} "
            f"| {found.hours(8 * scaling * rate):,.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--throughput", nargs="+", metavar="MODEL=TOKENS", help="default: an eighth of the paper's")
    parser.add_argument("--scaling", type=float, default=1.0, help="share of its speed that a card keeps among eight")
    parser.add_argument("--length", type=float, default=30, help="tokens of a sentence, for the cost of attention")
    arguments = parser.parse_args()
    costs = {name: cost(load_recipe(f"wmt14-en-de-{name}"), arguments.length) for name in PAPER}
    throughputs = {name: TOKENS_A_STEP / paper.seconds_a_step / PAPER_CARDS for name, paper in PAPER.items()}
    if arguments.throughput:
        given = dict(entry.split("=") for entry in arguments.throughput)
        unknown = sorted(set(given) - set(PAPER))
        if unknown:
            parser.error(f"--throughput knows the models {', '.join(PAPER)}. Received: {', '.join(unknown)}.")
        throughputs = {name: float(rate) for name, rate in given.items()}
    print(cost_table(costs))
    print()
    print(paper_table(costs))
    print()
    print(hours_table(costs, throughputs, arguments.scaling))


if __name__ == "__main__":
    main()
