"""The client of export/, beside a server that answers as TensorFlow Serving does."""

import pathlib
import subprocess
import sys

import pytest
from scripted_rest import ScriptedRest

CLIENT = pathlib.Path(__file__).parents[2] / "export" / "client_rest.py"

pytestmark = pytest.mark.tensorflow_only  # that is: once


def run(url, lines, tries=3):
    command = [sys.executable, str(CLIENT), "--url", url, "--tries", str(tries)]
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=60)


def test_lines_go_out_in_batches_and_come_back_in_order():
    lines = [f"line {number}" for number in range(70)]
    with ScriptedRest([]) as server:
        done = run(server.url, "\n".join(lines))
    assert done.stdout.splitlines() == [line.upper() for line in lines]
    assert [path for path, _ in server.requests] == ["/v1/models/m:predict"] * 3
    assert [len(body["instances"]) for _, body in server.requests] == [32, 32, 6]


@pytest.mark.parametrize("busy", [(503, '{"error": "loading"}'), (429, "{}"), (None, "")], ids=str)
def test_a_busy_server_is_asked_again(busy):
    with ScriptedRest([busy]) as server:
        done = run(server.url, "hello")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
    assert len(server.requests) == 2


def test_the_words_of_a_server_that_refuses_are_shown_and_it_is_not_asked_again():
    with ScriptedRest([(400, '{"error": "Batch too large"}')]) as server:
        done = run(server.url, "hello")
    assert done.returncode == 1
    assert done.stderr == f"client_rest.py: {server.url} answers 400: Batch too large\n"
    assert len(server.requests) == 1


def test_a_server_that_stays_away_is_told_without_a_traceback():
    with ScriptedRest([]) as server:
        url = server.url
    done = run(url, "hello", tries=1)
    assert done.returncode == 1
    assert done.stderr.startswith(f"client_rest.py: {url} does not answer: ")
    assert "Traceback" not in done.stderr
