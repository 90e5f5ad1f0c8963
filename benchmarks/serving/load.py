"""How `kformer serve` does under load: many clients at once, and every answer compared with the right one.

    pip install -e '.[benchmarks,serving]'
    python -m benchmarks.serving.load      # the preset cmudict, a minute each with 1, 8, 64 and 256 clients
    python -m benchmarks.serving.load --model exported/translator --lines file.txt --seconds 20

Each client is one of Locust's users: it sends one text over REST, waits for the answer, compares it, and sends the
next. The clients run on the same machine, in a process of their own, and take part of its processors. The right answers
are those of the export through TensorFlow's C API, one text after the other.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

CLIENTS = (1, 8, 64, 256)
SECONDS = 60
LINES = 2000


def measure(model: pathlib.Path, lines: Sequence[str], clients: Sequence[int], seconds: float) -> None:
    """Serves a model, loads the server with each number of clients, and prints a row for each."""
    with tempfile.TemporaryDirectory() as folder, serving(model) as url:
        answers = pathlib.Path(folder, "answers.json")
        answers.write_text(json.dumps(right_answers(model, lines)))
        print("| clients | requests a second | p50 (ms) | p99 (ms) | answers | wrong | errors |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        rates = []
        for number in clients:
            row = load(url, answers, number, seconds)
            rates.append(row["answers"] / seconds)
            print(
                f"| {number} | {rates[-1]:.0f} | {row['p50']:.0f} | {row['p99']:.0f} | {row['answers']:,} "
                f"| {row['wrong']} | {row['errors']} |",
                flush=True,
            )
            if row["wrong"] or row["errors"]:
                print(f"The first: {row['first']}")
        print(f"Most over one client: {max(rates) / rates[0]:.1f} times.")


@contextlib.contextmanager
def serving(model: pathlib.Path, *options: str, python: str = sys.executable) -> Iterator[str]:
    """`kformer serve` as a process; the URL of its model, once it is ready."""
    command = [python, "-m", "kformer", "serve", str(model), "--rest-port", "0", "--grpc-port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        found = re.search(r"REST (\S+),", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"The server did not start: {process.stderr.read()}")
        for line in process.stderr:
            if line.startswith("{") and json.loads(line).get("state") == "AVAILABLE":
                break
        yield found[1]
    finally:
        process.terminate()
        process.communicate()


def right_answers(model: pathlib.Path, lines: Sequence[str]) -> dict[str, str]:
    """The export's translation of each line alone."""
    from kformer.runtime.c_api import SavedModel
    from kformer.runtime.versions import find_saved_model

    path = find_saved_model(model)
    if path is None:
        raise ValueError(f"{model} holds no export.")
    translate = SavedModel(path, threads_per_operation=1)
    return {line: translate([line.encode()])["translation"][0].decode() for line in dict.fromkeys(lines)}


def load(url: str, answers: pathlib.Path, clients: int, seconds: float) -> dict[str, Any]:
    """The figures for a number of clients. They run in a separate process, because Locust replaces Python's sockets."""
    command = [sys.executable, "-m", __spec__.name, "--clients-of", url, str(answers), str(clients), str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def be_clients(url: str, answers: pathlib.Path, clients: int, seconds: float) -> None:
    """Loads a server and prints the results as JSON."""
    import gevent
    from locust import constant, task
    from locust.contrib.fasthttp import FastHttpUser
    from locust.env import Environment

    right = json.loads(answers.read_text())
    lines = list(right)
    host, path = re.fullmatch(r"(https?://[^/]+)(.*)", url).groups()  # type: ignore[union-attr]
    wrong: list[str] = []

    class Client(FastHttpUser):
        wait_time = constant(0)
        started = 0

        def on_start(self) -> None:
            self.place = Client.started * 7919  # so that clients ask different things
            Client.started += 1

        @task
        def ask(self) -> None:
            line = lines[self.place % len(lines)]
            self.place += 1
            with self.client.post(f"{path}:predict", json={"instances": [line]}, catch_response=True) as answer:
                if answer.status_code != 200:
                    answer.failure(f"{answer.status_code}: {answer.text}")
                    return
                found = json.loads(answer.content)["predictions"][0]["translation"]
                if found != right[line]:
                    wrong.append(f"{line!r} became {found!r} instead of {right[line]!r}")

    environment = Environment(user_classes=[Client], host=host)
    runner = environment.create_local_runner()
    runner.start(clients, spawn_rate=clients)
    gevent.sleep(seconds)
    runner.quit()
    total = environment.stats.total
    errors = [f"{entry.error} ({entry.occurrences} times)" for entry in environment.stats.errors.values()]
    figures = {
        "answers": total.num_requests - total.num_failures,
        "errors": total.num_failures,
        "wrong": len(wrong),
        "p50": total.get_response_time_percentile(0.5),
        "p99": total.get_response_time_percentile(0.99),
        "first": (wrong + errors + [""])[0],
    }
    print(json.dumps(figures))


def words(number: int) -> list[str]:
    """Sources of cmudict's test set, evenly spread."""
    from kformer.data import load_corpus

    sources = [source for source, _ in load_corpus("cmudict").test]
    return sources[:: max(1, len(sources) // number)][:number]


def exported(preset: str, folder: pathlib.Path) -> pathlib.Path:
    """An export of a preset."""
    command = [sys.executable, "-m", "kformer", "export", "--preset", preset, str(folder / preset)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / preset


def main() -> None:
    if sys.argv[1:2] == ["--clients-of"]:
        url, answers, clients, seconds = sys.argv[2:]
        be_clients(url, pathlib.Path(answers), int(clients), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="base folder of an export; by default the preset cmudict's")
    parser.add_argument("--lines", type=pathlib.Path, help="a file of texts; by default words of cmudict's test set")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each number of clients")
    arguments = parser.parse_args()
    lines = arguments.lines.read_text(encoding="utf-8").splitlines() if arguments.lines else words(LINES)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or exported("cmudict", pathlib.Path(folder))
        measure(model, lines, arguments.clients, arguments.seconds)


if __name__ == "__main__":
    main()
