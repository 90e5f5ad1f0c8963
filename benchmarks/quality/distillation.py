"""What does a student learn from its teacher? Small models of `bible-en-es` with and without distillation.

    python -m benchmarks.quality.distillation --steps 6000

The teacher is the preset `bible-en-es`. Students of each size learn for as many updates:

    texts          the pairs of the corpus
    translations   the teacher's translations of the sources (`kformer distill`)
    both           these, and the teacher's probabilities (`--word-level 0.5`)

The best weights are those of the lowest loss on the validation part of the corpus, of its own targets in all rows. The
table has BLEU and chrF on the test part, the mean over the seeds and the sample standard deviation, and the size of an
export in int8. Students search greedily, and the teacher with 4 beams and greedily.

All is done by `kformer`, each command in a process of its own, and printed. What is there in the folder is not done
again, and a training that was cut off goes on from its last checkpoint: start the same command again. A folder has the
results of one choice of --steps and --settings. How fast a student answers: `decoding/whole_files.py --run RUN`.
"""

import argparse
import json
import pathlib
import shlex
from typing import Any

from benchmarks.common.commands import kformer, trained
from benchmarks.common.results import mean_and_spread
from kformer.data import load_corpus
from kformer.files.writing import replacing
from kformer.jobs import distilled_corpus
from kformer.presets import find_preset
from kformer.wording import count

TEACHER = "bible-en-es"
SYSTEMS = ("texts", "translations", "both")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6000, help="updates of each training")
    parser.add_argument("--sizes", nargs="+", default=["small-shallow-decoder", "tiny-shallow-decoder"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--settings", default="", help="further options of `kformer train`, in one text")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/distillation"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_parts(arguments.folder)
    teacher = find_preset(TEACHER).path
    rows = [(f"teacher, {count(beams, 'beam')}", [scored(arguments.folder, teacher, beams)]) for beams in (4, 1)]
    print(*table(rows), sep="\n", flush=True)
    for size in arguments.sizes:
        for system in arguments.systems:
            rows.append((f"{size}: {system}", []))
            for seed in arguments.seeds:
                run = trained(arguments.folder, f"{size}-{system}-{seed}", options(arguments, size, system, seed))
                rows[-1][1].append(scored(arguments.folder, run, 1))
                print(rows[-1][0], "seed", seed, json.dumps(rows[-1][1][-1]), flush=True)
    print("", *table(rows), sep="\n")


def write_parts(folder: pathlib.Path) -> None:
    """Writes the corpus, and with the teacher's translations in place of the training targets."""
    corpus = load_corpus(TEACHER)
    taught = distilled_corpus(TEACHER, corpus, folder / "teacher")
    for name, pairs in (("texts", corpus.train), ("translations", taught.train), ("valid", corpus.valid)):
        with replacing(folder / f"{name}.tsv") as partial:
            partial.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def options(arguments: argparse.Namespace, size: str, system: str, seed: int) -> list[object]:
    """The options of `kformer train` for a student."""
    learned = arguments.folder / ("texts.tsv" if system == "texts" else "translations.tsv")
    found = ["--train", learned, "--valid", arguments.folder / "valid.tsv", "--size", size, "--seed", seed]
    found += ["--max-steps", arguments.steps, "--validation-steps", max(1, arguments.steps // 10), "--patience", 100]
    if system == "both":
        found += ["--word-level", 0.5, "--word-level-teacher", TEACHER]
    return [*found, *shlex.split(arguments.settings)]


def scored(folder: pathlib.Path, run: pathlib.Path, beam_size: int) -> dict[str, Any]:
    """BLEU and chrF of a run on the test part, and the megabytes of its export in int8."""
    file = folder / f"{run.name}-{beam_size}-scores.json"
    if not file.exists():
        found = json.loads(kformer("evaluate", run, "--corpus", TEACHER, "--beam-size", beam_size))
        export = folder / "exports" / run.name
        if not export.exists():
            kformer("export", run, export, "--precision", "int8")
        size = sum(part.stat().st_size for part in export.rglob("*") if part.is_file())
        with replacing(file) as partial:
            partial.write_text(json.dumps({**found, "megabytes": size / 1e6}), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def table(rows: list[tuple[str, list[dict[str, Any]]]]) -> list[str]:
    """The lines of a table: for each model the mean and the spread of its scores."""
    lines = ["| model | seeds | BLEU | chrF | MB |", "| --- | --- | --- | --- | --- |"]
    for name, found in rows:
        cells = [mean_and_spread([one[metric] for one in found]) for metric in ("bleu", "chrf")]
        lines.append(f"| {name} | {len(found)} | {' | '.join(cells)} | {found[0]['megabytes']:.1f} |")
    return lines


if __name__ == "__main__":
    main()
