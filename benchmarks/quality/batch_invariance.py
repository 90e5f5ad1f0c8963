"""Does a sentence's translation depend on the sentences beside it?

    kformer export runs/bible-en-es exported/float32
    python -m benchmarks.quality.batch_invariance exported/float32 exported/int8 --corpus bible-en-es --sentences 1000

Each model translates sentences of a corpus one by one, in batches of 32 in the order of the file, and in batches of 7
in a shuffled order. A line counts as different if its three strings are not all the same.

Padding does not change what a row computes, but it changes the shapes of matrix products, and with them the order
in which a kernel sums. Where the scores of two hypotheses differ by less than the rounding of these sums, either may
come first. A line that differs counts as a tie if its scores agree to 1e-4. `--show` prints the lines that differ.

The exit status is 1 if a line differs and is not a tie.
"""

import argparse
import json
import pathlib
import random
import sys

from kformer.data import load_corpus
from kformer.inference import Model
from kformer.text.batches import AnswerBatch, Hypothesis

TIE = 1e-4  # nats; scores are float32 sums over some fifty tokens


def translate_in_batches(
    translate: AnswerBatch, texts: list[bytes], order: list[int], batch_size: int
) -> list[Hypothesis]:
    """The best hypothesis of each text; the batches are taken in this order."""
    results: dict[int, Hypothesis] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        for index, found in zip(batch, translate([texts[index] for index in batch]), strict=True):
            results[index] = found[0]
    return [results[index] for index in range(len(texts))]


def differing_lines(translate: AnswerBatch, texts: list[bytes]) -> list[list[Hypothesis]]:
    """The hypotheses (alone, in 32, in shuffled 7) of the lines whose strings differ."""
    in_order = list(range(len(texts)))
    shuffled = random.Random(0).sample(in_order, len(texts))
    ways = [(in_order, 1), (in_order, 32), (shuffled, 7)]
    found = [translate_in_batches(translate, texts, order, size) for order, size in ways]
    return [list(line) for line in zip(*found, strict=True) if len({one.text for one in line}) > 1]


def is_tie(line: list[Hypothesis]) -> bool:
    scores = [one.score for one in line]
    return max(scores) - min(scores) < TIE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, help="run folders or exports")
    parser.add_argument("--corpus", default="bible-en-es")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--show", action="store_true", help="print the lines that differ")
    arguments = parser.parse_args()

    texts = [source.encode("utf-8") for source, _ in load_corpus(arguments.corpus).test[: arguments.sentences]]
    print("| model | lines | whose translation depends on the batch | of these ties |", "| --- " * 4 + "|", sep="\n")
    no_ties = 0
    for path in arguments.models:
        lines = differing_lines(Model(path, threads_per_operation=1), texts)
        ties = sum(map(is_tie, lines))
        print(f"| {path} | {len(texts)} | {len(lines)} | {ties} |", flush=True)
        no_ties += len(lines) - ties
        for line in lines if arguments.show else []:
            print(json.dumps([one._asdict() for one in line], ensure_ascii=False))
    sys.exit(no_ties > 0)


if __name__ == "__main__":
    main()
