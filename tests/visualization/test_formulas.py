"""Pictures of the paper's formulas: what they show is read back from the figure, and compared with numbers on paper."""

import matplotlib
import numpy as np
import pytest
from figures import bars, image, lines, titles
from matplotlib.figure import Figure

from kformer import visualization
from kformer.layers import PositionalEncoding
from kformer.schedules import WarmupInverseSqrt

PLOTS = [
    visualization.plot_masks,
    visualization.plot_position_products,
    visualization.plot_positions,
    visualization.plot_schedules,
    visualization.plot_smoothed_labels,
    visualization.plot_temperatures,
    visualization.plot_wavelengths,
]


@pytest.mark.parametrize("style", ["default", pytest.param("dark_background", marks=pytest.mark.slow)])
@pytest.mark.parametrize("plot", PLOTS)
def test_every_picture_has_a_title_and_labels_and_can_be_written(plot, style, tmp_path):
    with matplotlib.style.context(style):
        figure = plot()
        figure.savefig(tmp_path / "figure.svg")
        figure.savefig(tmp_path / "figure.png")
    assert isinstance(figure, Figure)
    assert all(titles(figure))
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            assert axes.get_ylabel()
        else:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
    assert matplotlib._pylab_helpers.Gcf.get_num_fig_managers() == 0  # It is no window's.


def test_positions_are_those_of_the_layer():
    shown = image(visualization.plot_positions(length=11, d_model=6).axes[0])
    np.testing.assert_allclose(shown[:, 0], np.sin(np.arange(11)), atol=1e-6)
    np.testing.assert_allclose(shown[:, 3], np.cos(np.arange(11) / 10000 ** (2 / 6)), atol=1e-6)
    table = np.array([[1.0, 2.0], [3.0, -4.0], [0.0, 0.5]])
    np.testing.assert_array_equal(image(visualization.plot_positions(table).axes[0]), table)
    np.testing.assert_array_equal(
        image(visualization.plot_positions(PositionalEncoding(4).table(3)).axes[0])[0], [0, 1, 0, 1]
    )


def test_products_depend_on_the_distance_alone():
    figure = visualization.plot_position_products(length=17, d_model=8)
    products = image(figure.axes[0])
    rates = 10000.0 ** (-np.arange(4) / 4)
    expected = np.array([np.cos(distance * rates).sum() for distance in range(17)])
    np.testing.assert_allclose(products[0], expected, atol=1e-5)
    np.testing.assert_allclose(products[5, 2:9], expected[[3, 2, 1, 0, 1, 2, 3]], atol=1e-5)
    curves = lines(figure.axes[1])
    assert {*curves} == {"position 4", "position 8", "position 12"}
    distances, values = curves["position 4"]
    known = ~np.isnan(values)
    assert distances[known].tolist() == [*range(-4, 13)]
    np.testing.assert_allclose(values[known], expected[np.abs(distances[known])], atol=1e-5)


def test_wavelengths_rise_from_two_pi():
    ((dimensions, waves),) = lines(visualization.plot_wavelengths(4).axes[0]).values()
    assert dimensions.tolist() == [0, 2]
    np.testing.assert_allclose(waves, [2 * np.pi, 200 * np.pi])


def test_masks_hide_padding_and_what_comes_later():
    padding, earlier, both = (image(axes) for axes in visualization.plot_masks(3, padding=1).axes)
    assert padding.tolist() == [[True, True, False]] * 3
    assert earlier.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert both.tolist() == [[True, False, False], [True, True, False], [True, True, False]]


def test_schedules_are_numbered_from_the_first_update():
    schedules = {"a": WarmupInverseSqrt(16, 10), "b": WarmupInverseSqrt(16, 20)}
    curves = lines(visualization.plot_schedules(schedules, steps=40).axes[0])
    updates, rates = curves["a"]
    assert updates.tolist() == [*range(1, 41)]
    assert updates[np.argmax(rates)] == 10
    assert rates[9] == pytest.approx((16 * 10) ** -0.5)
    assert curves["b"][1][9] == pytest.approx(16**-0.5 * 10 * 20**-1.5)


def test_equal_lines_can_be_told_apart():
    schedules = {"a": WarmupInverseSqrt(16, 10), "b": WarmupInverseSqrt(16, 10)}
    first, second = visualization.plot_schedules(schedules, steps=20).axes[0].lines
    assert first.get_linestyle() != second.get_linestyle()


def test_labels_smoothed_in_both_forms():
    figure = visualization.plot_smoothed_labels(num_classes=5, label=3, epsilon=0.2)
    assert figure.axes[0].get_yscale() == "log"  # or the small probabilities would be invisible
    shown = bars(figure)
    assert shown["without"] == [0, 0, 0, 1, 0]
    assert shown["epsilon 0.2, over all"] == pytest.approx([0.04, 0.04, 0.04, 0.84, 0.04])
    assert shown["epsilon 0.2, over others"] == pytest.approx([0.05, 0.05, 0.05, 0.8, 0.05])


def test_temperatures_sharpen_and_flatten():
    figure = visualization.plot_temperatures([np.log(4), 0.0], [0.5, 1.0, 2.0])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1.38629", "0"]
    shown = bars(figure)
    assert shown["temperature 0.5"] == pytest.approx([16 / 17, 1 / 17])
    assert shown["temperature 1"] == pytest.approx([4 / 5, 1 / 5])
    assert shown["temperature 2"] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        (lambda: visualization.plot_positions(np.zeros(3)), r"shape \(positions, dimensions\). Received: shape \(3,\)"),
        (lambda: visualization.plot_positions(d_model=5), "d_model must be even"),
        (lambda: visualization.plot_wavelengths(5), "d_model must be even"),
        (lambda: visualization.plot_masks(3, padding=3), "padding must be from 0 to 2"),
        (lambda: visualization.plot_schedules(steps=0), "steps must be at least 1"),
        (lambda: visualization.plot_schedules({}), "at least one schedule"),
        (lambda: visualization.plot_smoothed_labels(4, label=4), "label must be from 0 to 3"),
        (lambda: visualization.plot_smoothed_labels(epsilon=1.0), "epsilon"),
        (lambda: visualization.plot_temperatures(temperatures=[1.0, 0.0]), "Every temperature must be above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(plot, message):
    with pytest.raises(ValueError, match=message):
        plot()
