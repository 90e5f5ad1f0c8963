"""What models leave in memory that are made one after the other in one process, and dropped.

    python -m benchmarks.memory.dropped_models [ROUNDS]

After each round, the memory that belongs to the process alone (not the pages of libraries), in MB: for translators of
the preset `cmudict` that translate one text, and for models of its size that are compiled and fitted with two batches.
Each kind runs in processes of its own: as it is, with one arena of the C library's memory (MALLOC_ARENA_MAX=1), and
with `keras.utils.clear_session` and `malloc_trim` after each round. Where the last two change nothing, TensorFlow keeps
the memory, not the C library.
"""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys

ROUNDS = 8


def translate() -> None:
    import kformer

    translator = kformer.Translator.from_preset("cmudict")
    assert translator("c a t") == "K AE T"


def fit() -> None:
    import numpy as np

    from kformer.losses import LabelSmoothedCrossEntropy
    from kformer.models import build_transformer
    from kformer.presets import find_preset

    model = build_transformer(find_preset("cmudict").transformer_config())
    model.compile("adam", LabelSmoothedCrossEntropy(0.1))
    ids = np.full((64, 20), 5, np.int32)
    model.fit({"source": ids, "target_in": ids}, ids, batch_size=32, verbose=0)


KINDS = {"translate": translate, "fit": fit}


def own_memory() -> int:
    """MB that belong to this process alone."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(dict(line.split(":", 1) for line in text.splitlines())["RssAnon"].split()[0]) // 1024


def print_rounds(kind: str, trimmed: bool, rounds: int) -> None:
    """The memory after each round."""
    import keras

    found = []
    for _ in range(rounds):
        KINDS[kind]()
        gc.collect()
        if trimmed:
            keras.utils.clear_session()
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        found.append(own_memory())
    print(", ".join(map(str, found)), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print_rounds(sys.argv[2], sys.argv[3] == "trimmed", int(sys.argv[4]))
        return
    rounds = sys.argv[1] if len(sys.argv) > 1 else str(ROUNDS)
    for kind in KINDS:
        for way, arenas in (("plain", {}), ("plain", {"MALLOC_ARENA_MAX": "1"}), ("trimmed", {})):
            print(f"{kind} {way} {arenas}: ", end="", flush=True)
            command = [sys.executable, "-m", __spec__.name, "--one", kind, way, rounds]
            subprocess.run(command, env={**os.environ, **arenas}, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
