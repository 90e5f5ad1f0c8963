"""What is printed: any text, to any stream. No print ends a command, and none loses its work."""

import csv
import io
import json
import os
import subprocess
import sys

import processes
import pytest

from kformer.cli.progress import progress_bar, status
from kformer.process.console import Console
from kformer.runs.folder import RunFolder

LATIN_1 = os.fsdecode(b"a\xf1o")  # a file's name that is not UTF-8


def ascii_stream():
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def test_characters_that_a_stream_lacks_become_escapes():
    stream = ascii_stream()
    Console(stream).print(f"ñ 🔛 {LATIN_1}")
    assert stream.buffer.getvalue() == rb"\xf1 \U0001f51b a\udcf1o" + b"\n"


def test_a_stream_in_utf_8_gets_all_but_bytes_that_are_no_text():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Console(stream).print(f"ñ 🔛 {LATIN_1}")
    assert stream.buffer.getvalue().decode() == "ñ 🔛 a\\udcf1o\n"


def test_a_path_is_printed_as_it_is():
    stream = io.StringIO()
    Console(stream).print("runs/a:on:b/[bold]/" + "long/" * 100)
    assert stream.getvalue() == "runs/a:on:b/[bold]/" + "long/" * 100 + "\n"


def test_a_quiet_console_prints_nothing():
    stream = io.StringIO()
    Console(stream, quiet=True).print("x")
    assert stream.getvalue() == ""


def test_a_terminal_gets_no_colours_of_numbers_and_paths(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal(io.BytesIO(), encoding="ascii")
    Console(stream).print("runs/7")
    stream.flush()
    assert stream.buffer.getvalue() == b"runs/7\n"


@pytest.mark.parametrize("show", [status, lambda text, console: progress_bar(text, 3, console)])
def test_displays_of_a_terminal_draw_with_what_it_has(show, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal(io.BytesIO(), encoding="ascii")
    with show(f"loading {LATIN_1}", Console(stream)):
        pass
    assert rb"loading a\udcf1o" in stream.buffer.getvalue()


PRINTS = """
import pathlib, sys
from kformer.process.console import Console
console = Console()
for number in range(10000):
    console.print(number)
pathlib.Path(sys.argv[1]).touch()
"""


def test_a_program_goes_on_when_nobody_reads_its_output(tmp_path):
    """As behind `| head -1`."""
    command = [sys.executable, "-c", PRINTS, tmp_path / "trained"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.wait() == 0, process.stderr.read()
    assert (tmp_path / "trained").exists()


def run_in_ascii(command):
    """What a command prints where standard output is in ASCII, as under cron."""
    answer = subprocess.run(
        [str(part) for part in command], capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert answer.returncode == 0, answer.stderr.decode()
    return answer.stdout.decode("ascii")


@pytest.mark.slow
@pytest.mark.tensorflow_only
def test_a_training_keeps_its_validations_whatever_it_prints(tmp_path):
    files = processes.write_files(tmp_path, scored_sources=2, max_steps=2, validation_steps=1, max_length=64)
    for part in ("train", "valid"):
        file = files / f"{part}.tsv"
        file.write_text("".join(f"ñ {line}\n" for line in file.read_text().splitlines()[:300]), encoding="utf-8")
    pairs = (files / "train.tsv").rename(files / f"{LATIN_1} ñ.tsv")
    run = RunFolder(tmp_path / f"{LATIN_1} :on: [r]")
    command = [sys.executable, "-m", "kformer", "train", "--train", pairs, "--valid", files / "valid.tsv"]
    command += ["--config", files / "config.json", "--output", run.path, "--summary", tmp_path / "end.json"]
    printed = run_in_ascii(command)
    assert r"a\udcf1o \xf1.tsv train: " in printed
    assert "\n  \\xf1 " in printed  # a sample
    assert r"a\udcf1o :on: [r]." in printed
    with run.log_file.open(newline="") as log:
        assert [row["step"] for row in csv.DictReader(log)] == ["1", "2"]
    assert run.corpus()["name"] == str(pairs)
    assert json.loads((tmp_path / "end.json").read_text())["run"] == str(run.path)


COMMANDS = """
import json, sys
from kformer.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["kformer", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{arguments} ended with {end.code}")
"""


@pytest.mark.slow
@pytest.mark.tensorflow_only
def test_every_command_that_prints_a_name_prints_any(numbers_run, tmp_path):
    mean, packed, export = (f"{tmp_path}/{name} ñ" for name in ("mean", "packed", "export"))
    picture = f"{tmp_path}/{LATIN_1}.png"
    other = tmp_path / LATIN_1
    other.symlink_to(numbers_run)
    commands = [
        ["average", str(numbers_run), mean],
        ["pack", str(numbers_run), packed],
        ["export", packed, export, "--beam-size", "1"],
        ["lint", export],
        ["plot", "run", str(numbers_run), str(other), "--output", picture],
        ["evaluate", export, "--corpus", "bible-en-es", "--limit", "2"],
    ]
    printed = run_in_ascii([sys.executable, "-c", COMMANDS, json.dumps(commands)])
    lines = [line.replace(r"\xf1", "ñ") for line in printed.splitlines()]
    assert lines[0] == mean
    assert lines[1].startswith(f"{packed}: ")
    assert lines[2] == f"{export}/1"
    assert lines[-3].startswith(f"{export}/1: ")
    assert lines[-2] == f"{tmp_path}/a\\udcf1o.png"
    assert os.path.isfile(picture)
    assert json.loads(printed.splitlines()[-1])["sentences"] == 2
