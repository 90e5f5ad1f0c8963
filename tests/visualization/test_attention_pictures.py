"""Attention between tokens: what the pictures show is read back from the figures."""

import matplotlib
import numpy as np
import pytest
from figures import image, lines

from kformer import visualization
from kformer.visualization import AttentionMap, fonts

SOURCE, TARGET = ("the", "red", "house", "</s>"), ("la", "casa", "</s>")
# Two layers of three heads over three queries and four keys; the last layer is made by hand.
WEIGHTS = np.random.default_rng(3).dirichlet(np.ones(4), size=(2, 3, 3)).astype("float32")
WEIGHTS[1, 0] = [[0.9, 0.1, 0, 0], [0, 0.2, 0.8, 0], [0, 0, 0, 1]]
WEIGHTS[1, 1] = [[0.7, 0.1, 0.2, 0], [0, 0.4, 0.6, 0], [0, 0, 0.5, 0.5]]
WEIGHTS[1, 2] = [[0.2, 0.1, 0.7, 0], [0.3, 0.3, 0.4, 0], [0.25, 0.25, 0.25, 0.25]]


@pytest.fixture
def attention():
    return AttentionMap(WEIGHTS, TARGET, SOURCE, "Cross-attention")


def labels(axis):
    return tuple(label.get_text() for label in axis.get_ticklabels())


def test_a_map_is_of_a_head_or_of_the_mean_of_heads(attention):
    figure = visualization.plot_attention(attention, layer=0, head=2)
    axes = figure.axes[0]
    np.testing.assert_array_equal(image(axes), WEIGHTS[0, 2])
    assert labels(axes.yaxis) == TARGET
    assert labels(axes.xaxis) == SOURCE
    assert axes.get_title() == "Cross-attention, layer 0, head 2"
    mean = visualization.plot_attention(attention).axes[0]
    np.testing.assert_allclose(image(mean)[0], [0.6, 0.1, 0.3, 0], atol=1e-6)
    assert mean.get_title() == "Cross-attention, layer 1 (the last), mean of the heads"
    np.testing.assert_array_equal(attention.of(-2, -3), WEIGHTS[0, 0])  # counted from the last


def test_weights_of_one_head_are_enough():
    axes = visualization.plot_attention(AttentionMap(WEIGHTS[1, 0], TARGET, SOURCE)).axes[0]
    np.testing.assert_array_equal(image(axes), WEIGHTS[1, 0])
    assert axes.get_title() == "Attention"


def test_a_grid_has_a_map_for_every_head(attention):
    figure = visualization.plot_attention_heads(attention)
    maps = [axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]
    assert [axes.get_title() for axes in maps] == [f"layer {a}, head {b}" for a in range(2) for b in range(3)]
    for axes, weights in zip(maps, WEIGHTS.reshape(6, 3, 4), strict=True):
        np.testing.assert_array_equal(image(axes), weights)
    chosen = visualization.plot_attention_heads(attention, layers=[1], heads=[2, 0])
    assert [axes.get_title() for axes in chosen.axes if axes.get_title()] == ["layer 1, head 2", "layer 1, head 0"]


def test_lines_of_one_token_have_a_colour_for_each_head(attention):
    axes = visualization.plot_attention_links(attention, "casa", heads=[0, 1]).axes[0]
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    ends = [(round(line.get_ydata()[0]), round(line.get_ydata()[1])) for line in drawn]
    assert ends == [(1, 1), (1, 2), (1, 1), (1, 2)]
    assert [line.get_linewidth() for line in drawn] == pytest.approx([0.5 + 3 * one for one in (0.2, 0.8, 0.4, 0.6)])
    assert len({line.get_color() for line in drawn}) == 2
    assert {*lines(axes)} >= {"head 0", "head 1"}


def test_links_of_small_weights_are_left_out():
    weights = np.array([[[[0.04, 0.05, 0.91]]]])
    axes = visualization.plot_attention_links(AttentionMap(weights, ["a"], ["x", "y", "z"])).axes[0]
    assert [line.get_ydata()[1] for line in axes.lines if len(line.get_xdata())] == [1, 2]


def test_an_alignment_has_the_strongest_link_of_each_token(attention):
    axes = visualization.plot_alignment(attention, smallest=0.5).axes[0]
    ends = [tuple(line.get_ydata()) for line in axes.lines]
    assert ends == [(0, 0), (1, 2), (2, 3)]
    strong = visualization.plot_alignment(attention, smallest=0.59).axes[0]
    assert [tuple(line.get_ydata()) for line in strong.lines] == [(0, 0), (1, 2)]


def test_a_font_is_found_for_characters_that_the_usual_one_lacks(monkeypatch):
    usual = matplotlib.rcParams["font.family"]
    assert fonts.families_for(["plain", "Ελλάδα"]) == usual
    entries = [
        fonts.FontEntry(fname="serif.ttf", name="Han Serif"),
        fonts.FontEntry(fname="sans.ttf", name="Han Sans"),
        fonts.FontEntry(fname="other.ttf", name="Other Sans"),
    ]
    monkeypatch.setattr(fonts.fontManager, "ttflist", entries)
    known = {"serif.ttf": "猫犬", "sans.ttf": "猫犬", "other.ttf": "क"}
    monkeypatch.setattr(fonts, "_characters", lambda path: {*map(ord, known.get(path, "ab"))})
    assert fonts.families_for(["a猫", "b犬"]) == [*usual, "Han Sans"]
    assert fonts.families_for(["猫", "क"]) == [*usual, "Han Sans", "Other Sans"]
    assert fonts.families_for(["ζ"]) == usual  # no font has it


def test_right_to_left_and_many_tokens_can_be_written(tmp_path):
    names = [*(f"token{number}" for number in range(58)), "שלום", "مرحبا"]
    weights = np.random.default_rng(0).dirichlet(np.ones(60), size=60)
    figure = visualization.plot_attention(AttentionMap(weights, names, names))
    figure.savefig(tmp_path / "figure.png")
    width, height = figure.get_size_inches()
    assert min(width, height) > 60 * 0.25  # inches: tokens do not run into each other


def test_the_detailed_signature_gives_an_alignment():
    # Two parts of one text: the tokens of the second look at source tokens from number 2 on.
    found = {
        "source_token": [[b"ab", b"c", b"d"]],
        "source_length": [3],
        "target_token": [[b" x", b"", b"y", b""]],
        "target_length": [4],
        "alignment": [[[0.5, 0.25], [0.5, 0.5], [1.0, 0.0], [0.125, 0.0]]],
        "alignment_start": [[0, 0, 2, 2]],
    }
    one = visualization.read_detailed(found)
    assert (one.queries, one.keys) == (("x", "</s>", "y", "</s>"), ("ab", "c", "d"))
    np.testing.assert_array_equal(one.of(), [[0.5, 0.25, 0], [0.5, 0.5, 0], [0, 0, 1], [0, 0, 0.125]])


def test_a_token_of_the_detailed_signature_that_shows_nothing_has_a_sign():
    """A blank is a dot, and so is a token of the text without bytes; one of the translation is its end."""
    found = {"source_token": [["a", "", " "]], "source_length": [3], "target_token": [[" ", "", "x"]]}
    found |= {"target_length": [2], "alignment": [[[0.5, 0.25, 0.25]] * 3], "alignment_start": [[0, 0, 0]]}
    one = visualization.read_detailed(found)
    assert (one.queries, one.keys) == (("·", "</s>"), ("a", "·", "·"))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda _: AttentionMap(np.zeros(3), "abc", "a"), r"shape \(layers, heads, queries, keys\).*\(3,\)"),
        (lambda _: AttentionMap(np.zeros((2, 3)), "ab", "ab"), "2 rows and 3 columns.*2 queries and 2 keys"),
        (lambda one: visualization.plot_attention(one, layer=2), "layer must be from 0 to 1. Received: layer=2"),
        (lambda one: one.of(layer=-3), "layer must be from 0 to 1. Received: layer=-3"),
        (lambda one: visualization.plot_attention(one, head=3), "head must be from 0 to 2. Received: head=3"),
        (lambda one: visualization.plot_attention_heads(one, heads=[]), "from 1 to 144 maps. Received: 2 layers of 0"),
        (lambda one: visualization.plot_attention_links(one, "perro"), "No token is 'perro'. The tokens are: la casa"),
        (lambda one: visualization.plot_attention_links(one, 3), "query must be from 0 to 2"),
        (lambda _: visualization.AttentionView(), "at least one AttentionMap"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message, attention):
    with pytest.raises(ValueError, match=message):
        draw(attention)
