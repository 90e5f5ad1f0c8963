"""The programs of docs/batch-engines.md as processes, and the processes that they start.

The environment variable KFORMER_LINES sets how many lines they answer.
"""

import math
import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable

import toy
from page_commands import ROOT

from benchmarks.common.pages import program_of

PAGE = "batch-engines.md"
# The beginning of a program that prints how many examples of docstrings it has tried, and how many failed.
EXAMPLES = """
import doctest
import kformer

def try_examples(thing, **names):
    test = doctest.DocTestParser().get_doctest(thing.__doc__, {"kformer": kformer, **names}, thing.__name__, None, 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    print(f"examples of {thing.__name__}: {result.attempted} tried, {result.failed} failed")
"""
LINES = int(os.environ.get("KFORMER_LINES", 12_000))
BLOCKS = math.ceil(LINES / 1024)  # that Ray makes of them


def numbered_lines(folder: pathlib.Path, run: pathlib.Path) -> list[str]:
    """Prepares a folder for a program: the model, and a file of numbered lines. Gives the lines."""
    (folder / "exported").mkdir()
    (folder / "exported" / "mine").symlink_to(run)
    corpus = toy.corpus()
    sources = [source for part in (corpus.train, corpus.valid, corpus.test) for source, _ in part]
    lines = random.Random(5).choices(sources, k=LINES)
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    program = start(program_of(PAGE, "Numbers for the lines"), folder)
    assert program.wait() == 0, said(folder)
    return lines


def start(program: str, folder: pathlib.Path) -> subprocess.Popen:
    """Runs a program in a folder. What it prints goes to a file there."""
    (folder / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "said").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "program.py"], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def said(folder: pathlib.Path) -> str:
    """The end of what the programs in a folder printed, for messages."""
    return (folder / "said").read_text(errors="replace")[-4000:]


def wait_until(condition: Callable[[], bool], program: subprocess.Popen, folder: pathlib.Path) -> None:
    """Waits for something that a program does before it ends."""
    for _ in range(6000):
        if condition():
            return
        assert program.poll() is None, f"The program has ended too early:\n{said(folder)}"
        time.sleep(0.1)
    raise AssertionError(f"It did not happen within ten minutes:\n{said(folder)}")


def processes_below(program: int, words: str) -> list[int]:
    """The ids of the processes that descend from a program and have these words in their command line."""
    parents, commands = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(status.partition("PPid:")[2].split()[0])

    def descends(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == program:
                return True
        return False

    return sorted(process for process, command in commands.items() if words in command and descends(process))


def kill_and_wait(program: subprocess.Popen, below: list[int]) -> None:
    """Kills a program, and waits until the processes below it have ended by themselves."""
    program.kill()
    program.wait()
    for _ in range(600):
        if not any(is_running(process) for process in below):
            return
        time.sleep(0.1)
    raise AssertionError(f"The processes {[process for process in below if is_running(process)]} run on for a minute.")


def is_running(process: int) -> bool:
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{process}/status").read_text()  # nobody waits for a zombie
    except OSError:
        return False


def libraries_of(process: int) -> str:
    """The files that a process has mapped into its memory; nothing if it has ended."""
    try:
        return pathlib.Path(f"/proc/{process}/maps").read_text()
    except OSError:
        return ""


# Of a process that computes through TensorFlow's C library, and of Python's TensorFlow.
C_LIBRARY, PYTHONS_TENSORFLOW = "libtensorflow_cc", "_pywrap_tensorflow"
