"""The positional encoding of section 3.5 as pictures. Letters: T positions, D model size."""

from typing import Any

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from kformer.layers import PositionalEncoding
from kformer.visualization.figures import AROUND_ZERO, LOW_TO_HIGH, draw_lines, draw_matrix, new_figure


def plot_positions(table: Any = None, length: int = 64, d_model: int = 128) -> Figure:
    """A positional encoding as a heat map: a row for each position, a column for each dimension.

    Args:
        table: (T, D) floats; by default the sinusoids of section 3.5 for `length` positions and `d_model` dimensions.
        length: T, where no table is given.
        d_model: D, where no table is given; even.

    Returns:
        The figure.

    Raises:
        ValueError: The table has another rank, or `d_model` is odd.

    Examples:
        >>> axes = plot_positions(length=50, d_model=16).axes[0]
        >>> axes.get_title(), axes.images[0].get_array().shape
        ('Positional encoding', (50, 16))
    """
    table = _table(table, length, d_model)
    figure, (axes,) = new_figure(8, 4.5)
    largest = np.abs(table).max()
    draw_matrix(figure, axes, table, AROUND_ZERO, "value", vmin=-largest, vmax=largest)
    axes.set(title="Positional encoding", xlabel="dimension", ylabel="position")
    return figure


def plot_position_products(table: Any = None, length: int = 64, d_model: int = 128) -> Figure:
    """The dot products of all pairs of positions, and those of some positions over the distance.

    With sinusoids, the product of two positions depends on their distance alone, and not on its direction: it is
    the sum of the cosines of the distance at all wavelengths.

    Args:
        table: As in `plot_positions`.
        length: As in `plot_positions`.
        d_model: As in `plot_positions`.

    Returns:
        The figure.

    Raises:
        ValueError: As in `plot_positions`.

    Examples:
        >>> figure = plot_position_products([[1, 0], [1, 1]])
        >>> figure.axes[0].images[0].get_array().tolist()
        [[1.0, 1.0], [1.0, 2.0]]
    """
    table = _table(table, length, d_model)
    products = table @ table.T  # (T, T)
    figure, (left, right) = new_figure(10, 4.2, columns=2)
    draw_matrix(figure, left, products, LOW_TO_HIGH, "dot product")
    left.set(title="Dot products of positions", xlabel="position", ylabel="position")
    last = len(table) - 1
    chosen = sorted({last // 4, last // 2, 3 * last // 4})
    distances = np.arange(-last, last + 1)

    def around(position: int) -> np.ndarray:
        """(2T - 1,) products by distance, NaN where there is no such position."""
        values = np.full(len(distances), np.nan)
        values[last - position : 2 * last - position + 1] = products[position]
        return values

    draw_lines(right, distances, [(f"position {position}", around(position)) for position in chosen])
    right.set(title="The same over the distance", xlabel="distance in positions", ylabel="dot product")
    return figure


def plot_wavelengths(d_model: int = 512) -> Figure:
    """How many positions a sinusoid needs for a whole period, in each dimension: from 2 pi to 10000 x 2 pi.

    Args:
        d_model: D, even.

    Returns:
        The figure.

    Raises:
        ValueError: `d_model` is odd.

    Examples:
        >>> axes = plot_wavelengths(d_model=4).axes[0]  # sinusoids at the dimensions 0 and 2
        >>> axes.get_lines()[0].get_ydata().round().tolist()  # 2 pi, and 100 times as many
        [6.0, 628.0]
    """
    PositionalEncoding(d_model)  # It refuses odd numbers.
    dimensions = np.arange(0, d_model, 2)
    figure, (axes,) = new_figure(7, 4)
    draw_lines(axes, dimensions, [(f"d_model {d_model}", 2 * np.pi * 10000.0 ** (dimensions / d_model))])
    axes.set(title="Wavelengths of the sinusoids", xlabel="dimension", ylabel="wavelength in positions", yscale="log")
    return figure


def _table(table: Any, length: int, d_model: int) -> np.ndarray:
    values = PositionalEncoding(d_model).table(length) if table is None else table
    array = np.asarray(ops.convert_to_numpy(values), "float32")
    if array.ndim != 2:
        raise ValueError(
            f"A table of positions has the shape (positions, dimensions). Received: shape {array.shape}. Pass what the "
            "`table` method of a positional encoding gives."
        )
    return array
