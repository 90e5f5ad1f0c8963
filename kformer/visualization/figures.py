"""What all figures have in common: their size, their colours, their axes."""

import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Colours for every kind of colour vision (Okabe and Ito, 2008), but grey instead of black, which a dark page hides, and
# wine instead of yellow, which a white page hides.
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#777777")
# Colour maps: for numbers from low to high, from dark to light also in grey; for numbers around zero, white at zero.
LOW_TO_HIGH, AROUND_ZERO = "cividis", "PuOr"


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure and its axes, row by row. The figure belongs to no window, so it need not be closed.

    Args:
        width, height: In inches.
        columns, rows: How many axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [*figure.subplots(rows, columns, squeeze=False).flat]


def plain(text: str) -> str:
    r"""A text that Matplotlib draws as it is, without formulas between dollar signs and without control characters.

    Examples:
        >>> print(plain("costs $5 or $6\x07"))
        costs \$5 or \$6�
    """
    shown = "".join("\ufffd" if unicodedata.category(letter) == "Cc" else letter for letter in text)
    return shown.replace("$", r"\$")


def in_legend(name: str) -> str:
    """The same for a name in a legend, where Matplotlib would leave out one that begins with an underscore."""
    return f" {plain(name)}" if name.startswith("_") else plain(name)


def show_in_notebooks() -> None:
    """Lets a notebook show figures, as an import of `matplotlib.pyplot` does."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    from IPython.core.pylabtools import select_figure_formats

    if not any(Figure in formatter.type_printers for formatter in shell.display_formatter.formatters.values()):
        select_figure_formats(shell, {"png"})


def draw_lines(axes: Axes, x: np.ndarray, rows: Sequence[tuple[str, np.ndarray]], joined: bool = True) -> None:
    """Draws a line for each named row over `x`, with different colours and dashes; not `joined`, only its points.

    Where lines are equal, all of them can be seen: the first is solid, the next ones have gaps.
    """
    for number, (name, values) in enumerate(rows):
        dashes = ("-", "--", ":", "-.")[number % 4]
        axes.plot(x, values, dashes if joined else "o", color=LINES[number % len(LINES)], label=name)
    axes.grid(alpha=0.3)
    axes.legend()


def draw_matrix(figure: Figure, axes: Axes, matrix: np.ndarray, colors: str, unit: str, **limits: Any) -> None:
    """Draws a matrix, the first row at the top, with a colour bar.

    Args:
        figure: The figure of the axes.
        axes: Where to draw.
        matrix: (rows, columns).
        colors: The name of a colour map.
        unit: The label of the colour bar.
        limits: vmin and vmax of the colour map.
    """
    image = axes.imshow(matrix, cmap=colors, aspect="auto", interpolation="nearest", **limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=axes, label=unit)
