"""How `kformer serve` does under load: many clients at once, and every answer compared with the right one.

    pip install -e '.[benchmarks,serving]'
    python -m benchmarks.serving.load      # the preset cmudict, a minute each with 1, 8, 64 and 256 clients
    python -m benchmarks.serving.load --model exported/translator --lines file.txt --seconds 20
    python -m benchmarks.serving.load --ways rest grpc direct

Each client is one of Locust's users: it sends one text over REST or gRPC, waits for the answer, compares it, and sends
the next. The clients run on the same machine, in a process of their own, and take part of its processors. "direct" has
no server: that many threads of one process call the export through TensorFlow's C API, each with one text. The right
answers are those of the export through the C API, one text after the other.
"""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

CLIENTS = (1, 8, 64, 256)
SECONDS = 60
LINES = 2000


class Addresses(NamedTuple):
    """Where a served model is asked."""

    rest: str  # URL of the model
    grpc: str  # host and port, and the model's name


def measure(
    model: pathlib.Path, lines: Sequence[str], ways: Sequence[str], clients: Sequence[int], seconds: float
) -> None:
    """Loads a model in each way with each number of clients, and prints a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        answers = pathlib.Path(folder, "answers.json")
        answers.write_text(json.dumps(right_answers(model, lines)))
        print("| way | clients | requests a second | p50 (ms) | p99 (ms) | answers | wrong | errors |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for way in ways:
            with contextlib.ExitStack() as server:
                where = str(model)
                if way != "direct":
                    where = getattr(server.enter_context(served(model)), way)
                for number in clients:
                    row = load(way, where, answers, number, seconds)
                    print(
                        f"| {way} | {number} | {row['answers'] / seconds:.0f} | {row['p50']:.1f} | {row['p99']:.1f} "
                        f"| {row['answers']:,} | {row['wrong']} | {row['errors']} |",
                        flush=True,
                    )
                    if row["wrong"] or row["errors"]:
                        print(f"The first: {row['first']}")


@contextlib.contextmanager
def serving(model: pathlib.Path, *options: str, python: str = sys.executable) -> Iterator[str]:
    """As `served`; the URL of the model alone."""
    with served(model, *options, python=python) as addresses:
        yield addresses.rest


@contextlib.contextmanager
def served(model: pathlib.Path, *options: str, python: str = sys.executable) -> Iterator[Addresses]:
    """`kformer serve` as a process; the addresses of its model, once it is ready."""
    command = [python, "-m", "kformer", "serve", str(model), "--rest-port", "0", "--grpc-port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        found = re.search(r"REST (\S+), gRPC grpc://(\S+)", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"The server did not start: {process.stderr.read()}")
        for line in process.stderr:
            if line.startswith("{") and json.loads(line).get("state") == "AVAILABLE":
                break
        # A server whose log nobody reads leaves lines out of it.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Addresses(found[1], f"{found[2]} {model.name}")
    finally:
        process.terminate()
        process.wait()


def right_answers(model: pathlib.Path, lines: Sequence[str]) -> dict[str, str]:
    """The export's translation of each line alone."""
    from kformer.runtime.c_api import SavedModel
    from kformer.runtime.versions import find_saved_model

    path = find_saved_model(model)
    if path is None:
        raise ValueError(f"{model} holds no export.")
    translate = SavedModel(path, threads_per_operation=1)
    return {line: translate([line.encode()])["translation"][0].decode() for line in dict.fromkeys(lines)}


def load(way: str, where: str, answers: pathlib.Path, clients: int, seconds: float) -> dict[str, Any]:
    """The figures for a number of clients. They run in a separate process, because Locust replaces Python's sockets."""
    program = [sys.executable, "-m", __spec__.name]
    command = [*program, "--clients-of", way, where, str(answers), str(clients), str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def be_clients(way: str, where: str, right: dict[str, str], clients: int, seconds: float) -> dict[str, Any]:
    """Loads a server with Locust's users."""
    import gevent
    from locust import constant, task
    from locust.contrib.fasthttp import FastHttpUser
    from locust.env import Environment
    from locust.exception import CatchResponseError

    if way == "grpc":
        from grpc.experimental.gevent import init_gevent

        init_gevent()
    lines = list(right)
    wrong: list[str] = []
    address = re.fullmatch(r"(https?://[^/]+)(.*)", where)
    host, path = address.groups() if address else ("http://unused", "")

    class Client(FastHttpUser):
        wait_time = constant(0)
        started = 0

        def on_start(self) -> None:
            self.place = Client.started * 7919  # so that clients ask different things
            Client.started += 1
            self.translate = (
                _over_grpc(*where.split(" "), self.environment.events.request) if way == "grpc" else self.over_rest
            )

        @task
        def ask(self) -> None:
            line = lines[self.place % len(lines)]
            self.place += 1
            found = self.translate(line)
            if found is not None and found != right[line]:
                wrong.append(f"{line!r} became {found!r} instead of {right[line]!r}")

        def over_rest(self, line: str) -> str | None:
            body = {"instances": [line]}
            with self.client.post(f"{path}:predict", json=body, catch_response=True) as answer:
                if answer.status_code == 200:
                    return json.loads(answer.content)["predictions"][0]["translation"]
                answer.failure(CatchResponseError(f"{answer.status_code}: {answer.text}"))
            return None

    environment = Environment(user_classes=[Client], host=host)
    runner = environment.create_local_runner()
    runner.start(clients, spawn_rate=clients)
    gevent.sleep(seconds)
    runner.quit()
    total = environment.stats.total
    errors = [f"{entry.error} ({entry.occurrences} times)" for entry in environment.stats.errors.values()]
    return {
        "answers": total.num_requests - total.num_failures,
        "errors": total.num_failures,
        "wrong": len(wrong),
        "p50": total.get_response_time_percentile(0.5),
        "p99": total.get_response_time_percentile(0.99),
        "first": (wrong + errors + [""])[0],
    }


def _over_grpc(address: str, name: str, told: Any) -> Callable[[str], str | None]:
    """Asks over a channel of its own, and tells Locust how long it took."""
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    # Channels to one address would share one connection.
    channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def translate(line: str) -> str | None:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = name
        request.inputs["text"].dtype = 7  # DT_STRING
        request.inputs["text"].tensor_shape.dim.add().size = 1
        request.inputs["text"].string_val.append(line.encode())
        began, error, found = time.perf_counter(), None, None
        try:
            found = stub.Predict(request, timeout=60).outputs["translation"].string_val[0].decode()
        except grpc.RpcError as raised:
            error = raised
        milliseconds = 1000 * (time.perf_counter() - began)
        told.fire(request_type="grpc", name="Predict", response_time=milliseconds, response_length=0, exception=error)
        return found

    return translate


def call_directly(model: pathlib.Path, right: dict[str, str], threads: int, seconds: float) -> dict[str, Any]:
    """That many threads call the model, each with one text."""
    from kformer.runtime.c_api import SavedModel
    from kformer.runtime.versions import find_saved_model

    path = find_saved_model(model)
    assert path is not None
    translate = SavedModel(path, threads_per_operation=1)
    translate([b"a"])  # the first call prepares the graph
    lines, times, wrong = list(right), [], []
    until = time.perf_counter() + seconds

    def ask(place: int) -> None:
        while (began := time.perf_counter()) < until:
            line = lines[place % len(lines)]
            place += 1
            found = translate([line.encode()])["translation"][0].decode()
            times.append(1000 * (time.perf_counter() - began))
            if found != right[line]:
                wrong.append(f"{line!r} became {found!r} instead of {right[line]!r}")

    started = [threading.Thread(target=ask, args=(number * 7919,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    percentiles = statistics.quantiles(times, n=100)
    return {
        "answers": len(times),
        "errors": 0,
        "wrong": len(wrong),
        "p50": percentiles[49],
        "p99": percentiles[98],
        "first": (wrong + [""])[0],
    }


def words(number: int) -> list[str]:
    """Sources of cmudict's test set, evenly spread."""
    from kformer.data import load_corpus

    sources = [source for source, _ in load_corpus("cmudict").test]
    return sources[:: max(1, len(sources) // number)][:number]


def exported(preset: str, folder: pathlib.Path) -> pathlib.Path:
    """An int8 export of a preset."""
    command = [
        sys.executable,
        "-m",
        "kformer",
        "export",
        "--preset",
        preset,
        "--precision",
        "int8",
        str(folder / preset),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / preset


def main() -> None:
    if sys.argv[1:2] == ["--clients-of"]:
        way, where, answers, clients, seconds = sys.argv[2:]
        right = json.loads(pathlib.Path(answers).read_text())
        if way == "direct":
            print(json.dumps(call_directly(pathlib.Path(where), right, int(clients), float(seconds))))
        else:
            print(json.dumps(be_clients(way, where, right, int(clients), float(seconds))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="base folder of an export; by default the preset cmudict's")
    parser.add_argument("--lines", type=pathlib.Path, help="a file of texts; by default words of cmudict's test set")
    parser.add_argument("--ways", nargs="+", default=["rest"], choices=["rest", "grpc", "direct"])
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each number of clients")
    arguments = parser.parse_args()
    lines = arguments.lines.read_text(encoding="utf-8").splitlines() if arguments.lines else words(LINES)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or exported("cmudict", pathlib.Path(folder))
        measure(model, lines, arguments.ways, arguments.clients, arguments.seconds)


if __name__ == "__main__":
    main()
