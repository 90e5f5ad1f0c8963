"""The course of training runs as a picture."""

import csv
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kformer.runs.folder import RunFolder
from kformer.visualization.figures import LINES, in_legend, new_figure, plain
from kformer.wording import did_you_mean

Log = Mapping[str, Sequence[float]]
# Columns of log.csv that are drawn if a run has them, and their titles.
_PANELS = {
    "token_loss": "loss a token",
    "loss": "loss a token",
    "perplexity": "perplexity",
    "accuracy": "share of right tokens",
    "bleu": "BLEU of translations",
    "phoneme_error_rate": "phoneme error rate",
    "learning_rate": "learning rate",
}
# Columns that begin very high, the perplexity in the thousands. The top of their axes is this many times the median.
_BEGIN_HIGH = ("loss", "token_loss", "perplexity")
_AT_MOST = 5.0
_FEW = 20  # curves of fewer points have markers


def plot_runs(
    runs: str | pathlib.Path | Sequence[str | pathlib.Path] | Mapping[str, Log], columns: Sequence[str] | None = None
) -> Figure:
    """Training curves of one or several runs over their updates: solid in validation, dashed in training.

    Args:
        runs: A run folder, several of them, or a mapping from names to logs: a mapping from the names of columns to
            numbers, with the column "step" and columns as those of a run's log.csv ("loss", "val_loss").
        columns: Which columns to draw, without "val_"; by default those of loss, perplexity, accuracy, BLEU, phoneme
            error rate and learning rate that a run has.

    Returns:
        The figure, with axes for each column.

    Raises:
        FileNotFoundError: A folder is no run folder, or has no log yet.
        ValueError: A log is damaged or empty, or no run has such a column.

    Examples:
        >>> log = {"step": [100, 200], "loss": [4.0, 3.0], "val_loss": [4.5, 3.5]}
        >>> axes = plot_runs({"my run": log}).axes[0]
        >>> axes.get_title(), [line.get_label() for line in axes.get_lines()]
        ('loss a token', ['training', 'validation'])
    """
    logs = dict(runs) if isinstance(runs, Mapping) else _read(runs)
    if not logs:
        raise ValueError("Pass at least one run.")
    for name, log in logs.items():
        if not len(log.get("step", ())):
            raise ValueError(f"The log of {name} has no updates yet: its column step is empty or missing.")
    known = dict.fromkeys(column.removeprefix("val_") for log in logs.values() for column in log)
    # By the loss a token, without further terms, a run keeps its best weights. Keras's own is the mean over batches.
    usual = [column for column in _PANELS if column in known and not (column == "loss" and "token_loss" in known)]
    chosen = usual if columns is None else list(columns)
    unknown = [column for column in chosen if column not in known]
    if unknown or not chosen:
        raise ValueError(
            f"No run has the column {', '.join(unknown)}. The columns are: {', '.join(known)}."
            f"{did_you_mean(unknown, known)}"
        )
    across = 2 if len(chosen) in (2, 4) else min(3, len(chosen))
    figure, cells = new_figure(4.2 * across, 3.4 * -(-len(chosen) // across), across, -(-len(chosen) // across))
    for axes, column in zip(cells, chosen, strict=False):
        _draw_column(axes, logs, column)
    for axes in cells[len(chosen) :]:
        axes.remove()
    cells[0].legend(fontsize=9)
    figure.suptitle("Training" if len(logs) > 1 else plain(f"Training of {next(iter(logs))}"))
    return figure


def _draw_column(axes: Axes, logs: Mapping[str, Log], column: str) -> None:
    """The curves of all runs."""
    ends = []
    for number, (name, log) in enumerate(logs.items()):
        for key, dashes, part in ((column, "--", "training"), (f"val_{column}", "-", "validation")):
            values = np.asarray(log.get(key, ()), "float64")
            is_known = ~np.isnan(values)
            if not is_known.any():
                continue
            ends.append(values[is_known][len(values[is_known]) // 2 :])
            axes.plot(
                np.asarray(log["step"])[is_known],
                values[is_known],
                dashes,
                color=LINES[number % len(LINES)],
                label=in_legend(f"{name}, {part}") if len(logs) > 1 else part,
                marker="." if is_known.sum() < _FEW else None,
            )
    title = _PANELS.get(column, column)
    axes.set(title=plain(title), xlabel="update", ylabel=plain(title))
    axes.grid(alpha=0.3)
    if column in _BEGIN_HIGH and ends:
        _leave_out_the_first(axes, ends)


def _leave_out_the_first(axes: Axes, ends: list[np.ndarray]) -> None:
    """Limits the y axis where large first values would press all others to its bottom.

    The second half of every curve, `ends`, stays visible.
    """
    most = max(_AT_MOST * np.median(np.concatenate(ends)), *(1.05 * end.max() for end in ends))
    if most < axes.get_ylim()[1]:
        axes.set_ylim(0, most)
        axes.set_ylabel(f"{axes.get_ylabel()} (larger values are cut off)")


def _read(runs: str | pathlib.Path | Sequence[str | pathlib.Path]) -> dict[str, Log]:
    paths = [runs] if isinstance(runs, str | pathlib.Path) else list(runs)
    folders = [RunFolder(path).check_described() for path in map(pathlib.Path, paths)]
    names = [folder.path.resolve().name for folder in folders]
    if len(set(names)) < len(names):  # runs of the same name in several places
        names = [str(path) for path in paths]
    # Matplotlib cannot draw the bytes of names that are not UTF-8.
    names = [name.encode("utf-8", "backslashreplace").decode("utf-8") for name in names]
    return {name: read_log(folder) for name, folder in zip(names, folders, strict=True)}


def read_log(run: RunFolder) -> dict[str, list[float]]:
    """The columns of a run's log.csv; missing values are NaN.

    Raises:
        FileNotFoundError: The run has no log.
        ValueError: The log is damaged.
    """
    if not run.log_file.is_file():
        raise FileNotFoundError(f"{run.path} has no log.csv: no epoch has ended yet, or the run was packed.")
    try:
        with run.log_file.open(newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
        kept = [row for row in rows if len(row) == len(header)]  # the last one may be half written
        return {
            name: [float("nan" if row[number] in ("", "NA") else row[number]) for row in kept]
            for number, name in enumerate(header)
        }
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{run.log_file} is damaged: {error}. Restore it from a copy.") from error
