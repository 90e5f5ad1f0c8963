"""What all figures have in common: their size, their colours, their axes."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Colours that people with any colour vision tell apart (Okabe and Ito, 2008); grey for black, which a dark page hides.
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Of numbers from low to high: as light or dark in print as in colour. Of numbers around zero: white in the middle.
LOW_TO_HIGH, AROUND_ZERO = "cividis", "PuOr"


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, row by row. It belongs to no window, so that nobody has to close it.

    Args:
        width, height: In inches.
        columns, rows: How many axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [*figure.subplots(rows, columns, squeeze=False).flat]


def show_in_notebooks() -> None:
    """Lets a notebook show figures, as `matplotlib.pyplot` does where it is imported."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    from IPython.core.pylabtools import select_figure_formats

    if not any(Figure in formatter.type_printers for formatter in shell.display_formatter.formatters.values()):
        select_figure_formats(shell, {"png"})


def draw_lines(axes: Axes, x: np.ndarray, rows: Sequence[tuple[str, np.ndarray]]) -> None:
    """A line for each named row over `x`, told apart by colour and by dashes."""
    for number, (name, values) in enumerate(rows):
        dashes = ("-", "--", ":", "-.")[number // len(LINES) % 4]
        axes.plot(x, values, dashes, color=LINES[number % len(LINES)], label=name)
    axes.grid(alpha=0.3)
    axes.legend()


def draw_matrix(figure: Figure, axes: Axes, matrix: np.ndarray, colors: str, unit: str, **limits: Any) -> None:
    """A matrix, the first row at the top, with a bar that says what its colours stand for.

    Args:
        figure: The figure of the axes.
        axes: Where.
        matrix: (rows, columns).
        colors: The name of a colour map.
        unit: What the numbers are.
        limits: vmin and vmax of the colour map.
    """
    image = axes.imshow(matrix, cmap=colors, aspect="auto", interpolation="nearest", **limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=axes, label=unit)
