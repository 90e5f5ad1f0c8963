"""What label smoothing and the temperature do to probabilities, as pictures. Letter: V classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kformer.config import LABEL_SMOOTHING_FORMS
from kformer.losses import smoothed
from kformer.visualization.figures import LINES, new_figure


def plot_smoothed_labels(num_classes: int = 8, label: int = 2, epsilon: float = 0.1) -> Figure:
    """The probabilities that a model should give, with and without label smoothing (section 5.4).

    Two forms are shown: the paper's reference smooths over all classes, Tensor2Tensor only over the other classes.

    Args:
        num_classes: V.
        label: The right class, from 0 to V - 1.
        epsilon: The probability that is taken from the right class, from 0 up and below 1.

    Returns:
        The figure.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> figure = plot_smoothed_labels(num_classes=4, label=2, epsilon=0.2)
        >>> figure.axes[0].containers[1].datavalues.round(2).tolist()  # over all classes
        [0.05, 0.05, 0.85, 0.05]
    """
    if not 0 <= label < num_classes:
        raise ValueError(f"label must be from 0 to {num_classes - 1}. Received: label={label}.")
    is_label = np.arange(num_classes) == label
    rows = {"without": is_label.astype(float)}
    for form in LABEL_SMOOTHING_FORMS:
        rows[f"epsilon {epsilon:g}, over {form}"] = np.where(is_label, *smoothed(num_classes, epsilon, form))
    figure = _bars(rows, "Smoothed labels", "class", range(num_classes))
    # With a linear axis, the small probabilities of the other classes could not be seen.
    smallest = min(row[row > 0].min() for row in rows.values())
    figure.axes[0].set(yscale="log", ylim=(smallest / 4, 1.5), ylabel="probability, logarithmic")
    return figure


def plot_temperatures(
    logits: Sequence[float] = (2.0, 1.5, 1.0, 0.0, -1.0), temperatures: Sequence[float] = (0.5, 1.0, 2.0)
) -> Figure:
    """The softmax of logits divided by several temperatures: low ones sharpen it, high ones flatten it.

    Args:
        logits: V numbers.
        temperatures: Numbers above 0.

    Returns:
        The figure.

    Raises:
        ValueError: A temperature is not above 0.

    Examples:
        >>> figure = plot_temperatures(logits=[2.0, 0.0], temperatures=[0.5, 2.0])
        >>> [bars.datavalues.round(2).tolist() for bars in figure.axes[0].containers]
        [[0.98, 0.02], [0.73, 0.27]]
    """
    if not all(temperature > 0 for temperature in temperatures):
        raise ValueError(f"Every temperature must be above 0. Received: {[*temperatures]}.")
    rows = {}
    for temperature in temperatures:
        scaled = np.asarray(logits, "float64") / temperature
        weights = np.exp(scaled - scaled.max())
        rows[f"temperature {temperature:g}"] = weights / weights.sum()
    return _bars(rows, "Softmax at several temperatures", "logit of the class", [f"{logit:g}" for logit in logits])


def _bars(rows: dict[str, np.ndarray], title: str, meaning: str, classes: Sequence[Any]) -> Figure:
    """A group of bars for each class, a colour for each row. `classes` stand below; `meaning` says what they are."""
    figure, (axes,) = new_figure(8, 4)
    width = 0.8 / len(rows)
    for number, (name, values) in enumerate(rows.items()):
        places = np.arange(len(values)) + (number - (len(rows) - 1) / 2) * width
        axes.bar(places, values, width, color=LINES[number % len(LINES)], label=name)
    axes.set(title=title, xlabel=meaning, ylabel="probability")
    axes.set_xticks(range(len(classes)), classes)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return figure
