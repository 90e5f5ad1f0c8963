"""A bar for work of known size; the one of training is in `kformer.training.callbacks`."""

import contextlib
from collections.abc import Callable, Iterator

import rich.console
import rich.progress


@contextlib.contextmanager
def progress_bar(
    description: str, total: int, console: rich.console.Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Shows a bar while the block runs, on a terminal only; gives a function that takes how many more are done.

    Args:
        description: What is done.
        total: Number of items.
        console: Where to show it; None: standard error, so that results may go to standard output.
    """
    columns = (*rich.progress.Progress.get_default_columns(), rich.progress.MofNCompleteColumn())
    console = console or rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.advance(task, done)
