"""What `rematerialize` saves of the memory of an update, and the time that it costs.

    python -m benchmarks.memory.rematerialization [--size base] [--rows 32] [--length 128] [--vocabulary 8000]

Each row is a process of its own, which trains a translator on batches of random ids: by how much the largest resident
memory grows from a first update on a batch of two ids, after which model and optimizer are there, to the last one; and
the median of the seconds of an update. On a CPU; with `KERAS_BACKEND=jax` on JAX.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

UPDATES = 6


def measure(size: str, rows: int, length: int, vocabulary: int, rematerialize: bool) -> dict[str, float]:
    """MB and seconds of this process."""
    import numpy as np

    import kformer
    from kformer.models import build_transformer, rematerialize_layers
    from kformer.training.compile import compile_model

    transformer = kformer.TransformerConfig.of_size(size, source_vocab_size=vocabulary, target_vocab_size=vocabulary)
    model = build_transformer(transformer, "float32")
    if rematerialize:
        rematerialize_layers(model)
    compile_model(model, transformer, kformer.TrainingConfig.of_size(size, precision="float32"))
    ids = np.random.default_rng(1).integers(4, vocabulary, (rows, length)).astype("int32")
    few = ids[:1, :2]
    model.train_on_batch({"source": few, "target_in": few}, few)  # makes what does not depend on the batch
    before = _largest_memory()
    seconds = []
    for _ in range(UPDATES):
        start = time.perf_counter()
        model.train_on_batch({"source": ids, "target_in": ids}, ids)
        seconds.append(time.perf_counter() - start)
    return {"mb": _largest_memory() - before, "seconds": statistics.median(seconds[1:])}


def _largest_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--one", choices=["False", "True"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        found = measure(options.size, options.rows, options.length, options.vocabulary, options.one == "True")
        print(json.dumps(found))
        return
    print("| rematerialize | MB for a batch | seconds an update |")
    print("| --- | --- | --- |")
    for rematerialize in ("False", "True"):
        command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--one", rematerialize]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"| {rematerialize} | {found['mb']:,} | {found['seconds']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
