"""What the memory of an export consists of: the program, the library, the weights, and a search.

    python -m benchmarks.memory.export EXPORT [EXPORT ...]

For each export (a SavedModel, or the base folder of its versions), in a separate process: the resident memory after
NumPy is imported, after TensorFlow's C library is loaded, after the model is loaded, and after a batch of the first 32
verses of the test part of `bible-en-es`. Pages of files, which are those of libraries, belong to the system's cache:
processes share them, and the system takes them back when it needs memory. The rest belongs to the process alone.
"""

import pathlib
import subprocess
import sys

SENTENCES = 32


def resident() -> tuple[int, int]:
    """MB of files' pages, and of memory that belongs to the process alone."""
    text = pathlib.Path("/proc/self/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return int(lines["RssFile"].split()[0]) // 1024, int(lines["RssAnon"].split()[0]) // 1024


def print_stages(saved_model: str) -> None:
    """A row of the table for one export."""
    from kformer.data import load_corpus
    from kformer.runtime.c_api import SavedModel
    from kformer.runtime.libtensorflow import tensorflow

    texts = [source.encode() for source, _ in load_corpus("bible-en-es").test[:SENTENCES]]
    stages = [resident()]
    tensorflow()
    stages.append(resident())
    model = SavedModel(saved_model, threads_per_operation=1)
    stages.append(resident())
    model(texts)
    model(texts)
    stages.append(resident())
    cells = [f"{files} + {own}" for files, own in stages]
    print(f"| {pathlib.Path(saved_model).parent.name} | {' | '.join(cells)} | {sum(stages[-1]):,} |", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print_stages(sys.argv[2])
        return
    from kformer.runtime.versions import find_saved_model

    print("MB of files' pages + of the process's own")
    print("| export | start | library | model | batch | in all |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in sys.argv[1:]:
        found = find_saved_model(name)
        if found is None:
            raise SystemExit(f"{name} holds no export.")
        subprocess.run([sys.executable, "-m", __spec__.name, "--one", str(found.resolve())], check=True)


if __name__ == "__main__":
    main()
