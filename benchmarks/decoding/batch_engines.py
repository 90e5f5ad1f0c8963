"""How fast is a file translated by `kformer translate`, and by Ray Data, Apache Beam and Spark?

    make test-engines    # makes an environment for each engine
    python -m benchmarks.decoding.batch_engines --ray build/ray-venv/bin/python --beam build/beam-venv/bin/python

The lines are words of `cmudict`, the model is the preset `cmudict` as an export. What runs are the programs of
docs/batch-engines.md as they stand, each by the Python of its environment. They take turns; the time of each goes from
the start of its process to its end, and the best of the rounds counts. So it has the start of the engine and of its
workers, which more lines would make a smaller part of: the last columns are without it, by a run with a single line.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks.common.pages import program_of

PAGE = "batch-engines.md"
ENGINES = {"ray": "Ray Data", "beam": "Apache Beam", "spark": "Spark"}  # the headings of their programs
ROOT = pathlib.Path(__file__).parents[2]
TRANSLATE = ["-m", "kformer", "translate", "exported/mine", "--input", "lines.txt", "--output", "answers"]


def prepare(folder: pathlib.Path) -> None:
    """The export, where the programs look for it."""
    import kformer

    translator = kformer.Translator.from_preset("cmudict")
    kformer.export_saved_model(translator, folder / "exported" / "mine")


def write_lines(folder: pathlib.Path, number: int) -> None:
    """The first sources of the corpus, as a file of lines and as one of numbered lines."""
    from kformer.data import load_corpus

    sources = [source for source, _ in load_corpus("cmudict").train[:number]]
    (folder / "lines.txt").write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
    subprocess.run([sys.executable, "-c", program_of(PAGE, "Numbers for the lines")], cwd=folder, check=True)


def seconds(command: list[str], folder: pathlib.Path) -> float:
    """The time that a command takes, from the start of its process to the end."""
    for old in [*folder.glob("answers*"), folder / "checkpoint"]:
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": command[0]}
    began = time.perf_counter()
    with (folder / "said").open("wb") as said:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT, check=False)
    if done.returncode or not [*folder.glob("answers*")]:
        raise SystemExit((folder / "said").read_text(errors="replace")[-4000:])
    return time.perf_counter() - began


def commands(folder: pathlib.Path, pythons: dict[str, str]) -> dict[str, list[str]]:
    """The command of each system, by its name."""
    found = {"kformer translate": [sys.executable, *TRANSLATE]}
    for engine, python in pythons.items():
        program = folder / f"{engine}_program.py"
        program.write_text(program_of(PAGE, ENGINES[engine]), encoding="utf-8")
        found[ENGINES[engine]] = [python, program.name]
    return found


def table(lines: int, whole: dict[str, float], one_line: dict[str, float]) -> str:
    """Lines a second of each system, and the ratio to the first one, with the start and without it.

    A machine that does other things may take longer for one line than for all. Then there is no time without the start.

    Examples:
        >>> print(table(100, {"a": 10.0, "b": 25.0}, {"a": 5.0, "b": 5.0}))
        | system | seconds | lines/s | ratio | seconds with one line | lines/s without these | ratio |
        | --- | --- | --- | --- | --- | --- | --- |
        | a | 10.0 | 10 | 1.00 | 5.0 | 20 | 1.00 |
        | b | 25.0 | 4 | 0.40 | 5.0 | 5 | 0.25 |
    """
    first = next(iter(whole))
    rows = [
        "| system | seconds | lines/s | ratio | seconds with one line | lines/s without these | ratio |",
        "|" + " --- |" * 7,
    ]
    for name in whole:
        later, first_later = whole[name] - one_line[name], whole[first] - one_line[first]
        without = f"{lines / later:,.0f} | {first_later / later:.2f}" if min(later, first_later) > 0 else "- | -"
        rows.append(
            f"| {name} | {whole[name]:.1f} | {lines / whole[name]:,.0f} | {whole[first] / whole[name]:.2f} | "
            f"{one_line[name]:.1f} | {without} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for engine, name in ENGINES.items():
        parser.add_argument(f"--{engine}", metavar="PYTHON", help=f"of an environment with {name}")
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    # Not resolved, because a virtual environment's Python is a link to another one.
    given = {engine: getattr(arguments, engine) for engine in ENGINES}
    pythons = {engine: os.path.abspath(path) for engine, path in given.items() if path}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-engines-"))
    try:
        prepare(folder)
        systems = commands(folder, pythons)
        best = {}
        for lines in (1, arguments.lines):
            write_lines(folder, lines)
            rounds = [
                {name: seconds(command, folder) for name, command in systems.items()} for _ in range(arguments.rounds)
            ]
            best[lines] = {name: min(times[name] for times in rounds) for name in systems}
        print(table(arguments.lines, best[arguments.lines], best[1]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
