"""How fast does an exported translator decode, beside CTranslate2 and Hugging Face Marian?

    pip install -e '.[benchmarks]'
    python -m benchmarks.decoding.speed --sizes base --lengths 32 --output decoding.json

All systems run the same weights, from strings to strings, each in a separate process for each number of threads: one,
and as many as there are cores. Outputs are forced to one length, so that random weights do not decide how much there is
to do. In every cell (size, batch, beam, length) the processes take turns; a system's time is its best of the rounds,
with the number of threads that suits it best.

The weights of `base` are random (with the paper's sizes, and as many subwords as the corpus yields, filled up to the
paper's 37,000); `small` is random too, or a trained run of any size with `--run`.

The limit is a lower bound of the time. For the encoder, and for each step of the decoder, it is the larger of two
times: operations divided by the measured peak of matrix products in the system's precision, and bytes of the weights
divided by the measured bandwidth of reading memory. Attention, norms and the search are not counted.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from benchmarks.common import peers
from benchmarks.common.grown_model import filled_tokenizer
from benchmarks.common.machine import describe_machine
from benchmarks.common.worker import Worker
from benchmarks.decoding import hardware_limits
from kformer.cli.startup import start_tensorflow

SOURCE_LENGTH = 32  # tokens, about


class System(NamedTuple):
    """One way to translate: what is run, and in which arithmetic."""

    name: str
    program: str  # key of systems.LOADERS
    precision: str
    variant: str = ""  # of a kformer export


SYSTEMS = (
    System("kformer float32", "kformer", "float32", "portable"),
    System("kformer bfloat16", "kformer", "bfloat16", "portable"),
    System("kformer int8", "kformer", "int8", "portable"),
    System("kformer xla float32", "kformer", "float32", "xla"),
    System("CTranslate2 float32", "ctranslate2", "float32"),
    System("CTranslate2 int8", "ctranslate2", "int8"),
    System("Marian float32", "marian", "float32"),
    System("Marian bfloat16", "marian", "bfloat16"),
)


class Cell(NamedTuple):
    """One line of the table."""

    size: str
    batch_size: int
    beam_size: int
    length: int


class Models:
    """The models of one run, prepared for every system under one folder."""

    def __init__(self, folder: pathlib.Path, run: pathlib.Path | None) -> None:
        self.folder = folder
        self.run = run

    def prepare(self, size: str) -> None:
        """Writes the weights in the peers' forms, the vocabulary, the configuration and the sentences."""
        translator = self._translator(size)
        folder = self.folder / size
        folder.mkdir(parents=True)
        (folder / "model.spm").write_bytes(translator.source_tokenizer.model_bytes)
        peers.write_peers(translator, ("float32", "int8"), folder)
        translator.model.save_weights(folder / "random.weights.h5")

    def _translator(self, size: str) -> Any:
        import keras

        from kformer.config import TransformerConfig
        from kformer.models import build_transformer
        from kformer.tasks.translator import Translator

        if self.run is not None and size == "small":
            return Translator.from_run(self.run)
        keras.utils.set_random_seed(1)
        tokenizer = _tokenizer({"base": 37000, "small": 4000}[size])
        config = TransformerConfig.of_size(
            size, source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size
        )
        return Translator(build_transformer(config, dtype="float32"), config, tokenizer, tokenizer)

    def export(self, system: System, cell: Cell) -> str:
        """The SavedModel of a system in a cell; made in a separate process, when first asked for."""
        target = self.folder / cell.size / f"{system.precision}-{system.variant}-{cell.beam_size}-{cell.length}"
        if not target.exists():
            request = {"size": cell.size, "precision": system.precision, "variant": system.variant}
            request |= {"beam_size": cell.beam_size, "length": cell.length, "target": str(target)}
            subprocess.run(
                [sys.executable, "-m", __spec__.name, "--folder", str(self.folder), "--export", json.dumps(request)]
                + (["--run", str(self.run)] if self.run else []),
                check=True,
            )
        return str(target / "1")

    def export_here(self, size: str, precision: str, variant: str, beam_size: int, length: int, target: str) -> None:
        from kformer.config import DecodingConfig
        from kformer.export.saved_model import export_saved_model
        from kformer.tasks.translator import Translator

        made = self._translator(size)
        made.model.load_weights(self.folder / size / "random.weights.h5")
        # The last token may be the end, or any other one.
        decoding = DecodingConfig(
            beam_size=beam_size, min_length=length - 1, max_length=length, max_extra_length=max(50, length)
        )
        forced = Translator(made.model, made.config, made.source_tokenizer, made.target_tokenizer, decoding)
        export_saved_model(forced, target, precision=precision, variant=variant)

    def sentences(self, size: str, count: int) -> list[str]:
        """The sentences of the test part of `bible-en-es` whose lengths are nearest to 32 tokens."""
        import sentencepiece

        from kformer.data import load_corpus

        pieces = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / size / "model.spm"))
        texts = [source for source, _ in load_corpus("bible-en-es").test]
        return sorted(texts, key=lambda text: abs(len(pieces.encode(text)) + 1 - SOURCE_LENGTH))[:count]


def _tokenizer(vocab_size: int) -> Any:
    """A vocabulary of `bible-en-es`, filled up where the corpus yields too few pieces."""
    from kformer.config import TrainingConfig
    from kformer.data import load_corpus, train_tokenizers

    learned, _ = train_tokenizers(load_corpus("bible-en-es").train, TrainingConfig(vocab_size=vocab_size))
    return filled_tokenizer(learned, vocab_size)


def measure_cell(
    cell: Cell, systems: list[System], workers: dict[tuple[System, int], Worker], models: Models, rounds: int
) -> dict[str, Any]:
    """Seconds of every system and number of threads, in turns.

    And how many sentences a system translates as the first one does.
    """
    texts = models.sentences(cell.size, cell.batch_size)
    requests = {system: _request(system, cell, models, texts) for system in systems}
    seconds: dict[str, dict[int, list[float]]] = {system.name: {} for system in systems}
    translations: dict[str, list[str]] = {}
    for attempt in range(rounds + 1):
        for (system, threads), worker in workers.items():
            answer = worker.ask(requests[system])
            time.sleep(0.3)  # Idle threads of one system may go on spinning for a while.
            if attempt:  # The first time also loads, compiles and packs.
                seconds[system.name].setdefault(threads, []).append(answer["seconds"])
            translations[system.name] = answer["translations"]
    reference = translations[systems[0].name]
    return {
        **cell._asdict(),
        "tokens": cell.batch_size * cell.length,
        "seconds": seconds,
        "same_as_first": {
            name: sum(a == b for a, b in zip(reference, found, strict=True)) / len(reference)
            for name, found in translations.items()
        },
    }


def _request(system: System, cell: Cell, models: Models, texts: list[str]) -> dict[str, Any]:
    request = {"folder": str(models.folder / cell.size), "precision": system.precision, "texts": texts}
    request |= {"beam_size": cell.beam_size, "length": cell.length}
    if system.program == "kformer":
        request["saved_model"] = models.export(system, cell)
    return request


def measure_footprint(system: System, size: str, models: Models, threads: int) -> dict[str, Any]:
    """A fresh process: seconds to its first answer, peak memory after 32 sentences in beams of 4, bytes on disk."""
    cell = Cell(size, 32, 4, 32)
    texts = models.sentences(size, 32)
    request = _request(system, cell, models, texts)
    began = time.perf_counter()
    worker = Worker("translators", system.program, threads)
    worker.ask({**request, "texts": texts[:1], "once": True})
    first_answer = time.perf_counter() - began
    answer = worker.ask(request)
    worker.close()
    on_disk = {
        "kformer": request.get("saved_model"),
        "ctranslate2": models.folder / size / f"ctranslate2-{system.precision}",
        "marian": models.folder / size / "marian.npz",
    }[system.program]
    files = [on_disk] if pathlib.Path(on_disk).is_file() else pathlib.Path(on_disk).rglob("*")
    return {
        "system": system.name,
        "size": size,
        "first_answer_seconds": first_answer,
        "peak_bytes": answer["peak_bytes"],
        "library_bytes": answer["library_bytes"],
        "disk_bytes": sum(pathlib.Path(file).stat().st_size for file in files if pathlib.Path(file).is_file()),
    }


def best_of(cell: dict[str, Any], name: str) -> tuple[float, int]:
    """The least seconds of a system in a cell, and the number of threads that it took for them."""
    return min((min(times), threads) for threads, times in cell["seconds"][name].items())


def report(cells: list[dict[str, Any]], footprints: list[dict[str, Any]], systems: list[System], peaks: Any) -> None:
    """Prints the tables."""
    print("\nTarget tokens a second; in brackets: share of the limit, and how many threads were best.\n")
    names = [system.name for system in systems]
    print("| size | batch | beam | length | " + " | ".join(names) + " |")
    print("|" + " --- |" * (4 + len(names)))
    for cell in cells:
        values = []
        for system in systems:
            best, threads = best_of(cell, system.name)
            values.append(f"{cell['tokens'] / best:,.0f} ({cell['limit_seconds'][system.name] / best:.0%}, {threads})")
        print(
            f"| {cell['size']} | {cell['batch_size']} | {cell['beam_size']} | {cell['length']} | {' | '.join(values)} |"
        )
    print("\nRatios of tokens a second.\n")
    print("| size | batch | beam | length | best kformer / CTranslate2 int8 | kformer float32 / CTranslate2 float32 | "
          "best kformer / best Marian |")  # fmt: skip
    print("|" + " --- |" * 7)
    for cell in cells:
        best = min(
            (name for name in names if name.startswith("kformer")),
            key=lambda name: best_of(cell, name),
            default="",
        )
        row = [
            _ratio(cell, "CTranslate2 int8", best),
            _ratio(cell, "CTranslate2 float32", "kformer float32"),
            _ratio(cell, "Marian", best),
        ]
        place = f"| {cell['size']} | {cell['batch_size']} | {cell['beam_size']} | {cell['length']} "
        print(f"{place}| {row[0]} ({best.removeprefix('kformer ')}) | {row[1]} | {row[2]} |")
    print("\n| size | system | first answer (s) | peak memory (MB) | before a model is loaded (MB) | on disk (MB) |")
    print("|" + " --- |" * 6)
    for row in footprints:
        print(
            f"| {row['size']} | {row['system']} | {row['first_answer_seconds']:.1f} | {row['peak_bytes'] / 1e6:,.0f} "
            f"| {row['library_bytes'] / 1e6:,.0f} | {row['disk_bytes'] / 1e6:,.0f} |"
        )
    print(f"\nLimits: {peaks}. Machine: {describe_machine()}.")


def _ratio(cell: dict[str, Any], peer: str, ours: str) -> str:
    """How many times as fast as the fastest system whose name begins with `peer`."""
    times = [best_of(cell, name)[0] for name in cell["seconds"] if name.startswith(peer)]
    if not times or ours not in cell["seconds"]:
        return "-"
    return f"{min(times) / best_of(cell, ours)[0]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["base", "small"], choices=["base", "small"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 8, 32, 128])
    parser.add_argument("--beam-sizes", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--lengths", nargs="+", type=int, default=[32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, os.cpu_count() or 1}))
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--systems", nargs="+", default=names, choices=names)
    parser.add_argument("--run", type=pathlib.Path, help="a trained run, in place of random weights for `small`")
    parser.add_argument("--output", type=pathlib.Path, help="JSON of everything that was measured")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--export", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.export:
        Models(arguments.folder, arguments.run).export_here(**arguments.export)
        return
    systems = [system for system in SYSTEMS if system.name in arguments.systems]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-decoding-"))
    try:
        measured = _measure(arguments, systems, Models(folder, arguments.run))
    finally:
        shutil.rmtree(folder)
    if arguments.output:
        arguments.output.write_text(json.dumps(measured, indent=2) + "\n")
    report(measured["cells"], measured["footprints"], systems, measured["limits"])


def _measure(arguments: argparse.Namespace, systems: list[System], models: Models) -> dict[str, Any]:
    peaks = hardware_limits.measure(max(arguments.threads))
    cells, footprints = [], []
    for size in arguments.sizes:
        models.prepare(size)
        config = json.loads((models.folder / size / "transformer.json").read_text())
        workers = {
            (system, threads): Worker("translators", system.program, threads)
            for system in systems
            for threads in arguments.threads
        }
        for shape in itertools.product(arguments.lengths, arguments.beam_sizes, arguments.batch_sizes):
            cell = Cell(size, shape[2], shape[1], shape[0])
            measured = measure_cell(cell, systems, workers, models, arguments.rounds)
            measured["limit_seconds"] = {
                system.name: hardware_limits.seconds(config, cell, system.precision, peaks, SOURCE_LENGTH)
                for system in systems
            }
            cells.append(measured)
            found = {
                name: {n: round(1e3 * min(times), 1) for n, times in ways.items()}
                for name, ways in measured["seconds"].items()
            }
            print(tuple(cell), "milliseconds by threads:", found, flush=True)
        for worker in workers.values():
            worker.close()
        footprints += [measure_footprint(system, size, models, max(arguments.threads)) for system in systems]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "threads": arguments.threads,
        "limits": peaks._asdict(),
        "cells": cells,
        "footprints": footprints,
    }


if __name__ == "__main__":
    start_tensorflow()
    main()
