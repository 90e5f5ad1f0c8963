"""What does a step of an exported search consist of, and how much of its time is arithmetic?

    python -m benchmarks.decoding.step_cost EXPORT [EXPORT ...]

For each export (a SavedModel, or the base folder of its versions) and each number of sentences that are searched
together: the number of operations in a step (without constants), how many of them are products with weights, the time
of a step on one thread, and the part of it that oneDNN's kernels take (as oneDNN itself counts, `ONEDNN_VERBOSE`). The
rest is TensorFlow: starting operations, memory for their results, and the small operations themselves.

The sentences are the first ones of the test part of `bible-en-es`, in the order of their lengths. There is a step for
each token of the longest translation in a batch. The encoder, which runs once, is included.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

PRODUCTS = ("_QuantizedMatMul", "MatMul", "_FusedMatMul", "_MklMatMul")


class Profile(NamedTuple):
    """The profile of one export and batch size."""

    operations: int
    products: int
    step: float  # seconds
    onednn: float  # seconds of a step
    kernels: dict[str, float]  # oneDNN's seconds of all steps, by kind of kernel


def operations_of_a_step(saved_model: pathlib.Path) -> tuple[int, int]:
    """Operations and products in the body of the innermost loop; constants are not counted."""
    from kformer.export.operations import read

    (meta_graph,) = read(saved_model).meta_graphs
    functions = {function.signature.name: function.node_def for function in meta_graph.graph_def.library.function}
    loops = [node for nodes in functions.values() for node in nodes if node.op in ("While", "StatelessWhile")]
    bodies = [functions[node.attr["body"].func.name] for node in loops]
    counted = []
    for nodes in bodies:
        names = [node.op for node in nodes if node.op != "Const"]
        if not {"While", "StatelessWhile"} & set(names):
            counted.append((sum(names.count(product) for product in PRODUCTS), len(names)))
    products, number = max(counted)
    return number, products


def run(saved_model: pathlib.Path, batch_size: int, sentences: int) -> None:
    """Translates twice, and prints the seconds and steps of the second time; in a separate process."""
    from kformer.data import load_corpus
    from kformer.presets import find_preset
    from kformer.runs.folder import RunFolder
    from kformer.runtime.c_api import SavedModel
    from kformer.tokenizers import load_tokenizers

    model = SavedModel(saved_model, 1)
    texts = sorted((source.encode() for source, _ in load_corpus("bible-en-es").test[:sentences]), key=len)
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    found = [model(batch)["translation"] for batch in batches]
    print("SECOND", flush=True)
    began = time.perf_counter()
    for batch in batches:
        model(batch)
    seconds = time.perf_counter() - began
    _, target = load_tokenizers(RunFolder(find_preset("bible-en-es").path).tokenizer_folder)
    steps = sum(int(target.tokenize(list(texts)).row_lengths().numpy().max()) + 1 for texts in found)
    print(f"\nRESULT {json.dumps({'seconds': seconds, 'steps': steps})}", flush=True)


def profile(saved_model: pathlib.Path, batch_size: int, sentences: int) -> Profile:
    command = [sys.executable, "-m", __spec__.name, "--run", str(batch_size), "--sentences", str(sentences)]
    command += [str(saved_model)]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Printing costs time, so the kernels are counted in a run of their own.
    environment = {**os.environ, "ONEDNN_VERBOSE": "profile_exec"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    result = json.loads(plain.split("RESULT ")[1])
    kernels: collections.Counter[str] = collections.Counter()
    for line in printed.split("SECOND")[1].splitlines():
        fields = line.split(",")
        if fields[0] == "onednn_verbose" and "exec" in fields:
            kernels[fields[fields.index("exec") + 2]] += float(fields[-1]) / 1e3
    steps = result["steps"]
    numbers = operations_of_a_step(saved_model)
    return Profile(*numbers, result["seconds"] / steps, sum(kernels.values()) / steps, dict(kernels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", nargs="+", type=pathlib.Path)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.exports[0], arguments.run, arguments.sentences)
        return
    from kformer.runtime.versions import find_saved_model

    print("| export | sentences | operations a step | products | step, us | oneDNN, us | rest, us an operation |")
    print("|" + " --- |" * 7)
    for export in arguments.exports:
        saved_model = find_saved_model(export)
        if saved_model is None:
            parser.error(f"{export} is no SavedModel.")
        for batch_size in arguments.batch_sizes:
            found = profile(saved_model, batch_size, arguments.sentences)
            rest = (found.step - found.onednn) / found.operations
            shares = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found.kernels.items())
            print(
                f"| {export} | {batch_size} | {found.operations} | {found.products} | {1e6 * found.step:,.0f} | "
                f"{1e6 * found.onednn:,.0f} ({found.onednn / found.step:.0%}: {shares}) | {1e6 * rest:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
