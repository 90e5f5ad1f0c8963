"""Pictures of what the paper's formulas say, with Matplotlib (`pip install 'kformer[plots]'`).

Every function returns a `matplotlib.figure.Figure` and shows nothing: a notebook displays the figure that a cell ends
with, and `figure.savefig("name.svg")` writes it. Colours follow Matplotlib's style in force, also a dark one.
"""

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError("kformer.visualization needs Matplotlib: pip install 'kformer[plots]'.") from None

from kformer.visualization.masks import plot_masks
from kformer.visualization.positions import plot_position_products, plot_positions, plot_wavelengths
from kformer.visualization.probabilities import plot_smoothed_labels, plot_temperatures
from kformer.visualization.schedules import plot_schedules

__all__ = [
    "plot_masks",
    "plot_position_products",
    "plot_positions",
    "plot_schedules",
    "plot_smoothed_labels",
    "plot_temperatures",
    "plot_wavelengths",
]
