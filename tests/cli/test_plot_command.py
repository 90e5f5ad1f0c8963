"""`kformer plot`: its options arrive, its files are what their names say, and mistakes are told."""

import xml.etree.ElementTree

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from kformer import visualization
from kformer.cli.main import app
from kformer.decoding import tracing
from kformer.presets import find_preset
from kformer.text.beam_tree import BeamTree

pytestmark = pytest.mark.tensorflow_only

CLASSIFIER = str(find_preset("bible-books").path)


def plot(*arguments):
    answer = CliRunner().invoke(app, ["plot", *map(str, arguments)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


@pytest.fixture
def drawn(monkeypatch):
    """The calls of all functions that draw: (name, arguments, options)."""
    calls = []

    def watched(name):
        def draw(*arguments, **options):
            calls.append((name, arguments, options))
            return Figure()

        return draw

    for name in visualization.__all__:
        if name.startswith("plot_"):
            monkeypatch.setattr(visualization, name, watched(name))
    return calls


@pytest.mark.parametrize(
    ("arguments", "name", "options"),
    [
        (("positions", "--length", 7, "--d-model", 6), "plot_positions", {"length": 7, "d_model": 6}),
        (("products", "--length", 7, "--d-model", 6), "plot_position_products", {"length": 7, "d_model": 6}),
        (("wavelengths", "--d-model", 6), "plot_wavelengths", {"d_model": 6}),
        (("masks", "--length", 5, "--padding", 1), "plot_masks", {"length": 5, "padding": 1}),
        (("schedule", "--steps", 9), "plot_schedules", {"steps": 9}),
        (("labels", "--epsilon", 0.3), "plot_smoothed_labels", {"epsilon": 0.3}),
        (("temperatures",), "plot_temperatures", {}),
        (("penalties",), "plot_length_penalties", {}),
    ],
)
def test_options_of_formulas_arrive(arguments, name, options, drawn, tmp_path):
    path = tmp_path / "figure.png"
    assert plot(*arguments, "--output", path).split() == [str(path)]
    assert drawn == [(name, (), options)]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_end_of_a_name_says_the_kind_of_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plot("masks").split() == ["masks.png"]
    plot("masks", "--output", "a.svg")
    texts = [text for text in xml.etree.ElementTree.parse("a.svg").iter() if text.tag.endswith("}text")]
    assert any("Look-ahead" in text.text for text in texts)  # words, not outlines of letters
    plot("masks", "--output", "b.html")
    page = (tmp_path / "b.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.html", "masks.png"]


@pytest.mark.slow
@pytest.mark.in_ci
def test_attention_of_a_run_in_every_style(numbers_run, drawn, tmp_path):
    common = (numbers_run, "--text", "one two", "--output", tmp_path / "a.png")
    plot("attention", *common, "--translation", "uno", "--kind", "decoder", "--layer", 0, "--head", 1)
    plot("attention", *common, "--style", "heads", "--kind", "encoder", "--translation", "dos uno")
    plot("attention", *common, "--style", "links", "--query", "dos", "--layer", 0)
    plot("attention", *common, "--style", "alignment", "--layer", 0, "--translation", "dos uno")
    names, arguments, _ = zip(*drawn, strict=True)
    assert names == ("plot_attention", "plot_attention_heads", "plot_attention_links", "plot_alignment")
    maps = [one[0] for one in arguments]
    assert [one.name for one in maps] == [
        "Decoder self-attention", "Encoder self-attention", "Cross-attention", "Cross-attention",
    ]  # fmt: skip
    assert "".join(maps[0].queries) == "uno</s>"
    assert "".join(maps[2].queries) == "dosuno</s>"  # translated by the model
    assert [one[1:] for one in arguments] == [(0, 1), (), ("dos", 0), (0,)]


def test_attention_as_a_page_has_all_of_it(numbers_run, tmp_path):
    plot("attention", numbers_run, "--text", "one two", "--translation", "dos uno", "--output", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert all(f'"name": "{kind}' in page for kind in ("Encoder self", "Decoder self", "Cross"))


@pytest.mark.slow
def test_attention_of_an_export_is_that_of_its_detailed_signature(numbers_export, drawn, tmp_path):
    plot("attention", numbers_export, "--text", "one two", "--output", tmp_path / "a.png")
    ((_, (alignment, *_), _),) = drawn
    assert (alignment.name, "".join(alignment.keys)) == ("Alignment", "onetwo")


def test_options_of_a_beam_arrive(numbers_run, drawn, tmp_path):
    plot(
        "beam", numbers_run, "--text", "one", "--beam-size", 2, "--length-penalty", 0.0, "--output", tmp_path / "a.png"
    )
    ((name, (tree,), _),) = drawn
    assert (name, tree.beam_size, tree.length_penalty) == ("plot_beam", 2, 0.0)
    assert isinstance(tree, BeamTree)
    assert isinstance(tree.extensions[0], tracing.Extension)


def test_columns_of_a_run_arrive(numbers_run, drawn, tmp_path):
    plot("run", numbers_run, "--column", "loss", "--column", "bleu", "--output", tmp_path / "a.png")
    assert drawn == [("plot_runs", ([numbers_run], ["loss", "bleu"]), {})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("masks", "--output", "a.pdf"), r"--output must end with one of .png, .svg, .html. Received: a.pdf"),
        (("beam", "no-run", "--text", "one"), "no-run does not exist"),
        (("run", "no-run"), "no-run does not exist"),
        (("attention", "--text", "one"), "Name one model"),
        (
            ("attention", CLASSIFIER, "--text", "one"),
            "is a run of the task classify. Expected: a run of the task transl",
        ),
        (("beam", CLASSIFIER, "--text", "one"), "is a run of the task classify. Expected: a run of the task transl"),
        (
            ("attention", "--preset", "cmudict", "--text", "a", "--style", "heads", "--head", "1"),
            "--head chooses a single map",
        ),
        (("attention", "--preset", "cmudict", "--text", "a", "--query", "a"), "together with --style links"),
        (
            ("attention", "--preset", "cmudict", "--text", "a", "--style", "heads", "--layer", "0"),
            "--style heads draws every layer. Leave out --layer",
        ),
        *(
            (
                ("attention", "--preset", "cmudict", "--text", "a", "--output", "a.html", *option),
                "An HTML file has all kinds, layers and heads",
            )
            for option in (("--layer", "0"), ("--head", "1"), ("--kind", "encoder"))
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_drawn(arguments, message, drawn):
    answer = CliRunner().invoke(app, ["plot", *arguments])
    assert isinstance(answer.exception, ValueError | OSError)
    with pytest.raises(type(answer.exception), match=message):
        raise answer.exception
    assert not drawn


def test_an_export_has_no_beam_to_watch_and_reads_its_own_translations(numbers_export):
    for arguments, message in (
        (("beam",), "is an export, whose search cannot be watched"),
        (("attention", "--translation", "uno"), "is an export, which shows attention only for its own translations"),
        (("attention", "--kind", "encoder"), "is an export, which returns only its alignment"),
    ):
        answer = CliRunner().invoke(app, ["plot", arguments[0], str(numbers_export), "--text", "one", *arguments[1:]])
        assert message in str(answer.exception)
