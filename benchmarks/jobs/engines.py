"""Lines a second and memory of a job, and of the programs of docs/batch-engines.md for Ray Data, Beam and Spark.

    make build/ray-venv/.kformer-test build/beam-venv/.kformer-test build/spark-venv/.kformer-test
    python -m benchmarks.jobs.engines --lines 200000 --output engines.json

All have the same export in int8, and the lines of the preset's corpus, repeated until there are enough of them. Each
program is timed from its start to its end, so that the start of the engine counts, and each has the environment in
which its tests run. Its answers are compared with those of the job: every line must be there once.

"Memory" is the largest sum of the pages that the process and its children have for themselves, in GB.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.common.pages import program_of
from benchmarks.jobs.kills import CORPORA, prepare
from benchmarks.jobs.speed import ROOT, lines_of, watched

PAGE = "batch-engines.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CORPORA, default="cmudict")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a JSON file of the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, arguments.preset, arguments.lines)
        (folder / "exported").mkdir()
        (folder / "export").rename(folder / "exported" / "mine")
        results = measure(folder, arguments.lines, arguments.engines)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")


def measure(folder: pathlib.Path, lines: int, engines: list[str]) -> dict[str, object]:
    """Times the job, then each engine; prints each result as it comes.

    Raises:
        SystemExit: A program failed, or a line has no answer or several.
    """
    results: dict[str, object] = {"lines": lines}
    job = [sys.executable, "-m", "kformer", "translate", "exported/mine", "--input", "lines.txt", "--output", "job/"]
    cost = watched(job, folder)
    expected = lines_of(*sorted(folder.glob("job/part-*")))
    print(f"job: {lines / cost.seconds:,.0f} lines/s, {cost.memory:.2f} GB", flush=True)
    results["job"] = cost._asdict()
    for engine in engines:
        python, title, answers = ROOT / "build" / f"{engine}-venv" / "bin" / "python", *ENGINES[engine]
        run = folder / engine
        run.mkdir()
        for shared in ("exported", "lines.txt"):
            (run / shared).symlink_to(folder / shared)
        subprocess.run([python, "-c", program_of(PAGE, "Numbers for the lines")], cwd=run, check=True)
        (run / "program.py").write_text(program_of(PAGE, title))
        cost = watched([str(python), "program.py"], run, {"PYSPARK_PYTHON": str(python)})
        found = sorted(answers(run))
        if [number for number, _ in found] != [*range(lines)]:
            raise SystemExit(f"{engine}: {len(found):,} answers, or not each number once; {lines:,} lines were given.")
        different = sum(one != other for (_, one), other in zip(found, expected, strict=True))
        print(
            f"{title}: {lines / cost.seconds:,.0f} lines/s, {cost.memory:.2f} GB; {different:,} lines differ from the "
            "job's",
            flush=True,
        )
        results[engine] = {**cost._asdict(), "different": different}
    return results


def _of_parquet(folder: pathlib.Path) -> list[tuple[int, str]]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "answers")
    return list(zip(table["line"].to_pylist(), table["answer"].to_pylist(), strict=True))


def _of_text(folder: pathlib.Path) -> list[tuple[int, str]]:
    """Lines of a number, a tab and an answer."""
    rows = (line.split("\t") for line in lines_of(*folder.glob("answers-*-of-*")))
    return [(int(number), answer) for number, answer in rows]


ENGINES: dict[str, tuple[str, Callable[[pathlib.Path], list[tuple[int, str]]]]] = {
    "ray": ("Ray Data", _of_parquet),
    "beam": ("Apache Beam", _of_text),
    "spark": ("Spark", _of_parquet),
}


if __name__ == "__main__":
    main()
