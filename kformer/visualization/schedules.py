"""The learning rate of section 5.3 as a picture."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from kformer.schedules import WarmupInverseSqrt
from kformer.visualization.figures import draw_lines, new_figure

_POINTS = 1000
# (d_model, warmup_steps) of the default curves: the paper's base model, another warm-up, other widths.
_PAPER = ((512, 4000), (512, 8000), (256, 4000), (1024, 4000))


def plot_schedules(schedules: Mapping[str, Callable[[Any], Any]] | None = None, steps: int = 20000) -> Figure:
    """Learning rates over the first updates.

    Args:
        schedules: A mapping from names to functions of Keras's step, which counts from 0, such as a
            `keras.optimizers.schedules.LearningRateSchedule`. By default equation 3 of the paper for some widths and
            warm-ups.
        steps: The number of updates.

    Returns:
        The figure.

    Raises:
        ValueError: `steps` is not above 0, or there is no schedule.

    Examples:
        >>> figure = plot_schedules({"short warm-up": kformer.schedules.WarmupInverseSqrt(512, 10)}, steps=40)
        >>> rates = figure.axes[0].get_lines()[0].get_ydata()
        >>> int(rates.argmax()) + 1, round(float(rates[39] / rates[9]), 2)  # highest at update 10, half of that at 40
        (10, 0.5)
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1. Received: steps={steps}.")
    if schedules is None:
        schedules = {
            f"d_model {d_model}, warm-up {warmup:,}": WarmupInverseSqrt(d_model, warmup) for d_model, warmup in _PAPER
        }
    if not schedules:
        raise ValueError("Pass at least one schedule, or None for those of the paper.")
    chosen = np.unique(np.linspace(0, steps - 1, min(steps, _POINTS)).round().astype(int))
    rates = [
        (name, np.array([float(ops.convert_to_numpy(schedule(int(step)))) for step in chosen]))
        for name, schedule in schedules.items()
    ]
    figure, (axes,) = new_figure(8, 4.5)
    draw_lines(axes, chosen + 1, rates)
    axes.set(title="Learning rate", xlabel="update", ylabel="rate", ylim=(0, None))
    return figure
