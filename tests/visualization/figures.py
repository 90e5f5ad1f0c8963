"""Reads back what figures show."""

import numpy as np


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_label() != "<colorbar>"]


def image(axes):
    return np.asarray(axes.images[0].get_array())


def lines(axes):
    return {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines}


def bars(figure):
    """The heights of each group of bars, by the group's name."""
    (axes,) = figure.axes
    return {group.get_label(): [bar.get_height() for bar in group] for group in axes.containers}
