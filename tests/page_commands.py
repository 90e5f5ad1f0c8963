"""Runs the commands of a page of docs/ as they stand, with the kformer that is tested."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.common.server import free_ports

ROOT = pathlib.Path(__file__).parents[1]
_COMMANDS = """
set -euo pipefail
kformer() { "$PYTHON" -m kformer "$@"; }
python() { "$PYTHON" "$@"; }
"""


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


def blocks_of(page: str) -> list[str]:
    """The blocks of shell commands of a page."""
    return re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), flags=re.DOTALL)


def run_block(block: str, folder: pathlib.Path) -> str:
    """Runs a block in a folder; what it prints. A command that fails is an error."""
    command = ["bash", "-c", _COMMANDS + block]
    return subprocess.run(
        command, check=True, cwd=folder, env=_environment(), stdout=subprocess.PIPE
    ).stdout.decode()  # with the line ends that the commands write


@contextlib.contextmanager
def served(arguments: Sequence[str], folder: pathlib.Path) -> Iterator[str]:
    """Runs `kformer serve` with these arguments on free ports until the end of the block; the port of REST."""
    program, *options = arguments
    assert program == "kformer"
    rest, grpc = map(str, free_ports())
    command = [sys.executable, "-m", "kformer", *options, "--rest-port", rest, "--grpc-port", grpc]
    server = subprocess.Popen(command, cwd=folder, env=_environment())
    try:
        wait(lambda: run_block(f"curl --silent --fail localhost:{rest}/readyz", folder) is not None)
        yield rest
    finally:
        server.terminate()
        server.wait(60)


def wait_for_version(port: str, model: str, version: str) -> None:
    """Waits until a server answers with this version."""

    def is_there() -> bool:
        answer = run_block(f"curl --silent localhost:{port}/v1/models/{model}", ROOT)
        found = json.loads(answer)["model_version_status"]
        return (version, "AVAILABLE") in [(one["version"], one["state"]) for one in found]

    wait(is_there)


def wait(condition: Callable[[], bool]) -> None:
    """Waits until a condition is true, while a server starts."""
    for _ in range(120):
        try:
            if condition():
                return
        except subprocess.CalledProcessError:  # nobody listens yet
            pass
        time.sleep(1)
    raise AssertionError("It did not happen within two minutes.")
