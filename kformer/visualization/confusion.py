"""The confusion matrix of a model's symbols, as a picture."""

import collections
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from kformer.evaluation.metrics import edits
from kformer.visualization.figures import LOW_TO_HIGH, new_figure, plain
from kformer.visualization.fonts import families_for

NOTHING = "–"  # an insertion or a deletion


def plot_confusion(references: Sequence[str], hypotheses: Sequence[str], max_symbols: int = 40) -> Figure:
    """The confusion matrix of symbols, such as phonemes: a row for each right symbol, a column for each given symbol.

    Each hypothesis is aligned with its reference by the fewest edits. A cell is the share of the row's symbol that
    became the column's symbol; "–" stands for no symbol (a deletion or an insertion). Right symbols are not coloured,
    so that rare mistakes can be seen. The label of the row has their share.

    Args:
        references: The right sequences: symbols split by blanks.
        hypotheses: A model's sequences, one for each reference.
        max_symbols: The largest number of symbols to draw: those with the most mistakes.

    Returns:
        The figure.

    Raises:
        ValueError: The numbers of hypotheses and references differ, or there are none.

    Examples:
        >>> figure = plot_confusion(["K AE T", "K AE T"], ["K AE T", "K AH T"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['AE  50%', 'AH  0%', '–']
    """
    if len(references) != len(hypotheses) or not references:
        raise ValueError(
            f"Expected a hypothesis for each reference. Received: {len(references)} references, "
            f"{len(hypotheses)} hypotheses."
        )
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        pairs = edits(reference.split(), hypothesis.split())
        counts.update((right or NOTHING, given or NOTHING) for right, given in pairs)
    mistakes: collections.Counter[str] = collections.Counter()
    for (right, given), number in counts.items():
        for symbol in (right, given):
            mistakes[symbol] += number if right != given else 0
    worst = {symbol for symbol, number in mistakes.most_common(max_symbols) if number}
    symbols = sorted(worst - {NOTHING}) + [NOTHING]
    totals: collections.Counter[str] = collections.Counter()
    for (right, _), number in counts.items():
        totals[right] += number
    shares = np.array(
        [
            [np.nan if right == given else counts[right, given] / max(1, totals[right]) for given in symbols]
            for right in symbols
        ]
    )
    size = len(symbols) * 0.26
    figure, (axes,) = new_figure(max(5.5, 3 + size), max(3.5, 2 + size))
    image = axes.imshow(shares, cmap=LOW_TO_HIGH, vmin=0, interpolation="nearest")
    fonts = families_for(symbols)
    right_shares = [f"{right}  {counts[right, right] / max(1, totals[right]):.0%}" for right in symbols[:-1]]
    rows = [*map(plain, right_shares), NOTHING]
    axes.set_xticks(range(len(symbols)), [*map(plain, symbols)], rotation=90, fontsize=9, fontfamily=fonts)
    axes.set_yticks(range(len(symbols)), rows, fontsize=9, fontfamily=fonts)
    axes.set(
        title="Confusion of symbols",
        xlabel="symbol of the model",
        ylabel="right symbol, and its share of right answers",
    )
    figure.colorbar(image, ax=axes, label="share of the right symbol", shrink=0.8)
    return figure
