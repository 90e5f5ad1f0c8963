"""Writes the log of a run as a CSV table."""

import csv
import pathlib

import keras

from kformer.files.writing import replacing
from kformer.training.checkpoints import TrainingState


class CSVLog(keras.callbacks.CSVLogger):
    """Appends the logs of every epoch to a CSV file. `TrackState` must come before.

    A killed run may have written rows after its last checkpoint. The resumed run writes these rows again, so the old
    ones are removed first.

    Args:
        path: The file.
        state: Shared with the other callbacks.
    """

    def __init__(self, path: str | pathlib.Path, state: TrainingState) -> None:
        super().__init__(str(path), append=True)
        self.path = pathlib.Path(path)
        self.state = state

    def on_train_begin(self, logs: dict | None = None) -> None:
        if self.path.is_file():
            drop_later_rows(self.path, self.state.epoch)
        super().on_train_begin(logs)

    def close(self) -> None:
        """Closes the file. Keras closes it only if `fit` ends without an error."""
        if self.csv_file is not None:
            self.csv_file.close()


def drop_later_rows(path: pathlib.Path, epoch: int) -> None:
    """Removes the rows of `epoch` and of later ones, and an incomplete row, from a CSV file.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        with path.open(newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
        kept = [row for row in rows if len(row) == len(header) and int(row[header.index("epoch")]) < epoch]
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Move it away: the run continues as before, and begins a new log."
        ) from error
    if kept == rows:
        return
    with replacing(path) as partial, partial.open("w", newline="") as file:
        csv.writer(file).writerows([header, *kept] if header else [])
