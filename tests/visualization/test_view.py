"""The interactive view of attention in Chromium: what a person chooses and points at, and what can be seen."""

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from kformer.visualization import AttentionMap, AttentionView

pytestmark = pytest.mark.tensorflow_only  # the browser is the same on every backend
WEIGHTS = np.array(
    [[[[1, 0], [0.25, 0.75]], [[0.5, 0.5], [0, 1]]], [[[0, 1], [0, 1]], [[0, 1], [0, 1]]]]
)  # (2, 2, 2, 2)


@pytest.fixture(scope="module")
def view(chromium, tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "view.html"
    first = AttentionMap(WEIGHTS, ["uno", "</script>"], ["שלום", "<b>"], "Cross-attention")
    AttentionView(first, AttentionMap(WEIGHTS[0, 0], ["x", "y"], ["x", "y"], "One head")).save(path)
    chromium.get_log("browser"), chromium.get_log("performance")
    chromium.get(path.as_uri())
    return chromium


@pytest.fixture
def _reloaded(view):
    view.refresh()


def all_of(view, selector):
    return view.find_elements(By.CSS_SELECTOR, selector)


def lines(view):
    """The strength of the lines, as many as there are."""
    return [float(line.get_attribute("stroke-opacity")) for line in all_of(view, "#lines line")]


def test_tokens_are_shown_as_they_are_and_nothing_is_loaded(view):
    assert [item.text for item in all_of(view, "#queries bdi")] == ["uno", "</script>"]
    assert [item.text for item in all_of(view, "#keys bdi")] == ["שלום", "<b>"]
    assert view.get_log("browser") == []
    urls = [
        entry["message"] for entry in view.get_log("performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    assert urls
    assert all("file://" in url for url in urls)


@pytest.mark.usefixtures("_reloaded")
def test_layers_heads_and_kinds_are_chosen(view):
    assert sorted(lines(view)) == [0.25, 0.5, 0.5, 0.75, 1, 1]
    all_of(view, "#heads input")[1].click()
    assert sorted(lines(view)) == [0.25, 0.75, 1]
    Select(view.find_element(By.ID, "layer")).select_by_value("1")
    assert lines(view) == [1, 1]
    Select(view.find_element(By.ID, "kind")).select_by_visible_text("One head")
    assert sorted(lines(view)) == [0.25, 0.75, 1]
    assert len(all_of(view, "#heads input")) == 1


@pytest.mark.usefixtures("_reloaded")
def test_lines_reach_from_one_column_to_the_other_and_cover_no_token(view):
    width = view.find_element(By.ID, "lines").size["width"]
    ends = [[float(line.get_attribute(end)) for end in ("x1", "x2")] for line in all_of(view, "#lines line")]
    np.testing.assert_allclose(ends, [[0, width]] * 6, atol=1)


@pytest.mark.usefixtures("_reloaded")
def test_a_token_that_is_pointed_at_has_its_lines_alone(view):
    ActionChains(view).move_to_element(all_of(view, "#queries li")[1]).perform()
    assert sorted(lines(view)) == [0.25, 0.75, 1]
    detail = view.find_element(By.ID, "detail")
    assert detail.text.startswith("“</script>” attends most to “<b>” 0.88, “שלום” 0.13")
    ActionChains(view).move_to_element(all_of(view, "#keys li")[0]).perform()
    assert sorted(lines(view)) == [0.25, 0.5, 1]
    assert "is attended to most by “uno” 0.75" in detail.text


@pytest.mark.usefixtures("_reloaded")
def test_the_keyboard_is_enough(view):
    view.execute_script("arguments[0].focus()", all_of(view, "#keys li")[1])
    assert sorted(lines(view)) == [0.5, 0.75, 1]


def test_a_notebook_gets_the_view_in_a_frame():
    shown = AttentionView(AttentionMap(WEIGHTS[0], ["a", "b"], ["c", "d"]))._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert '"a"' not in shown  # quotation marks are escaped within the attribute
