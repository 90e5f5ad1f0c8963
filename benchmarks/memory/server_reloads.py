"""What a server keeps in memory when it loads one version of a model after the other.

    python -m benchmarks.memory.server_reloads [--model EXPORT] [--reloads 10]

EXPORT is a version of an export; by default the preset `cmudict` is exported in int8. The server's own code loads it
under rising numbers, has each of its threads compute a batch of 32 texts, and lets the version before go, without the
rest of the server. After each reload, the memory that belongs to the process alone (not the pages of libraries), in MB.
Three processes: as `kformer serve` does it, with what the C library keeps given back when a version is let go
(malloc_trim); without that; and without that, but with one arena for all threads (MALLOC_ARENA_MAX=1).
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from benchmarks.memory.dropped_models import own_memory

KINDS = {"as served": {}, "without malloc_trim": {}, "without malloc_trim, one arena": {"MALLOC_ARENA_MAX": "1"}}
TEXTS = 32


def print_reloads(kind: str, model: pathlib.Path, reloads: int) -> None:
    """The memory after the first load, and after each reload."""
    import numpy as np

    from kformer.serving import loading
    from kformer.serving.model_manager import ModelManager
    from kformer.serving.model_settings import Batching, ModelSettings
    from kformer.serving.servable import Servable

    if kind != "as served":
        loading.give_back = lambda: None
    texts = np.array([b"c a t"] * TEXTS, object)
    batching = Batching()

    def load(name: str, number: int, path: pathlib.Path) -> Servable:
        return Servable(name, number, path, batching, lambda signature, rows, seconds: None)

    with tempfile.TemporaryDirectory() as folder:
        manager = ModelManager(
            [ModelSettings("m", pathlib.Path(folder))], load, lambda name, number, state, error: None
        )
        for number in range(1, reloads + 2):
            # `kformer serve` also runs the warm-up requests; they take longer, and change the memory of the first load.
            shutil.copytree(model, pathlib.Path(folder, str(number)), ignore=shutil.ignore_patterns("assets.extra"))
            manager.update()
            servable = manager.servable("m")
            signature = servable.signature("serving_default")
            name = next(iter(signature.inputs))
            inputs, threads = {name: texts}, range(batching.num_batch_threads)
            waiting = [servable.submit(signature, inputs, client=str(thread), seconds=60.0) for thread in threads]
            assert servable.version == number
            assert all(answer.result()["translation"][0] == b"K AE T" for answer in waiting)
            print(own_memory(), end=" ", flush=True)
        manager.close()
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--reloads", type=int, default=10)
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    if options.kind is not None and options.model is not None:
        print_reloads(options.kind, options.model, options.reloads)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            command = ["export", "--preset", "cmudict", "--precision", "int8", folder]
            subprocess.run([sys.executable, "-m", "kformer", *command], check=True)
            model = pathlib.Path(folder, "1")
        for kind, variables in KINDS.items():
            command = ["--model", str(model), "--kind", kind, "--reloads", str(options.reloads)]
            print(f"{kind}: ", end="", flush=True)
            subprocess.run([sys.executable, "-m", __spec__.name, *command], check=True, env={**os.environ, **variables})


if __name__ == "__main__":
    main()
