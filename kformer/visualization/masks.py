"""The masks of section 3.2.3 as pictures. Letters: T queries, S keys."""

import numpy as np
from keras import ops
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kformer.layers.masks import causal_mask, padding_mask
from kformer.visualization.figures import LINES, new_figure

_HIDDEN = "#BBBBBB"


def plot_masks(length: int = 8, padding: int = 2) -> Figure:
    """Which keys each position of a decoder may attend to: without padding, without later positions, without both.

    Args:
        length: T and S, the positions of a padded sentence.
        padding: How many of them, at the end, are padding.

    Returns:
        The figure.

    Raises:
        ValueError: `padding` is negative or leaves no position.

    Examples:
        >>> figure = plot_masks(length=3, padding=1)
        >>> [axes.get_title() for axes in figure.axes]
        ['Padding', 'Look-ahead', 'Both']
        >>> figure.axes[2].images[0].get_array().astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """
    if not 0 <= padding < length:
        raise ValueError(f"padding must be from 0 to {length - 1}, one less than length. Received: padding={padding}.")
    ids = np.array([[1] * (length - padding) + [0] * padding])
    keys = np.broadcast_to(ops.convert_to_numpy(padding_mask(ids))[0, 0], (length, length))
    earlier = ops.convert_to_numpy(causal_mask(length))[0, 0]
    masks = {"Padding": keys, "Look-ahead": earlier, "Both": keys & earlier}
    figure, row = new_figure(10, 4.2, columns=3)
    for axes, (name, mask) in zip(row, masks.items(), strict=True):
        axes.imshow(mask, cmap=ListedColormap([_HIDDEN, LINES[0]]), vmin=0, vmax=1)
        axes.set(title=name, xlabel="key position", ylabel="query position")
        axes.set_xticks(np.arange(length + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(length + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white")
        axes.tick_params(which="minor", length=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle("Attention masks: blue may be attended to, grey is hidden")
    return figure
