"""The summary of a training run as JSON, for the programs that start it."""

import contextlib
import json
import pathlib
from collections.abc import Iterator

from kformer.files.writing import check_file_path, write_json
from kformer.runs.exit_status import exit_status
from kformer.runs.folder import RunFolder


def check_summary(path: pathlib.Path, run: RunFolder) -> None:
    """Refuses a path where no summary can be written, before any work is done. An earlier summary may be there.

    Raises:
        OSError: No file can be written there.
        ValueError: The path is the run folder, or a file that is no summary.
    """
    if path.resolve() == run.path.resolve():
        raise ValueError(f"The summary cannot be the run folder {run.path} itself. Name a file for it.")
    check_file_path(path)
    if not path.is_file():
        return
    try:
        is_summary = "exit_status" in json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError):
        is_summary = False
    if not is_summary:
        raise ValueError(f"{path} exists and is no summary of a run. Name another file, or remove it.")


def remove_summary(path: pathlib.Path) -> None:
    """Removes an earlier summary: what a link leads to, and no pipe or device, which programs may read."""
    file = path.resolve()
    if file.is_file():
        file.unlink()


def write_ended(
    path: str | pathlib.Path, run: RunFolder, status: int, reason: str, steps: int, best: float | None
) -> None:
    """Writes the summary of a run that ended without an error.

    Args:
        path: The JSON file. It has the fields `exit_status`, `reason`, `steps` (optimizer updates), `best` and
            `monitor` (the best value of the monitored metric, and its name), `run`, `weights` and `checkpoint` (paths,
            or null where there is no such file).
        run: The run folder.
        status: The command's exit status.
        reason: Why the run ended, in words.
        steps: Optimizer updates done.
        best: The best value of the monitored metric.
    """
    facts = {"steps": steps, "best": best, "monitor": run.training_config().monitor}
    paths = {"weights": run.best_weights_file, "checkpoint": run.checkpoint_file}
    found = {name: str(file) if file.is_file() else None for name, file in paths.items()}
    write_json(path, {"exit_status": status, "reason": reason, **facts, "run": str(run.path), **found})


@contextlib.contextmanager
def failures_noted(path: pathlib.Path | None) -> Iterator[None]:
    """Writes `exit_status`, and the message as `reason`, if the block ends by an error. With None it writes nothing."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if path is not None:
            write_json(path, {"exit_status": exit_status(error), "reason": str(error) or type(error).__name__})
        raise
