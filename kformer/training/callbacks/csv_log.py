"""Writes the log of a run as a CSV table."""

import csv
import pathlib

import keras

from kformer.files.writing import replacing
from kformer.training.checkpoints import TrainingState


class CSVLog(keras.callbacks.Callback):
    """Appends the logs of every epoch to a CSV file. `TrackState` must come before.

    A killed run may have written rows after its last checkpoint. The resumed run writes these rows again, so the old
    ones are removed first. A value that is new, such as one of a user's callback, gets a column of its own, and one
    that is missing an empty field.

    Args:
        path: The file.
        state: Shared with the other callbacks.
    """

    def __init__(self, path: str | pathlib.Path, state: TrainingState) -> None:
        super().__init__()
        self.path = pathlib.Path(path)
        self.state = state

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.path.is_file():
            drop_later_rows(self.path, self.state.epoch)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        row = {"epoch": epoch, **(logs or {})}
        header, rows = _read(self.path) if self.path.is_file() else ([], [])
        if new := [name for name in row if name not in header]:
            header += sorted(new, key=lambda name: (name != "epoch", name))  # the epoch first, as in Keras's log
            with replacing(self.path) as partial, partial.open("w", newline="") as file:
                csv.writer(file).writerows([header, *(old + [""] * (len(header) - len(old)) for old in rows)])
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow([row.get(name, "") for name in header])


def _read(path: pathlib.Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a CSV file."""
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    return header, rows


def drop_later_rows(path: pathlib.Path, epoch: int) -> None:
    """Removes the rows of `epoch` and of later ones, and an incomplete row, from a CSV file.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        header, rows = _read(path)
        kept = [row for row in rows if len(row) == len(header) and int(row[header.index("epoch")]) < epoch]
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Move it away: the run continues as before, and begins a new log."
        ) from error
    if kept == rows:
        return
    with replacing(path) as partial, partial.open("w", newline="") as file:
        csv.writer(file).writerows([header, *kept] if header else [])
