"""A comparison of translators as a picture."""

import numpy as np
from matplotlib.figure import Figure

from kformer.evaluation import Comparison
from kformer.visualization.figures import LINES, in_legend, new_figure, plain


def plot_comparison(comparison: Comparison) -> Figure:
    """The scores of translators with their confidence intervals, and those of short and of long sources.

    Args:
        comparison: At least one translator.

    Returns:
        The figure: axes for each metric, and one for the lengths.

    Examples:
        >>> from kformer.evaluation import Comparison
        >>> made = {"one": ["a b c d", "e"], "two": ["a b c d", "e f g h"]}
        >>> figure = plot_comparison(Comparison(["1", "2 3"], [["a b c d"], ["e f g h"]], made))
        >>> [axes.get_title() for axes in figure.axes]
        ['BLEU', 'chrF', 'TER', 'BLEU by the length of the source']
    """
    metrics, names = list(comparison.scores), comparison.names
    figure, cells = new_figure(3.2 * len(metrics) + 4.2, 3.4, len(metrics) + 1, 1)
    for axes, metric in zip(cells, metrics, strict=False):
        for place, (name, score) in enumerate(comparison.scores[metric].items()):
            color = LINES[place % len(LINES)]
            axes.errorbar(place, score.value, score.interval, fmt="o", color=color, capsize=4, label=in_legend(name))
        axes.set(title=metric, xlim=(-0.5, len(names) - 0.5))
        axes.set_xticks(range(len(names)), [*map(plain, names)], rotation=20, ha="right")
        axes.grid(axis="y", alpha=0.3)
    lengths = comparison.by_length()
    axes, places = cells[len(metrics)], np.arange(len(lengths))
    for place, name in enumerate(names):
        values = [scores[name] for scores in lengths.values()]
        axes.plot(places, values, "o-", color=LINES[place % len(LINES)], label=in_legend(name))
    axes.set(title=f"{metrics[0]} by the length of the source", ylabel=metrics[0])
    axes.set_xticks(places, list(lengths), rotation=20, ha="right")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return figure
