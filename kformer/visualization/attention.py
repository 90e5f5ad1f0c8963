"""Attention between real tokens as pictures. Letters: L layers, H heads, T queries, S keys."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kformer.text.attention_maps import AttentionMap
from kformer.visualization.figures import LINES, LOW_TO_HIGH, new_figure, plain
from kformer.visualization.fonts import families_for

_INCHES_PER_TOKEN = 0.26
_FONT_SIZE = 9
_WEAKEST_LINK = 0.05  # weaker ones would only hide the others
_MOST_CELLS = 144  # of a grid: more maps would be too small to see


def plot_attention(attention: AttentionMap, layer: int = -1, head: int | None = None) -> Figure:
    """Attention weights as a heat map: a row for each query token, a column for each key token.

    Args:
        attention: From `Translator.attention`, or made of arrays: `AttentionMap(weights, queries, keys)`.
        layer: From 0 to L - 1; negative numbers count from the last.
        head: From 0 to H - 1; None for the mean of the layer's heads.

    Returns:
        The figure.

    Raises:
        ValueError: There is no such layer or head.

    Examples:
        >>> attention = AttentionMap([[0.75, 0.25], [0.5, 0.5]], queries=["la", "casa"], keys=["the", "house"])
        >>> figure = plot_attention(attention)
        >>> figure.axes[0].images[0].get_array().tolist()
        [[0.75, 0.25], [0.5, 0.5]]
    """
    weights = attention.of(layer, head)  # (T, S)
    rows, columns = weights.shape
    figure, (axes,) = new_figure(max(5.5, 3 + columns * _INCHES_PER_TOKEN), 2 + rows * _INCHES_PER_TOKEN)
    image = axes.imshow(weights, cmap=LOW_TO_HIGH, vmin=0, interpolation="nearest")
    fonts = families_for([*attention.queries, *attention.keys])
    keys, queries = map(plain, attention.keys), map(plain, attention.queries)
    axes.set_xticks(range(columns), [*keys], rotation=90, fontfamily=fonts, fontsize=_FONT_SIZE)
    axes.set_yticks(range(rows), [*queries], fontfamily=fonts, fontsize=_FONT_SIZE)
    axes.set(title=_title(attention, layer, head), xlabel="key", ylabel="query")
    figure.colorbar(image, ax=axes, label="attention weight")
    return figure


def plot_attention_heads(
    attention: AttentionMap, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Figure:
    """A small heat map of every head: a row of maps for each layer, a column for each head.

    Args:
        attention: As in `plot_attention`.
        layers: Which layers; all by default.
        heads: Which heads; all by default.

    Returns:
        The figure.

    Raises:
        ValueError: There is no such layer or head, or there are more than 144 maps.

    Examples:
        >>> weights = np.full((1, 2, 3, 3), 1 / 3)  # one layer, two heads
        >>> figure = plot_attention_heads(AttentionMap(weights, ["la", "casa", "roja"], ["the", "red", "house"]))
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['layer 0, head 0', 'layer 0, head 1']
    """
    layers = range(attention.num_layers) if layers is None else layers
    heads = range(attention.num_heads) if heads is None else heads
    if not 0 < len(layers) * len(heads) <= _MOST_CELLS:
        raise ValueError(
            f"A grid has from 1 to {_MOST_CELLS} maps. Received: {len(layers)} layers of {len(heads)} heads. "
            "Choose some of them by `layers` and `heads`."
        )
    rows, columns = len(attention.queries), len(attention.keys)
    size = 1.7
    height = size * min(2.0, max(0.5, rows / columns))
    figure, cells = new_figure(1.2 + size * len(heads), 1.1 + height * len(layers), len(heads), len(layers))
    shown = [(layer, head, attention.of(layer, head)) for layer in layers for head in heads]
    largest = max(weights.max() for _, _, weights in shown)
    for axes, (layer, head, weights) in zip(cells, shown, strict=True):
        image = axes.imshow(weights, cmap=LOW_TO_HIGH, vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"layer {layer}, head {head}", fontsize=_FONT_SIZE)
    figure.suptitle(f"{attention.name} of every head")
    figure.supxlabel("keys, first to last token", fontsize=_FONT_SIZE)
    figure.supylabel("queries, first to last token", fontsize=_FONT_SIZE)
    figure.colorbar(image, ax=cells, label="attention weight")
    return figure


def plot_attention_links(
    attention: AttentionMap, query: int | str | None = None, layer: int = -1, heads: Sequence[int] | None = None
) -> Figure:
    """Lines from query tokens to key tokens, a colour for each head (figures 3 to 5 of the paper).

    The larger a weight, the wider and the less transparent is its line. Weights below 0.05 have none.

    Args:
        attention: As in `plot_attention`.
        query: The token whose lines are drawn, or its number; by default all of them.
        layer: As in `plot_attention`.
        heads: Which heads; all by default.

    Returns:
        The figure.

    Raises:
        ValueError: There is no such layer, head or token.

    Examples:
        >>> weights = np.full((1, 2, 3, 3), 1 / 3)  # one layer, two heads
        >>> attention = AttentionMap(weights, ["la", "casa", "roja"], ["the", "red", "house"])
        >>> [text.get_text() for text in plot_attention_links(attention, query="casa").axes[0].get_legend().get_texts()]
        ['head 0', 'head 1']
    """
    heads = range(attention.num_heads) if heads is None else heads
    weights = np.stack([attention.of(layer, head) for head in heads])  # (heads, T, S)
    chosen = range(len(attention.queries)) if query is None else [_number(attention.queries, query)]
    figure, axes = _two_columns(attention, f"{_title(attention, layer, None, mean=False)}: {_count(len(heads))}")
    spread = np.linspace(-0.25, 0.25, len(heads)) if len(heads) > 1 else [0.0]
    for number, head in enumerate(heads):
        color = LINES[number % len(LINES)]
        axes.plot([], [], color=color, label=f"head {head}")
        for row in chosen:
            for column in np.flatnonzero(weights[number, row] >= _WEAKEST_LINK):
                weight = float(weights[number, row, column])
                ends = (row + spread[number], column + spread[number])
                axes.plot((0, 1), ends, color=color, alpha=0.15 + 0.85 * weight, linewidth=0.5 + 3 * weight)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=_FONT_SIZE, frameon=False)
    return figure


def plot_alignment(attention: AttentionMap, layer: int = -1, smallest: float = 0.1) -> Figure:
    """The strongest link of every query token, by the mean of a layer's heads: mostly the token that it translates.

    A line's width stands for its weight.

    Args:
        attention: As in `plot_attention`; cross-attention gives the alignment of a translation and its source.
        layer: As in `plot_attention`.
        smallest: Links with smaller weights are not drawn.

    Returns:
        The figure.

    Raises:
        ValueError: There is no such layer.

    Examples:
        >>> figure = plot_alignment(AttentionMap(np.eye(2), ["la", "casa"], ["the", "house"], name="Alignment"))
        >>> figure.axes[0].get_title(), len(figure.axes[0].get_lines())
        ('Alignment: strongest links', 2)
    """
    weights = attention.of(layer)
    figure, axes = _two_columns(attention, f"{attention.name}: strongest links")
    for row, column in enumerate(weights.argmax(axis=1)):
        weight = float(weights[row, column])
        if weight >= smallest:
            axes.plot((0, 1), (row, column), color=LINES[0], linewidth=0.5 + 4 * weight, solid_capstyle="round")
    return figure


def _two_columns(attention: AttentionMap, title: str) -> tuple[Figure, Axes]:
    """Axes between two columns of tokens. x is 0 at the queries and 1 at the keys; y is the number of a token."""
    tokens = max(len(attention.queries), len(attention.keys))
    figure, (axes,) = new_figure(6, 1.6 + tokens * _INCHES_PER_TOKEN)
    fonts = families_for([*attention.queries, *attention.keys])
    axes.set(xlim=(0, 1), ylim=(tokens - 0.5, -0.5), xticks=[], title=title, ylabel="query")
    keys, queries = [*map(plain, attention.keys)], [*map(plain, attention.queries)]
    axes.set_yticks(range(len(queries)), queries, fontfamily=fonts, fontsize=_FONT_SIZE)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(keys)), keys, fontfamily=fonts, fontsize=_FONT_SIZE)
    right.set_ylabel("key")
    for side in (axes, right):
        side.tick_params(length=0)
        side.spines[:].set_visible(False)
    return figure, axes


def _title(attention: AttentionMap, layer: int, head: int | None, mean: bool = True) -> str:
    if attention.num_layers == attention.num_heads == 1:
        return attention.name
    of_head = (", mean of the heads" if mean else "") if head is None else f", head {head % attention.num_heads}"
    number = layer % attention.num_layers
    last = " (the last)" if 0 < number == attention.num_layers - 1 else ""
    return f"{attention.name}, layer {number}{last}{of_head}"


def _count(heads: int) -> str:
    return "1 head" if heads == 1 else f"{heads} heads"


def _number(tokens: Sequence[str], query: int | str) -> int:
    """The number of a token, which is given by its number or its text."""
    if isinstance(query, str):
        if query not in tokens:
            raise ValueError(f"No token is {query!r}. The tokens are: {' '.join(tokens)}.")
        return tokens.index(query)
    if not -len(tokens) <= query < len(tokens):
        raise ValueError(f"query must be from 0 to {len(tokens) - 1}, or a token. Received: query={query}.")
    return query % len(tokens)
