"""Assembles the command line.

Each command has a file of its own. A command first checks its options and paths without TensorFlow, so that it reports
a mistake within a second. Only then does it start TensorFlow and do its work.
"""

import contextlib
import gc
import io
import os
import sys
from typing import Annotated

import typer

from kformer.cli.average import average
from kformer.cli.classify import classify
from kformer.cli.command_form import App
from kformer.cli.compare import compare
from kformer.cli.data import data
from kformer.cli.demo import demo
from kformer.cli.distill import distill
from kformer.cli.evaluate import evaluate
from kformer.cli.export import export
from kformer.cli.generate import generate
from kformer.cli.import_ import import_
from kformer.cli.lint import lint
from kformer.cli.pack import pack
from kformer.cli.plot import plot
from kformer.cli.prepare import prepare
from kformer.cli.score import score
from kformer.cli.serve import serve
from kformer.cli.tag import tag
from kformer.cli.train import train
from kformer.cli.translate import translate
from kformer.process.console import ERRORS, discard, without_controls
from kformer.runs.exit_status import USER_ERROR, exit_status
from kformer.runs.ownership import FolderLostError
from kformer.version import __version__

app = App("kformer")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kformer {__version__}")
        raise typer.Exit


@app.callback()
def kformer(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The Transformer of "Attention Is All You Need": train a model, use it, export it."""


app.add_commands(
    train,
    distill,
    prepare,
    data,
    translate,
    classify,
    tag,
    generate,
    score,
    evaluate,
    compare,
    import_,
    export,
    lint,
    serve,
    average,
    pack,
    demo,
)
app.add_typer(plot, name="plot")


def main() -> None:
    """Runs the command line; an error that a user can fix is one line on standard error, without a traceback."""
    _open_standard_streams()
    # Modules, models and graphs are many objects that live long. With Python's usual thresholds, the search for garbage
    # among them takes a fourteenth of the time in which a command begins.
    gc.set_threshold(200_000, 100, 100)
    try:
        try:
            app(prog_name="kformer")
        except SystemExit:
            sys.stdout.flush()  # what cannot be written is an error of the command, not of Python's end
            raise
    except BrokenPipeError:  # whoever read the output has enough
        discard(sys.stdout)
        sys.exit(USER_ERROR)
    except (ValueError, OSError, ImportError, FloatingPointError, FolderLostError) as error:
        print(f"kformer: {without_controls(str(error))}{_lost_folder()}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            discard(sys.stdout)
        sys.exit(exit_status(error))


def _lost_folder() -> str:
    """What to say where relative paths lead nowhere."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return " (the current folder was deleted: go to another one)"
    return ""


def _open_standard_streams() -> None:
    """Makes the standard streams take any text, and opens the null device for those that are closed (`>&-`).

    Otherwise files would get the numbers of closed streams, and the print of a name with ñ would end a command whose
    output is in ASCII. A stream that another program has made non-blocking waits again, and one without a buffer
    (PYTHONUNBUFFERED) gets one: what does not fit into a pipe or on a disk would be left out without a word.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < number:  # gets the lowest number that is free
                pass
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 (open to the end)
    for number in range(3):
        with contextlib.suppress(OSError):
            os.set_blocking(number, True)
    if isinstance(raw := getattr(sys.stdout, "buffer", None), io.RawIOBase):
        buffered = open(raw.fileno(), "wb", closefd=False)  # noqa: SIM115 (open to the end)
        sys.stdout = io.TextIOWrapper(buffered, sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERRORS)
