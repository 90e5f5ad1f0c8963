"""Where a run prints."""

import os
import sys

import rich.console


class Console(rich.console.Console):
    """A console that falls silent when nobody reads it any more, as behind `| head`: the run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # or else Python's last flush would fail
        os.close(nowhere)
