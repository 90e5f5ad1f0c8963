"""What does back-translation give? Half of the pairs of `bible-en-es`, and of the other half the Spanish texts alone.

    python -m benchmarks.quality.back_translation --steps 6000

Four models learn English to Spanish for as many updates, each with its own vocabulary of the texts that it learns from:

    half      the half of the pairs
    untagged  the half, and the Spanish texts with sources that a model of Spanish to English has drawn (Edunov et al.
              2018, "Understanding Back-Translation at Scale", section 3)
    tagged    the same, with the tag <bt> before each drawn source (Caswell et al. 2019, "Tagged Back-Translation")
    all       all pairs: what the texts could give at most, if each had its true source

The model of Spanish to English has learned from the half, too. All validate on the validation part of the corpus, and
keep the weights of the best loss. The table has BLEU and chrF on the test part: the mean over the seeds, and the sample
standard deviation if there are several.

All is done by `kformer`, each command in a process of its own, and printed. What is there in the folder is not done
again, and a training that was cut off goes on from its last checkpoint: start the same command again. A folder has the
results of one choice of --size, --steps, --pairs and --temperature.
"""

import argparse
import json
import pathlib
from collections.abc import Iterable

from benchmarks.common.commands import kformer, trained
from benchmarks.common.results import mean_and_spread
from kformer.data import load_corpus
from kformer.files.writing import replacing
from kformer.wording import count

TAG = "<bt>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6000, help="updates of each training")
    parser.add_argument("--size", default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--temperature", type=float, default=1.0, help="of the drawn sources")
    parser.add_argument("--pairs", type=int, help="only the first training pairs of the corpus, before they are halved")
    parser.add_argument("--limit", type=int, help="only the first sentences of the test part")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/back-translation"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_corpus(arguments.folder, arguments.pairs)
    settings = ["--size", arguments.size, "--max-steps", arguments.steps]
    settings += ["--validation-steps", max(1, arguments.steps // 10), "--patience", 100]
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.systems}
    for seed in arguments.seeds:
        for name in arguments.systems:
            options = SYSTEMS[name](arguments.folder, seed, settings, arguments.temperature)
            run = trained(arguments.folder, f"{name}-{seed}", [*options, *settings, "--seed", seed])
            scores[name].append(evaluated(arguments.folder, run, arguments.limit))
            print(name, "seed", seed, json.dumps(scores[name][-1]), flush=True)
    print("", *table(scores), sep="\n")


def write_corpus(folder: pathlib.Path, limit: int | None = None) -> None:
    """Writes the parts: every second training pair whole, of the others the Spanish side."""
    corpus = load_corpus("bible-en-es")
    train = list(corpus.train)[:limit]
    write_lines(folder / "all.tsv", map("\t".join, train))
    write_lines(folder / "half.tsv", map("\t".join, train[::2]))
    write_lines(folder / "monolingual.es", (target for _, target in train[1::2]))
    for part in ("valid", "test"):
        write_lines(folder / f"{part}.tsv", map("\t".join, getattr(corpus, part)))


def write_lines(file: pathlib.Path, lines: Iterable[str]) -> None:
    """Writes the file, if it is not there."""
    if not file.exists():
        with replacing(file) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def half(folder: pathlib.Path, seed: int, settings: list[object], temperature: float) -> list[object]:
    """The options of `kformer train` that say what is learned, as of all systems."""
    return ["--train", folder / "half.tsv", "--valid", folder / "valid.tsv"]


def every(folder: pathlib.Path, seed: int, settings: list[object], temperature: float) -> list[object]:
    return ["--train", folder / "all.tsv", "--valid", folder / "valid.tsv"]


def untagged(folder: pathlib.Path, seed: int, settings: list[object], temperature: float) -> list[object]:
    synthetic = back_translated(folder, seed, settings, temperature)
    return ["--train", folder / "half.tsv", "--train", synthetic, "--valid", folder / "valid.tsv"]


def tagged(folder: pathlib.Path, seed: int, settings: list[object], temperature: float) -> list[object]:
    return [*untagged(folder, seed, settings, temperature), "--tag", "", "--tag", TAG]


SYSTEMS = {"half": half, "untagged": untagged, "tagged": tagged, "all": every}


def back_translated(folder: pathlib.Path, seed: int, settings: list[object], temperature: float) -> pathlib.Path:
    """The file of the Spanish texts, each with a source that a model of the other direction has drawn for it."""
    synthetic = folder / f"synthetic-{seed}.tsv"
    if not synthetic.exists():
        options = [*half(folder, seed, settings, temperature), "--columns", "target,source", *settings, "--seed", seed]
        reverse = trained(folder, f"reverse-{seed}", options)
        drawing = ["--temperature", temperature, "--seed", seed]
        kformer("translate", reverse, "--input", folder / "monolingual.es", *drawing, "--pairs", "--output", synthetic)
    return synthetic


def evaluated(folder: pathlib.Path, run: pathlib.Path, limit: int | None) -> dict[str, float]:
    """BLEU and chrF of a run on the test part."""
    file = run / "test_scores.json"
    if not file.exists():
        first = [] if limit is None else ["--limit", limit]
        found = kformer("evaluate", run, "--test", folder / "test.tsv", *first)
        with replacing(file) as partial:
            partial.write_text(found, encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def table(scores: dict[str, list[dict[str, float]]]) -> list[str]:
    """The lines of a table: for each system the mean and the spread of its scores."""
    seeds = max(map(len, scores.values()))
    lines = [f"| trained on | BLEU, {count(seeds, 'seed')} | chrF |", "| --- | --- | --- |"]
    for name, found in scores.items():
        cells = [mean_and_spread([one[metric] for one in found]) for metric in ("bleu", "chrf")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
