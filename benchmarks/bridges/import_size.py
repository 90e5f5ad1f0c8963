"""How long does the import of a model of 310 MB take, and how much memory?

    python -m benchmarks.bridges.import_size

The folder has the form and the sizes of opus-mt-en-es with random weights (see `opus_mt_folder.py`), with float32 or
float16 in its file; the model that is made is float32 in both cases. Every import runs in a fresh process, and so does
one that only loads the same modules, TensorFlow among them. The peak is the largest resident memory of the process
(ru_maxrss), which also counts the pages of files that it has mapped. The last column is how much the peak is larger
than that of the process that only loads the modules, beside the size of the weights in memory, float32.
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from kformer.importing.safetensors_file import SAFETENSORS_FILE

DTYPES = ("float32", "float16")


def run_here(folder: pathlib.Path | None, run: pathlib.Path | None) -> dict[str, float]:
    """Loads the modules and imports a folder, if there is one: seconds of the import, and peak memory in bytes."""
    from kformer.process.memory import start_without_onednn

    start_without_onednn()  # as `kformer import` does
    import tensorflow  # noqa: F401

    from kformer.importing.run import import_model

    began = time.perf_counter()
    if folder is not None and run is not None:
        import_model(folder, run)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def fresh(*folders: pathlib.Path) -> dict[str, float]:
    """`run_here` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.bridges.import_size", "--here", *map(str, folders)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(size: str, rounds: int, folder: pathlib.Path) -> list[dict[str, Any]]:
    """A row for each type of numbers in the file; of several rounds, the best time and the largest peak."""
    modules = max(fresh()["peak"] for _ in range(rounds))
    rows = []
    for dtype in DTYPES:
        model = folder / dtype
        command = [sys.executable, "-m", "benchmarks.bridges.opus_mt_folder", str(model), "--size", size]
        subprocess.run([*command, "--dtype", dtype], check=True, stdout=subprocess.DEVNULL)
        found = [fresh(model, folder / f"{dtype}-{turn}") for turn in range(rounds)]
        on_disk = (model / SAFETENSORS_FILE).stat().st_size
        weights = on_disk * (1 if dtype == "float32" else 2)
        peak = max(one["peak"] for one in found)
        rows.append(
            {
                "dtype": dtype,
                "file": on_disk,
                "weights": weights,
                "seconds": min(one["seconds"] for one in found),
                "modules": modules,
                "peak": peak,
                "ratio": (peak - modules) / weights,
            }
        )
        shutil.rmtree(model)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--here", nargs="*", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(json.dumps(run_here(*(arguments.here or (None, None)))))
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kformer-import-"))
    try:
        rows = measure(arguments.size, arguments.rounds, folder)
    finally:
        shutil.rmtree(folder)
    print("| in the file | file, MB | seconds | modules, MB | peak, MB | more than modules / weights |")
    print("| --- " * 6 + "|")
    for row in rows:
        sizes = [f"{row[name] / 1e6:,.0f}" for name in ("file", "modules", "peak")]
        print(f"| {row['dtype']} | {sizes[0]} | {row['seconds']:.1f} | {sizes[1]} | {sizes[2]} | {row['ratio']:.2f} |")


if __name__ == "__main__":
    main()
