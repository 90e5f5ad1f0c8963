"""Beam search as pictures: its tree, and what the length penalty does. Letter: K beams."""

from collections.abc import Sequence

import numpy as np
from keras import ops
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kformer.decoding.length_penalty import length_norm
from kformer.text.beam_tree import BeamTree
from kformer.visualization.figures import LINES, draw_lines, new_figure, plain
from kformer.visualization.fonts import families_for

_COLORS = {"kept": LINES[0], "finished": LINES[5], "pruned": "#999999"}
_MOST_STEPS = 16  # of a tree, by default
_INCHES_PER_LETTER = 0.09
_START, _START_TOKEN = (0.0, 0.0), "<s>"
_MEANING = {"kept": "goes on", "finished": "has ended", "pruned": "is dropped"}


def plot_beam(tree: BeamTree, max_steps: int | None = None) -> Figure:
    """The hypotheses that a beam search looked at, as a tree that grows to the right: a column for each step.

    The best candidate of a step stands at the top. Below each token is the score of the hypothesis that ends with it.
    The way to the best finished hypothesis is drawn bold. Hypotheses that go on after the last step that is drawn have
    dots.

    Args:
        tree: From `Translator.beam_tree`.
        max_steps: Later steps are not drawn; by default those after the end of the best hypothesis, or after step 16.

    Returns:
        The figure.

    Raises:
        ValueError: `max_steps` is not above 0, or the tree is empty.

    Examples:
        >>> axes = plot_beam(translator.beam_tree("g o", beam_size=2, length_penalty=0.6)).axes[0]
        >>> axes.get_title(), axes.get_xticks().tolist()  # a step each for G, OW and the end
        ('Beam search: 2 beams, length penalty 0.6', [1, 2, 3])
    """
    if max_steps is None:
        max_steps = _MOST_STEPS if tree.best is None else min(_MOST_STEPS, tree.extensions[tree.best].length)
    if max_steps < 1 or not tree.extensions:
        raise ValueError(f"Expected max_steps of at least 1 and a tree. Received: max_steps={max_steps}, {tree}.")
    shown = [number for number, one in enumerate(tree.extensions) if one.length <= max_steps]
    places = _places(tree, shown)
    steps = int(max(x for x, _ in places.values()))
    rows = max(y for _, y in places.values()) + 1
    column = max(0.95, 0.3 + _INCHES_PER_LETTER * max(len(tree.tokens[number]) for number in shown))  # in inches
    figure, (axes,) = new_figure(1.5 + column * steps, 1.6 + 0.6 * rows)
    _draw_lines_of_tree(axes, tree, places, column)
    _draw_tokens_of_tree(axes, tree, places, steps)
    for outcome, color in _COLORS.items():
        axes.plot([], [], color=color, label=_MEANING[outcome])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False)
    axes.set(
        title=f"Beam search: {tree.beam_size} beams, length penalty {tree.length_penalty:g}",
        xlabel="token of the translation",
        ylabel="candidates, best first; below each its score",
        xlim=(-0.4, steps + 0.6),
        ylim=(rows - 0.4, -0.7),
        xticks=range(1, steps + 1),
        yticks=[],
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _places(tree: BeamTree, shown: Sequence[int]) -> dict[int, tuple[float, float]]:
    """The place of each hypothesis: its step, and its rank among those of the step, from 0."""
    ranks: dict[int, int] = {}
    places = {}
    for number in shown:
        step = tree.extensions[number].length
        places[number] = (float(step), float(ranks.get(step, 0)))
        ranks[step] = ranks.get(step, 0) + 1
    return places


def _best_path(tree: BeamTree) -> set[int]:
    return set() if tree.best is None else set(tree.path(tree.best))


def _draw_lines_of_tree(axes: Axes, tree: BeamTree, places: dict[int, tuple[float, float]], column: float) -> None:
    """A line from each hypothesis to the one that it continues. `column` is the width of a step in inches."""

    def half_width(token: str) -> float:
        """Of a token with a margin, in steps: lines begin and end there, so that they cross no token."""
        return max(0.2, (_INCHES_PER_LETTER * len(token) / 2 + 0.05) / column)

    best = _best_path(tree)
    for number, (x, y) in places.items():
        extension = tree.extensions[number]
        parent_x, parent_y = places.get(extension.parent, _START)
        before = tree.tokens[extension.parent] if extension.parent in places else _START_TOKEN
        is_best = number in best
        axes.plot(
            (parent_x + half_width(before), x - half_width(tree.tokens[number])),
            (parent_y, y),
            color=_COLORS[extension.outcome],
            linewidth=2.5 if is_best else 0.8,
            alpha=1 if is_best or extension.outcome != "pruned" else 0.5,
        )


def _draw_tokens_of_tree(axes: Axes, tree: BeamTree, places: dict[int, tuple[float, float]], steps: int) -> None:
    """The last token of each hypothesis, and its score. Those that go on after the last step have dots."""
    best, fonts = _best_path(tree), families_for(tree.tokens)
    for number, (x, y) in places.items():
        extension, token = tree.extensions[number], tree.tokens[number]
        goes_on = x == steps and extension.outcome == "kept"
        axes.text(
            x, y, plain(f"{token} ..." if goes_on else token), ha="center", va="bottom", fontsize=11, fontfamily=fonts,
            fontweight="bold" if number in best else "normal", color=_COLORS[extension.outcome], clip_on=True,
        )  # fmt: skip
        axes.text(x, y + 0.04, f"{extension.score:.2f}", ha="center", va="top", fontsize=8.5, clip_on=True)
    axes.text(*_START, _START_TOKEN, ha="center", va="center", fontsize=11)


def plot_length_penalties(
    lengths: Sequence[int] | None = None,
    log_probs: Sequence[float] | None = None,
    penalties: Sequence[float] = (0.0, 0.6, 1.0),
) -> Figure:
    """Scores of hypotheses over their length, for several length penalties: log P(Y) / lp(Y), Wu et al. (2016).

    Without a penalty (0) every further token makes the score worse, so that short hypotheses win. Hypotheses that are
    given are points; the default is a line.

    Args:
        lengths: Numbers of tokens, from 1 up.
        log_probs: The log probability of each hypothesis; by default every token has the probability 0.8.
        penalties: Exponents alpha of the length penalty, at least 0.

    Returns:
        The figure.

    Raises:
        ValueError: The numbers of lengths and log probabilities differ, a length is below 1, or a penalty is negative.

    Examples:
        >>> figure = plot_length_penalties(lengths=[1, 7], log_probs=[-1.0, -1.5], penalties=[0.0, 1.0])
        >>> [line.get_ydata().tolist() for line in figure.axes[0].get_lines()]  # the penalty favours the longer one
        [[-1.0, -1.5], [-1.0, -0.75]]
    """
    sizes = np.arange(1, 51) if lengths is None else np.asarray(lengths)
    totals = sizes * np.log(0.8) if log_probs is None else np.asarray(log_probs, "float64")
    if sizes.ndim != 1 or sizes.shape != totals.shape or not sizes.size or sizes.min() < 1:
        raise ValueError(
            "Expected lengths from 1 up, and a log probability for each. Received: "
            f"lengths of shape {sizes.shape}, log_probs of shape {totals.shape}."
        )
    if not penalties or min(penalties) < 0:
        raise ValueError(f"Length penalties must be at least 0. Received: {[*penalties]}.")
    rows = []
    for penalty in penalties:
        norms = np.asarray(ops.convert_to_numpy(length_norm(sizes.astype("int32"), penalty)))
        name = f"length penalty {penalty:g}" if penalty else "without a length penalty"
        rows.append((name, totals / norms))
    figure, (axes,) = new_figure(8, 4.5)
    draw_lines(axes, sizes, rows, joined=log_probs is None)
    axes.set(title="Score over length", xlabel="length in tokens, the end included", ylabel="score")
    return figure
