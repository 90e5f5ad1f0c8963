"""Lines a second of a job, of one `kformer translate`, and of CTranslate2's `translate_file`; and their memory.

    pip install -e '.[benchmarks]'
    python -m benchmarks.jobs.speed --preset cmudict --lines 100000 --output words.json
    python -m benchmarks.jobs.speed --preset bible-en-es --lines 5000 --output verses.json

All have the same weights, the model's own beam size, and float32 or int8. The lines are those of the preset's corpus,
repeated until there are enough of them. Every system has a process of its own, which is timed from its start to its
end, and they take turns. A job has a worker for each core. CTranslate2 has a worker for each core with one thread, or
one worker with all threads, and smaller and larger batches. It reads and writes files of tokens, so that its seconds
are those of the search alone: the seconds that kformer's tokenizers need for the same lines are told apart, and not
added.

The lines of a job are compared with those of the one `kformer translate`: their batches differ, and so the last digits
of scores, which may decide between two answers that are equally good.

"Memory" is the largest sum of the pages that the process and its children have for themselves, in GB.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from benchmarks.training.large_corpus import memory_of
from kformer.wording import count

SYSTEMS = ("job", "kformer translate", "CTranslate2")
ROOT = pathlib.Path(__file__).parents[2]
CORES = len(os.sched_getaffinity(0))
CORPORA = {"cmudict": "cmudict", "bible-en-es": "bible-en-es"}
CTRANSLATE2 = """
import json, sys, ctranslate2
given = json.loads(sys.argv[1])
translator = ctranslate2.Translator(
    given["model"], device="cpu", compute_type=given["precision"],
    inter_threads=given["workers"], intra_threads=given["threads"],
)
translator.translate_file(
    given["source"], given["target"], max_batch_size=given["batch"], beam_size=given["beam_size"],
    length_penalty=given["length_penalty"], max_decoding_length=300, max_input_length=0,
)
"""


class Cost(NamedTuple):
    """What a process cost: seconds of the clock, and GB."""

    seconds: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CORPORA, default="cmudict")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--workers", type=int, nargs="+", help="of CTranslate2: one, and one for each core")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128], help="sentences, of CTranslate2")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a JSON file of the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(pathlib.Path(folder), arguments)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")


def measure(folder: pathlib.Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Times all systems in turns; prints each result as it comes, and in the end the best of each."""
    tokenizing = prepare(folder, arguments.preset, arguments.lines, arguments.precisions)
    print(f"{arguments.lines:,} lines, {CORES} cores; tokenizing them takes {tokenizing:.1f} s of one core", flush=True)
    settings = list(itertools.product(arguments.workers or (CORES, 1), arguments.batches))
    found: dict[str, list[Cost]] = {}
    for turn in range(arguments.rounds):
        for precision in arguments.precisions:
            for name, command in commands(folder, precision, settings, turn).items():
                if not name.startswith(tuple(arguments.systems)):
                    continue
                cost = watched(command)
                found.setdefault(f"{name}, {precision}", []).append(cost)
                print(
                    f"{name}, {precision}: {arguments.lines / cost.seconds:,.0f} lines/s, {cost.memory:.2f} GB",
                    flush=True,
                )
            if {"job", "kformer translate"} <= {*arguments.systems}:
                print(compared(folder, precision, turn), flush=True)
    best = {name: min(costs) for name, costs in found.items()}
    return {
        "lines": arguments.lines,
        "cores": CORES,
        "tokenizing_seconds": tokenizing,
        "lines_per_second": {name: arguments.lines / cost.seconds for name, cost in best.items()},
        "gb": {name: cost.memory for name, cost in best.items()},
    }


def prepare(folder: pathlib.Path, preset: str, number: int, precisions: list[str]) -> float:
    """Writes the lines, the models and the files of tokens; the seconds that tokenizing takes."""
    import kformer
    from kformer.data import load_corpus

    translator = kformer.Translator.from_preset(preset)
    for precision in precisions:
        kformer.export_saved_model(translator, folder / precision, precision=precision)
        kformer.export_ctranslate2(translator, folder / f"ctranslate2-{precision}", precision=precision)
    sources = (
        source for source, _ in itertools.chain.from_iterable(itertools.repeat(load_corpus(CORPORA[preset]).train))
    )
    lines = list(itertools.islice(sources, number))
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    decoding = translator.decoding
    search = {
        "beam_size": decoding.beam_size,
        "length_penalty": decoding.length_penalty if decoding.beam_size > 1 else 0,
    }
    (folder / "search.json").write_text(json.dumps(search))
    tokens = translator.source_tokenizer.tokens()
    began = time.perf_counter()
    with (folder / "tokens.txt").open("w", encoding="utf-8") as file:
        for start in range(0, number, 10_000):
            for ids in translator.source_tokenizer.tokenize(lines[start : start + 10_000]).to_list():
                file.write(" ".join(tokens[one] for one in ids) + "\n")
    return time.perf_counter() - began


def commands(folder: pathlib.Path, precision: str, settings: list[tuple[int, int]], turn: int) -> dict[str, list[str]]:
    """What is timed; `settings` are workers and batches of CTranslate2."""
    translate = [
        sys.executable,
        "-m",
        "kformer",
        "translate",
        str(folder / precision),
        "--input",
        str(folder / "lines.txt"),
    ]
    given = json.loads((folder / "search.json").read_text()) | {
        "model": str(folder / f"ctranslate2-{precision}"),
        "precision": precision,
        "source": str(folder / "tokens.txt"),
        "target": str(folder / "translated.txt"),
    }

    def ctranslate2(workers: int, batch: int) -> list[str]:
        settings = given | {"workers": workers, "threads": CORES // workers, "batch": batch}
        return [sys.executable, "-c", CTRANSLATE2, json.dumps(settings)]

    return {
        f"job, {CORES} processes": [*translate, "--output", f"{job_folder(folder, precision, turn)}/"],
        "kformer translate": [*translate, "--output", str(folder / "plain.txt")],
        **{
            f"CTranslate2, {count(workers, 'worker')}, batches of {batch}": ctranslate2(workers, batch)
            for workers, batch in settings
        },
    }


def job_folder(folder: pathlib.Path, precision: str, turn: int) -> pathlib.Path:
    return folder / f"job-{precision}-{turn}"


def lines_of(*files: pathlib.Path) -> list[str]:
    """The lines of files, one after the other."""
    return [line for file in files for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def compared(folder: pathlib.Path, precision: str, turn: int) -> str:
    """How many lines of the job and of one `kformer translate` are equal.

    Raises:
        SystemExit: They have not as many lines as were given.
    """
    job = lines_of(*sorted(job_folder(folder, precision, turn).glob("part-*.txt")))
    plain, given = lines_of(folder / "plain.txt"), len(lines_of(folder / "lines.txt"))
    if not len(job) == len(plain) == given:
        raise SystemExit(f"{given:,} lines were given, the job has {len(job):,}, `kformer translate` {len(plain):,}")
    equal = sum(one == other for one, other in zip(job, plain, strict=True))
    return f"{precision}: {equal:,} of {given:,} lines of the job equal those of one `kformer translate`"


def watched(command: list[str], folder: pathlib.Path | None = None, variables: dict[str, str] | None = None) -> Cost:
    """Runs a command to its end, in a folder and with further variables of the environment.

    Raises:
        SystemExit: It failed.
    """
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    largest, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            largest[0] = max(largest[0], memory_of(process.pid).own)

    looking = threading.Thread(target=look)
    looking.start()
    _, errors = process.communicate()
    seconds = time.perf_counter() - began
    ended.set()
    looking.join()
    if process.returncode:
        raise SystemExit(f"{command}: {errors}")
    return Cost(seconds, largest[0])


if __name__ == "__main__":
    main()
