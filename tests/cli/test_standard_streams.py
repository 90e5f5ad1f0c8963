"""Standard input and output as other programs hand them over: full, without a buffer, or non-blocking."""

import fcntl
import os
import subprocess
import sys
import time

import pytest
from scripted_rest import ScriptedRest

from kformer.process.console import without_controls

pytestmark = pytest.mark.tensorflow_only


def started(*arguments, **streams):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    command = [sys.executable, "-m", "kformer", *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, **streams)


def test_a_full_disk_under_standard_output_has_its_status():
    with open("/dev/full", "w") as full:
        process = started("--version", stdout=full)
        _, error = process.communicate()
    assert process.returncode == 74
    assert error == b"kformer: [Errno 28] No space left on device\n"


def test_a_command_whose_output_nobody_reads_ends_without_a_word():
    """As behind `| true`: what is printed is still in the buffer when the command ends."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "kformer", "--version"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, env=environment, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_pipe_that_does_not_block_loses_nothing():
    expected, _ = started("train", "--help", stdout=subprocess.PIPE).communicate()
    assert len(expected) > 3 * 4096
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with started("train", "--help", stdout=writing) as process, open(reading, "rb") as pipe:
        os.close(writing)
        time.sleep(2)  # the pipe is full
        assert pipe.read() == expected
    assert process.returncode == 0


def test_lines_that_come_later_over_a_pipe_that_does_not_block_are_answered():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with (
        ScriptedRest() as server,
        started("translate", "--server", server.url, stdin=reading, stdout=subprocess.PIPE) as process,
    ):
        os.close(reading)
        os.write(writing, b"one\n")
        assert process.stdout.readline() == b"ONE\n"
        time.sleep(0.5)
        os.write(writing, b"two\n")
        assert process.stdout.readline() == b"TWO\n"
        os.close(writing)
        assert process.wait() == 0


def test_a_name_does_not_steer_a_terminal():
    process = started("translate", "a\x1b]0;name\x07b\nc")
    _, error = process.communicate()
    assert error == b"kformer: a\\x1b]0;name\\x07b\nc does not exist. Name a run folder or a SavedModel.\n"
    assert without_controls("ñ\ta\x9b\x7f") == "ñ\ta\\x9b\\x7f"
