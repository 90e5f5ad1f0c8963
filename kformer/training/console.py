"""The console of a training run."""

import os
import sys

import rich.console


class Console(rich.console.Console):
    """A console that stops printing when its output pipe is closed, as by `| head`. The run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # otherwise Python's flush at exit would fail
        os.close(nowhere)
