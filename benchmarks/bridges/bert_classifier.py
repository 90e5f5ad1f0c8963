"""What do weights of a masked language model give a classifier that has few labelled texts?

    python -m benchmarks.bridges.bert_classifier

An encoder in BERT's shape (learned positions, GELU, a norm of the embeddings, which are not scaled) learns for some
minutes to fill masks in the English side of `bible-en-es`: the training part of it. Then classifiers of
`bible-books` (six groups of books) learn for equal steps, with `--initialize-from` that run, and from nothing, with the
same layers, vocabulary size and settings. Each of them is trained at several scales of the learning rate, and the one
with the best accuracy on the validation part counts. The texts that validate and test are in no training part, not
even in that of the masks.

All is done by `kformer train` and `kformer evaluate`, each in a process of its own.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

CORPUS, TEXTS = "bible-books", "bible-en-es"
# A run that begins with another one has its shape and its vocabulary.
SHAPE = [
    *("--size", "tiny", "--positional-encoding", "learned", "--activation", "gelu", "--normalize-embeddings"),
    *("--no-scale-embeddings", "--vocab-size", "4000"),
]
BATCHES = ["--tokens-per-batch", "1024", "--max-length", "128"]  # small ones: many updates in a few minutes


def command(*arguments: object) -> str:
    """Runs `kformer` with these arguments, and returns what it prints."""
    parts = [sys.executable, "-m", "kformer", *map(str, arguments)]
    return subprocess.run(parts, check=True, stdout=subprocess.PIPE, text=True).stdout


def write_labels(folder: pathlib.Path, number: int) -> list[object]:
    """Options for files with so many of the training texts, evenly chosen, and with all of the validation texts."""
    from kformer.data import load_corpus

    corpus = load_corpus(CORPUS)
    parts = {"train": corpus.train[:: max(1, len(corpus.train) // number)][:number], "valid": corpus.valid}
    options: list[object] = []
    for name, pairs in parts.items():
        file = folder / f"{name}-{number}.tsv"
        file.write_text("".join(f"{text}\t{label}\n" for text, label in pairs), encoding="utf-8")
        options += [f"--{name}", file]
    return options


def train(folder: pathlib.Path, name: str, start: list[object], data: list[object], scale: float, steps: int) -> float:
    """Trains a classifier, and returns its best accuracy on the validation part."""
    summary = folder / f"{name}.json"
    options: list[object] = [*BATCHES, "--learning-rate-scale", scale, "--warmup-steps", max(1, steps // 4)]
    options += ["--max-steps", steps, "--validation-steps", max(1, steps // 4)]
    options += ["--monitor", "accuracy", "--summary", summary]
    command("train", "--task", "classify", *start, *data, *options, "--output", folder / name)
    return json.loads(summary.read_text())["best"]


def measure(arguments: argparse.Namespace, folder: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of the table."""
    masked = folder / "masked"
    print("the masked language model", file=sys.stderr)
    options = [
        "--task",
        "masked-language-model",
        "--corpus",
        TEXTS,
        *SHAPE,
        *BATCHES,
        "--max-minutes",
        arguments.minutes,
    ]
    command("train", *options, "--summary", folder / "masked.json", "--output", masked)
    steps = json.loads((folder / "masked.json").read_text())["steps"]
    starts: dict[str, list[object]] = {
        "from nothing": list(SHAPE),
        f"{arguments.minutes:g} minutes of masks ({steps:,} updates)": ["--initialize-from", masked],
    }
    rows = []
    for number in arguments.labels:
        data = write_labels(folder, number)
        for kind, (start, options) in enumerate(starts.items()):
            found = {}
            for scale in arguments.scales:
                name = f"{kind}-{number}-{scale:g}"
                print(f"{start}, {number} labels, scale {scale:g}", file=sys.stderr)
                found[scale] = train(folder, name, options, data, scale, arguments.steps)
            best = max(found, key=lambda scale: found[scale])
            tested = json.loads(command("evaluate", folder / f"{kind}-{number}-{best:g}", "--corpus", CORPUS))
            rows.append({"labelled": number, "start": start, "scale": best, "valid": found, **tested})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4, help="of the masked language model")
    parser.add_argument("--steps", type=int, default=200, help="of each classifier")
    parser.add_argument("--labels", type=int, nargs="+", default=[1000], help="labelled texts")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.3, 1.2], help="of the learning rate")
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-bert-"))
    try:
        rows = measure(arguments, folder)
    finally:
        shutil.rmtree(folder)
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=2) + "\n")
    print("| labelled texts | start | learning rate scale | accuracy | macro F1 |", "| --- " * 5 + "|", sep="\n")
    for row in rows:
        cells = [f"{row['labelled']:,}", row["start"], f"{row['scale']:g}"]
        print(f"| {' | '.join(cells)} | {row['accuracy']:.3f} | {row['macro_f1']:.3f} |")


if __name__ == "__main__":
    main()
