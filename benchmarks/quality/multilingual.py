"""Does one model of three directions translate as well as three models? BLEU and chrF after equally many updates.

    python -m benchmarks.quality.multilingual --size small --max-steps 3000

The directions are English to Spanish and back (the verses of `bible-en-es`, as it is divided) and English to Brazilian
Portuguese (the manual of `benchmarks/quality/manuals.py`, which needs Debian's tools and downloads it). A model of all
directions is told by a tag before the source which one is wanted.

All models have the same size and as many subwords, so that of three languages has fewer for each of them. A batch holds
as many tokens for all. So a model of three directions spends on each about a third of its updates, and there are two of
them:

- `all` has three times as many updates: as many for each direction as the single models, in the time of all three.
- `all, short` has as many updates as one single model, in the time of one.

Each model is validated ten times, and the weights with the lowest loss are kept; of the models of three directions,
the loss over all of them. None ends before its budget, which is in updates, so a slow machine changes nothing. The test
parts are translated with beams of 4.

The commands of kformer that are run are printed. A line of JSON for each model and direction is appended to
`results.jsonl` in the folder, and the table is printed. What is there already is not done again, and a training that
was cut off goes on from its last checkpoint.
"""

import argparse
import json
import pathlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from benchmarks.common.commands import kformer
from benchmarks.common.results import missing
from benchmarks.quality.manuals import make_pairs, write_pairs
from kformer.data import load_corpus

_VALIDATIONS = 10


class Direction(NamedTuple):
    """What is translated: the name of the files, and their columns in the order that the model reads them."""

    files: str
    columns: str
    tag: str


class System(NamedTuple):
    """A model: the names of its directions, and its updates, in those of a model of one direction."""

    directions: tuple[str, ...]
    budgets: int


DIRECTIONS = {
    "en>es": Direction("bible", "source,target", "<2es>"),
    "es>en": Direction("bible", "target,source", "<2en>"),
    "en>pt": Direction("manuals", "source,target", "<2pt>"),
}
SYSTEMS = {name: System((name,), 1) for name in DIRECTIONS} | {
    "all": System(tuple(DIRECTIONS), len(DIRECTIONS)),
    "all, short": System(tuple(DIRECTIONS), 1),
}


def write_bible(folder: pathlib.Path) -> None:
    """Writes the parts of the corpus that comes with kformer, unless they are there."""
    corpus = load_corpus("bible-en-es")
    for part in ("train", "valid", "test"):
        file = folder / f"bible.{part}.tsv"
        if not file.is_file():
            write_pairs(file, list(getattr(corpus, part)))


def training(system: System, data: pathlib.Path, run: pathlib.Path, arguments: argparse.Namespace) -> list[str]:
    """The command that trains a model, or goes on with it."""
    command = ["train"]
    for name in system.directions:
        direction = DIRECTIONS[name]
        for part in ("train", "valid"):
            command += [f"--{part}", str(data / f"{direction.files}.{part}.tsv")]
        command += ["--columns", direction.columns]
        command += ["--tag", direction.tag] if len(system.directions) > 1 else []
    steps = system.budgets * arguments.max_steps
    fields = {"size": arguments.size, "seed": arguments.seed, "max-steps": steps}
    fields |= {"validation-steps": -(-steps // _VALIDATIONS), "patience": _VALIDATIONS}
    fields |= {"cache": data.parent / "cache", "output": run}
    return [
        *command,
        *(word for field, value in fields.items() for word in (f"--{field}", str(value))),
        "--auto-resume",
    ]


def evaluation(
    system: System, name: str, data: pathlib.Path, run: pathlib.Path, arguments: argparse.Namespace
) -> list[str]:
    """The command that scores a model on the test part of a direction."""
    direction = DIRECTIONS[name]
    command = ["evaluate", str(run), "--test", str(data / f"{direction.files}.test.tsv")]
    command += ["--columns", direction.columns, "--beam-size", "4"]
    command += ["--tag", direction.tag] if len(system.directions) > 1 else []
    return command + ([] if arguments.limit is None else ["--limit", str(arguments.limit)])


def table(lines: Iterable[dict[str, Any]]) -> str:
    """The results in Markdown: a row for each model, BLEU and chrF of each direction."""
    scores = {(line["system"], line["direction"]): f"{line['bleu']:.1f}, {line['chrf']:.1f}" for line in lines}
    updates = {line["system"]: line["updates"] for line in lines}
    rows = [
        f"| model (BLEU, chrF) | updates | {' | '.join(DIRECTIONS)} |",
        "| --- " * (len(DIRECTIONS) + 2) + "|",
    ]
    for system in (name for name in SYSTEMS if name in updates):
        cells = " | ".join(scores.get((system, direction), "-") for direction in DIRECTIONS)
        rows.append(f"| {system} | {updates[system]:,} | {cells} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", help="of the models: tiny, small, base or big")
    parser.add_argument("--max-steps", type=int, default=3000, help="updates of a model of one direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="only the first sentences of each test part")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/multilingual"))
    arguments = parser.parse_args()

    data, results = arguments.folder / "data", arguments.folder / "results.jsonl"
    make_pairs(data)
    write_bible(data)
    made = {name: getattr(arguments, name) for name in ("size", "max_steps", "seed", "limit")}
    runs = arguments.folder / f"{arguments.size}-{arguments.max_steps}-seed-{arguments.seed}"
    for name in arguments.systems:
        system, run = SYSTEMS[name], runs / name.replace(", ", "-").replace(">", "-")
        rows = missing(results, [{**made, "system": name, "direction": direction} for direction in system.directions])
        if rows:
            kformer(*training(system, data, run, arguments))
        for row in rows:
            scores = json.loads(kformer(*evaluation(system, row["direction"], data, run, arguments)))
            row |= {"updates": system.budgets * arguments.max_steps, **scores, "date": time.strftime("%Y-%m-%d")}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    print(
        "\n" + table([line for line in lines if made.items() <= line.items() and line["system"] in arguments.systems])
    )


if __name__ == "__main__":
    main()
