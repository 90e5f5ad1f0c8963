"""The commands of docs/from-opus-mt.md run as they stand."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from benchmarks.bridges import opus_mt_folder
from benchmarks.common.server import free_ports
from kformer.cli.main import app

pytestmark = pytest.mark.tensorflow_only
ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "from-opus-mt.md").read_text("utf-8"), flags=re.DOTALL)
SERVE, ASK = 4, 5  # the blocks that start a server and ask it
# The commands of the page, of the environment that runs the tests.
COMMANDS = """
set -euo pipefail
kformer() { "$PYTHON" -m kformer "$@"; }
python() { "$PYTHON" "$@"; }
"""


@pytest.mark.slow
@pytest.mark.in_ci
def test_import_and_translation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (making,) = BLOCKS[0].splitlines()
    *program, folder = shlex.split(making)
    assert program == ["python", "-m", opus_mt_folder.__name__]
    opus_mt_folder.make(pathlib.Path(folder))
    importing, translating = BLOCKS[1].splitlines()
    assert CliRunner().invoke(app, shlex.split(importing)[1:]).exit_code == 0
    text, command = re.fullmatch(r'echo "(.*)" \| kformer (.*)', translating).groups()
    answer = CliRunner().invoke(app, command.split(), input=f"{text}\n")
    assert (answer.exit_code, answer.stdout.count("\n")) == (0, 1)
    assert answer.stdout.strip()


@pytest.mark.slow
def test_all_commands(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}

    def run(block: str) -> str:
        command = ["bash", "-c", COMMANDS + block]
        return subprocess.run(
            command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        ).stdout.decode()

    for block in BLOCKS[:SERVE]:
        run(block)
    program, *arguments = shlex.split(BLOCKS[SERVE])
    assert program == "kformer"
    rest, grpc = map(str, free_ports())
    ports = ["--rest-port", rest, "--grpc-port", grpc]
    server = subprocess.Popen([sys.executable, "-m", "kformer", *arguments, *ports], cwd=tmp_path, env=environment)
    asking = BLOCKS[ASK].replace("localhost:8501", f"localhost:{rest}")
    try:
        wait(lambda: "predictions" in run(asking.replace("curl", "curl --silent")))
        (answer,) = json.loads(run(asking))["predictions"]
        assert answer["translation"]
        told = run(BLOCKS[ASK + 1])
        assert "bleu" in json.loads(told.splitlines()[-1])
        run(BLOCKS[ASK + 2])
        status = f"curl --silent localhost:{rest}/v1/models/en-es"
        wait(lambda: ("2", "AVAILABLE") in states(run(status)))
        (tuned,) = json.loads(run(asking))["predictions"]
        assert tuned != answer
    finally:
        server.terminate()
        server.wait(60)
    assert len(BLOCKS) == ASK + 3


def states(status: str) -> list[tuple[str, str]]:
    """The versions that a server tells, and their states."""
    return [(version["version"], version["state"]) for version in json.loads(status)["model_version_status"]]


def wait(condition) -> None:
    """Waits until a condition is true, while a server starts."""
    for _ in range(120):
        try:
            if condition():
                return
        except subprocess.CalledProcessError:  # nobody listens yet
            pass
        time.sleep(1)
    raise AssertionError("It did not happen within two minutes.")
