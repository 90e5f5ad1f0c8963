"""How fast is a whole file translated, strings in, strings out, beside CTranslate2 and Hugging Face Marian?

    pip install -e '.[benchmarks]'
    python -m benchmarks.decoding.whole_files --output files.json

The file is the test part of `bible-en-es` (1,000 verses of real lengths). The model `small` is the shipped preset
`bible-en-es`, or with --run another translator of this corpus, such as a student; `base` has the paper's size and is
grown from the preset (see `common/grown_model.py`).
All systems run the same weights with the same search (length penalty 0.6) on the same number of threads, each in a
separate process, and take turns; a system's time is its best of the rounds. kformer's exports run through TensorFlow's
C API, as `kformer translate` runs them: a worker for each core, one thread for an operation. `kformer translate`
itself, a fresh process each time, has a separate row. CTranslate2 has two rows: one worker with all threads, and one
single-threaded worker for each core.

The last columns are for one sentence at a time: the first sentences of the same file.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import peers
from benchmarks.common.grown_model import grow
from benchmarks.common.machine import describe_machine
from benchmarks.common.worker import Worker

PRESET = "bible-en-es"


class System(NamedTuple):
    """One way to translate a file."""

    name: str
    program: str  # key of file_systems.LOADERS, or "command"
    precision: str = "float32"
    variant: str = "portable"  # of a kformer export
    workers: int = 1


def systems(cores: int) -> list[System]:
    ours = [
        System(f"kformer {precision}", "kformer", precision, workers=cores)
        for precision in ("float32", "bfloat16", "int8")
    ]
    theirs = [
        System(f"CTranslate2 {precision}, {workers} x {cores // workers}", "ctranslate2", precision, workers=workers)
        for precision in ("float32", "int8")
        for workers in (1, cores)
    ]
    return [
        *ours,
        System("kformer xla float32", "kformer", "float32", "xla", workers=cores),
        System("kformer translate (float32)", "command"),
        *theirs,
        System("Marian float32", "marian", "float32"),
        System("Marian bfloat16", "marian", "bfloat16"),
    ]


def prepare(folder: pathlib.Path, size: str, run: str, beam_sizes: list[int], chosen: list[System]) -> None:
    """Writes the models in every system's form, the sources and the references."""
    import kformer
    from kformer.data import load_corpus

    folder.mkdir()
    for beam_size in beam_sizes:
        translator = kformer.Translator.from_preset(run, kformer.DecodingConfig(beam_size=beam_size))
        if size == "base":
            translator = grow(translator)
        for system in chosen:
            target = folder / f"{system.precision}-{system.variant}-{beam_size}"
            if system.program == "kformer" and not target.exists():
                kformer.export_saved_model(translator, target, precision=system.precision, variant=system.variant)
    (folder / "model.spm").write_bytes(translator.source_tokenizer.model_bytes)
    peers.write_peers(translator, ("float32", "int8"), folder)
    test = load_corpus(PRESET).test
    (folder / "sources").write_text("".join(f"{source}\n" for source, _ in test), encoding="utf-8")
    (folder / "references").write_text("".join(f"{target}\n" for _, target in test), encoding="utf-8")


def run_command(folder: pathlib.Path, run: str, beam_size: int, sources: int) -> dict[str, Any]:
    """`kformer translate` of the file, in a fresh process: seconds from its start to its end."""
    lines = (folder / "sources").read_text(encoding="utf-8").splitlines()[:sources]
    source, target = folder / "command-in", folder / "command-out"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "kformer", "translate", "--preset", run, "--beam-size", str(beam_size)]
    command += [] if beam_size == 1 else ["--length-penalty", "0.6"]
    command += ["--input", str(source), "--output", str(target)]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return {
        "seconds": time.perf_counter() - began,
        "translations": target.read_text(encoding="utf-8").splitlines(),
    }


def measure(
    folder: pathlib.Path, size: str, beam_size: int, chosen: list[System], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows of one size and beam. All systems are loaded; they take turns."""
    request = {"folder": str(folder), "beam_size": beam_size, "sources": arguments.sentences}
    workers = {
        system: Worker("file_translators", system.program, arguments.threads)
        for system in chosen
        if system.program != "command"
    }
    times: dict[System, list[dict[str, Any]]] = {system: [] for system in chosen}
    for turn in range(arguments.rounds + 1):
        for system in chosen:
            if system.program == "command":
                answer = run_command(folder, arguments.run, beam_size, arguments.sentences)
            else:
                answer = workers[system].ask({**request, **system._asdict()})
            if turn:  # The first time also loads, compiles, packs, and keeps the export.
                times[system].append(answer)
    latencies = {}
    for system, worker in workers.items():
        latencies[system] = worker.ask({**request, **system._asdict(), "alone": arguments.alone})["latencies"]
        worker.close()
    rows = [_row(folder, system, times[system], latencies.get(system)) for system in chosen]
    return [{"size": size, "beam_size": beam_size, **row} for row in rows]


def _row(
    folder: pathlib.Path, system: System, answers: list[dict[str, Any]], latencies: list[float] | None
) -> dict[str, Any]:
    import sacrebleu
    import sentencepiece

    best = min(answers, key=lambda answer: answer["seconds"])
    found = best["translations"]
    references = (folder / "references").read_text(encoding="utf-8").splitlines()[: len(found)]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.spm"))
    tokens = sum(len(ids) + 1 for ids in pieces.encode(found))
    row = {
        "system": system.name,
        "sentences_per_second": len(found) / best["seconds"],
        "tokens_per_second": tokens / best["seconds"],
        "bleu": sacrebleu.corpus_bleu(found, [references]).score,
        "cpu_seconds": best.get("cpu_seconds"),
        "peak_bytes": best.get("peak_bytes"),
        "all_seconds": [answer["seconds"] for answer in answers],
    }
    if latencies:
        row |= {"p50_ms": 1e3 * np.percentile(latencies, 50), "p99_ms": 1e3 * np.percentile(latencies, 99)}
    return row


def report(rows: list[dict[str, Any]]) -> None:
    """Prints the tables and the ratios."""
    print("| size | beam | system | sentences/s | tokens/s | BLEU | CPU s | peak MB | alone: p50 ms | p99 ms |")
    print("|" + " --- |" * 10)
    for row in rows:
        columns = (("cpu_seconds", 1, 1), ("peak_bytes", 1e6, 0), ("p50_ms", 1, 1), ("p99_ms", 1, 1))
        optional = [
            f"{row[name] / unit:,.{digits}f}" if row.get(name) is not None else "-" for name, unit, digits in columns
        ]
        print(
            f"| {row['size']} | {row['beam_size']} | {row['system']} | {row['sentences_per_second']:,.0f} | "
            f"{row['tokens_per_second']:,.0f} | {row['bleu']:.2f} | {' | '.join(optional)} |"
        )
    for size, beam_size in sorted({(row["size"], row["beam_size"]) for row in rows}):
        cell = [row for row in rows if (row["size"], row["beam_size"]) == (size, beam_size)]
        ours = [row for row in cell if row["system"].startswith("kformer")]
        theirs = [row for row in cell if row["system"].startswith("CTranslate2 int8")]
        if ours and theirs:
            speed = max(row["sentences_per_second"] for row in ours)
            peer = max(row["sentences_per_second"] for row in theirs)
            alone = min(row["p50_ms"] for row in theirs) / min(row["p50_ms"] for row in ours if "p50_ms" in row)
            ratios = f"file {speed / peer:.2f}, alone {alone:.2f}"
            print(f"\n{size}, beam {beam_size}, best kformer over CTranslate2 int8: {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["small", "base"], choices=["small", "base"])
    parser.add_argument("--beam-sizes", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--run", default=PRESET, help="the model `small`: a run folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=1000, help="of the file, from the first one")
    parser.add_argument("--alone", type=int, default=100, help="sentences that are translated one at a time")
    parser.add_argument("--systems", nargs="+", help="beginnings of names; by default all systems")
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    arguments = parser.parse_args()
    chosen = [
        system
        for system in systems(arguments.threads)
        if not arguments.systems or system.name.startswith(tuple(arguments.systems))
    ]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-files-"))
    try:
        rows = []
        for size in arguments.sizes:
            # The command takes a preset, and `base` is not one.
            here = [system for system in chosen if system.program != "command" or size == "small"]
            prepare(folder / size, size, arguments.run if size == "small" else PRESET, arguments.beam_sizes, here)
            for beam_size in arguments.beam_sizes:
                rows += measure(folder / size, size, beam_size, here, arguments)
    finally:
        shutil.rmtree(folder)
    if arguments.output:
        machine = {"date": time.strftime("%Y-%m-%d"), "machine": describe_machine()}
        arguments.output.write_text(json.dumps({**machine, "rows": rows}, indent=2) + "\n")
    report(rows)
    print(f"\nMachine: {describe_machine()}.")


if __name__ == "__main__":
    main()
