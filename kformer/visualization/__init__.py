"""Pictures of the paper's formulas, of attention, searches and runs (`pip install 'kformer[plots]'`: Matplotlib).

Every function returns a `matplotlib.figure.Figure` and shows nothing: a notebook displays the figure that a cell ends
with, and `figure.savefig("name.svg")` writes it. Colours follow Matplotlib's current style, also a dark one.
"""

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError("kformer.visualization needs Matplotlib: pip install 'kformer[plots]'.") from None

from kformer.text.attention_maps import Attention, AttentionMap, read_detailed
from kformer.visualization.attention import (
    plot_alignment,
    plot_attention,
    plot_attention_heads,
    plot_attention_links,
)
from kformer.visualization.comparison import plot_comparison
from kformer.visualization.confusion import plot_confusion
from kformer.visualization.figures import show_in_notebooks
from kformer.visualization.masks import plot_masks
from kformer.visualization.positions import plot_position_products, plot_positions, plot_wavelengths
from kformer.visualization.probabilities import plot_smoothed_labels, plot_temperatures
from kformer.visualization.runs import plot_runs
from kformer.visualization.schedules import plot_schedules
from kformer.visualization.search import plot_beam, plot_length_penalties
from kformer.visualization.view import AttentionView

show_in_notebooks()

__all__ = [
    "Attention",
    "AttentionMap",
    "AttentionView",
    "plot_alignment",
    "plot_attention",
    "plot_attention_heads",
    "plot_attention_links",
    "plot_beam",
    "plot_comparison",
    "plot_confusion",
    "plot_length_penalties",
    "plot_masks",
    "plot_position_products",
    "plot_positions",
    "plot_runs",
    "plot_schedules",
    "plot_smoothed_labels",
    "plot_temperatures",
    "plot_wavelengths",
    "read_detailed",
]
