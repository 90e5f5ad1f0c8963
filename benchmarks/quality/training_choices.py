"""What do choices of training change? BLEU and chrF of the same model with several seeds, after equal steps.

    pip install -e .
    python -m benchmarks.quality.training_choices --folder runs/choices --max-steps 2000 \
        --choice "dropout 0.3: --dropout-rate 0.3" --choice "batches of 2,048: --tokens-per-batch 2048"

Every choice is a name, a colon and options of `kformer train`. The first row has none of them. The budget is in
updates, so that what else the machine does changes nothing but the minutes. The best weights by the loss of the
validation part translate the test part with beams of 4.

The commands are printed before they run. A training that was cut off goes on, and what is in `results.jsonl` of the
folder is not done again, so the script may be stopped and started as often as you like. With one seed after the other,
the table is complete for the first seeds first.
"""

import argparse
import json
import pathlib
import shlex
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.common.commands import kformer
from benchmarks.common.results import mean_and_spread, missing
from kformer.runs.folder import RunFolder
from kformer.training.checkpoints import saved_state

SCORES = ("bleu", "chrf")


def trained(run: pathlib.Path, settings: Sequence[str]) -> float:
    """Trains a run, or goes on with it; the minutes that it has trained."""
    kformer("train", "--output", run, "--auto-resume", *settings)
    state = saved_state(RunFolder(run).checkpoint_file)
    return 0.0 if state is None else state.seconds / 60


def measure(row: dict[str, Any], choice: Sequence[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains one model and scores it."""
    run = arguments.folder / f"{row['choice']}-{row['seed']}".replace(" ", "-").replace("/", "-")
    settings = [*arguments.settings, "--max-steps", str(row["steps"]), "--seed", str(row["seed"]), *choice]
    minutes = trained(run, settings)
    scores = json.loads(kformer("evaluate", run, "--corpus", "bible-en-es", "--beam-size", "4"))
    found = {name: scores[name] for name in SCORES}
    return {**row, **found, "minutes": minutes}


def table(results: list[dict[str, Any]], choices: Sequence[str]) -> str:
    """Mean and standard deviation over the seeds of each choice, in the order of the choices."""
    lines = ["| choice | seeds | BLEU | chrF | minutes |", "| --- | --- | --- | --- | --- |"]
    for choice in choices:
        rows = [row for row in results if row["choice"] == choice]
        if rows:
            cells = [mean_and_spread([row[name] for row in rows]) for name in SCORES]
            minutes = statistics.mean(row["minutes"] for row in rows)
            lines.append(f"| {choice} | {len(rows)} | {' | '.join(cells)} | {minutes:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of the runs and of the results")
    parser.add_argument("--size", default="small")
    parser.add_argument("--max-steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--choice", action="append", default=[], metavar="NAME: OPTIONS", help="any number of times")
    arguments = parser.parse_args()
    choices = {"as the size": ""} | {
        name.strip(): options for name, _, options in (choice.partition(":") for choice in arguments.choice)
    }
    arguments.settings = ["--corpus", "bible-en-es", "--size", arguments.size]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    file = arguments.folder / "results.jsonl"
    same = {"size": arguments.size, "steps": arguments.max_steps}
    wanted = [
        {"choice": name, "options": options.strip(), "seed": seed, **same}
        for seed in arguments.seeds
        for name, options in choices.items()
    ]
    for row in missing(file, wanted):
        found = measure(row, shlex.split(row["options"]), arguments)
        with file.open("a", encoding="utf-8") as results:
            results.write(f"{json.dumps(found)}\n")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    print(table([row for row in lines if any(one.items() <= row.items() for one in wanted)], list(choices)))


if __name__ == "__main__":
    main()
