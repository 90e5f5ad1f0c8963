"""The progress displays of commands; that of training is in `kformer.training.callbacks`.

They appear only on a terminal, and on standard error, so that results may go to standard output.
"""

import contextlib
import os
from collections.abc import Callable, Iterator

import rich.console
import rich.progress

from kformer.process.console import Console


@contextlib.contextmanager
def progress_bar(
    description: str, total: int, console: rich.console.Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows a bar while the block runs; yields a function that takes the number of newly finished items.

    Args:
        description: What is done.
        total: Number of items.
        console: Where to show it; standard error by default.
    """
    columns = (*rich.progress.Progress.get_default_columns(), rich.progress.MofNCompleteColumn())
    with _shown(columns, console) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.advance(task, done)


@contextlib.contextmanager
def status(description: str, console: rich.console.Console | None = None) -> Iterator[None]:
    """Shows a description and the elapsed time while the block runs, for work of unknown size.

    Args:
        description: What is done.
        console: Where to show it; standard error by default.
    """
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.TimeElapsedColumn(),
    )
    with _shown(columns, console) as progress:
        progress.add_task(description, total=None)
        yield


@contextlib.contextmanager
def shown(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar, or the number of finished items and the elapsed time where the total is not known."""
    if total is not None:
        with progress_bar(description, total) as advance:
            yield advance
        return
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}  {task.completed:,}", markup=False),
        rich.progress.TimeElapsedColumn(),
    )
    with _shown(columns, None) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done: progress.advance(task, done)


@contextlib.contextmanager
def _shown(
    columns: tuple[rich.progress.ProgressColumn, ...], console: rich.console.Console | None
) -> Iterator[rich.progress.Progress]:
    # A duplicate descriptor still writes to the terminal while `start_tensorflow` filters descriptor 2.
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as standard_error:
        console = console or Console(standard_error)
        with rich.progress.Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as progress:
            yield progress
