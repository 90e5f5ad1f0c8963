"""What HTTP costs in `kformer serve`: the time to an answer over a kept connection, with a model of almost no work.

    pip install -e '.[serving]'
    python -m benchmarks.serving.latency
    python -m benchmarks.serving.latency --other ../before/.venv/bin/python    # beside another checkout, in turns

The model turns a text into capital letters. The last rows call it without a server, through TensorFlow's C API: at once
one after the other, and each a millisecond after the last. A processor that slept meanwhile computes the same several
times as slowly, above all on a virtual machine, and so it does for a server that waits for its client.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator

from benchmarks.serving.load import serving

ROUNDS = 5
REQUESTS = 200  # of each kind in a round
PAUSE = 0.001  # seconds


def capitals(folder: pathlib.Path) -> pathlib.Path:
    """The base folder of a SavedModel that turns texts into capital letters."""
    import tensorflow as tf

    module = tf.Module()
    function = tf.function(
        lambda text: {"translation": tf.strings.upper(text)}, input_signature=[tf.TensorSpec([None], tf.string, "text")]
    )
    tf.saved_model.save(module, str(folder / "capitals" / "1"), signatures={"serving_default": function})
    return folder / "capitals"


@contextlib.contextmanager
def asked(url: str) -> Iterator[dict[str, Callable[[], None]]]:
    """What is timed, over one connection."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    body = json.dumps({"instances": ["word"]})

    def ask(method: str, path: str, sent: str | None = None) -> bytes:
        connection.request(method, path, sent)
        return connection.getresponse().read()

    def predict() -> None:
        answer = ask("POST", f"{parts.path}:predict", body)
        if b"WORD" not in answer:
            raise RuntimeError(f"The server answered: {answer!r}")

    yield {"/healthz": lambda: ask("GET", "/healthz") and None, "predict": predict}
    connection.close()


def timed(ask: Callable[[], None], pause: float = 0.0) -> list[float]:
    """Milliseconds of each request, after ten that are not counted; so many seconds pass before each."""
    for _ in range(10):
        ask()
    found = []
    for _ in range(REQUESTS):
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        ask()
        found.append(1000 * (time.perf_counter() - began))
    return found


def directly(model: pathlib.Path) -> dict[str, list[float]]:
    """Milliseconds of the model alone, at once and after pauses."""
    from kformer.runtime.c_api import SavedModel

    translate = SavedModel(model / "1", threads_per_operation=1)

    def ask() -> None:
        translate([b"word"])

    return {"without a server": timed(ask), "without a server, after a pause": timed(ask, PAUSE)}


def row(name: str, found: list[float]) -> None:
    p99 = sorted(found)[int(0.99 * len(found))]
    print(f"| {name} | {statistics.median(found):.2f} | {p99:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="the Python of another checkout")
    arguments = parser.parse_args()
    pythons = {"this": sys.executable, **({"other": arguments.other} if arguments.other else {})}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        batching = pathlib.Path(folder, "batching")
        batching.write_text("batch_timeout_micros { value: 0 }")
        model = capitals(pathlib.Path(folder))
        kinds = {}
        for name, python in pythons.items():
            url = stack.enter_context(serving(model, "--batching-parameters-file", str(batching), python=python))
            kinds |= {f"{name}: {kind}": ask for kind, ask in stack.enter_context(asked(url)).items()}
        for _ in range(ROUNDS):
            for kind, ask in kinds.items():
                times.setdefault(kind, []).extend(timed(ask))
        times |= directly(model)
    print("| request | p50 (ms) | p99 (ms) |\n| --- | --- | --- |")
    for kind, found in times.items():
        row(kind, found)


if __name__ == "__main__":
    main()
