"""Beam trees, length penalties, training curves and confusions: what they show is read back from the figures."""

import xml.etree.ElementTree

import numpy as np
import pytest
from figures import image, lines, titles

from kformer import visualization
from kformer.config import TrainingConfig, TransformerConfig
from kformer.decoding.tracing import START, Extension
from kformer.evaluation import Comparison
from kformer.runs.folder import RunFolder
from kformer.text.beam_tree import BeamTree

TREE = BeamTree(
    [
        Extension(START, 5, 1, -0.5, -0.5, "kept"),
        Extension(START, 6, 1, -0.9, -0.9, "kept"),
        Extension(START, 7, 1, -2.0, -2.0, "pruned"),
        Extension(1, 2, 2, -1.0, -0.75, "finished"),
        Extension(0, 8, 2, -1.5, -1.25, "kept"),
        Extension(4, 2, 3, -1.75, -1.5, "finished"),
    ],
    ["la", "una", "el", "</s>", "casa", "</s>"],
    beam_size=2,
    length_penalty=0.6,
)


def test_a_tree_knows_its_best_path():
    assert TREE.best == 3
    assert [TREE.tokens[number] for number in TREE.path(5)] == ["la", "casa", "</s>"]
    assert TREE._replace(extensions=TREE.extensions[:3]).best is None


def test_a_beam_is_drawn_with_tokens_scores_and_a_bold_best_path():
    (axes,) = visualization.plot_beam(TREE, max_steps=3).axes
    texts = {text.get_text(): text for text in axes.texts}
    assert {"la", "una", "el", "casa", "</s>", "-0.75", "-1.25"} <= {*texts}
    assert texts["una"].get_fontweight() == "bold"
    assert texts["casa"].get_fontweight() == "normal"
    edges = [line for line in axes.lines if len(line.get_xdata())]
    assert len(edges) == len(TREE.extensions)
    assert [line.get_linewidth() > 2 for line in edges] == [False, True, False, True, False, False]
    assert {*lines(axes)} >= {"goes on", "has ended", "is dropped"}
    assert axes.get_title() == "Beam search: 2 beams, length penalty 0.6"
    for steps, extensions in ((1, 3), (None, 5)):  # by default, up to the end of the best hypothesis: two steps
        shown = visualization.plot_beam(TREE, max_steps=steps).axes[0]
        assert len([line for line in shown.lines if len(line.get_xdata())]) == extensions


def test_only_hypotheses_that_go_on_after_the_last_drawn_step_have_dots():
    def drawn(steps):
        return {text.get_text() for text in visualization.plot_beam(TREE, max_steps=steps).axes[0].texts}

    assert {"la ...", "una ...", "el"} <= drawn(1)
    assert {"la", "una", "casa ...", "</s>"} <= drawn(2)
    assert not any("..." in text for text in drawn(3))


def test_lines_to_a_long_token_end_before_it():
    long = TREE._replace(tokens=["la", "una", "el", "</s>", "indistinguible", "</s>"])
    ends = [
        line.get_xdata()[1]
        for tree in (TREE, long)
        for line in visualization.plot_beam(tree, max_steps=3).axes[0].lines
        if len(line.get_xdata()) and 1 < line.get_xdata()[1] < 2
    ]
    short_end, end_before_casa, long_end, end_before_indistinguible = ends
    assert end_before_indistinguible < 1.6 < end_before_casa <= short_end
    assert long_end > 1.6


def test_curves_that_begin_high_are_cut_off_and_say_so():
    log = {"step": [1, 2, 3, 4], "perplexity": [9000.0, 5.0, 4.0, 3.0], "loss": [4.0, 3.0, 2.0, 1.0]}
    loss, perplexity = visualization.plot_runs({"run": log}).axes
    assert perplexity.get_ylim()[1] < 100
    assert perplexity.get_ylabel() == "perplexity (larger values are cut off)"
    assert loss.get_ylabel() == "loss a token"


def test_the_loss_is_that_by_which_the_best_weights_are_kept(tmp_path):
    """Keras's own is the mean over batches, with further terms in training."""
    log = {"step": [1, 2], "loss": [9.0, 8.0], "token_loss": [4.0, 3.0], "val_token_loss": [5.0, 2.0]}
    (axes,) = visualization.plot_runs({"run": log}).axes
    assert axes.get_title() == "loss a token"
    assert [*lines(axes)["training"][1]] == [4.0, 3.0]
    assert [*lines(visualization.plot_runs({"run": log}, ["loss"]).axes[0])["training"][1]] == [9.0, 8.0]


@pytest.mark.parametrize("text", ["$$", "$_$", "$NUM$", "a\x01b"])
def test_dollars_and_control_characters_are_drawn_as_they_are(text, tmp_path):
    """They are no formulas, which would end with an error, and an SVG of them is XML."""
    figures = {
        "beam": visualization.plot_beam(TREE._replace(tokens=[text, "una", "el", "</s>", text, "</s>"])),
        "runs": visualization.plot_runs({text: {"step": [1], "loss": [1.0]}, "b": {"step": [1], "loss": [1.0]}}),
        "confusion": visualization.plot_confusion([f"{text} b"], [f"b {text}"]),
        "comparison": visualization.plot_comparison(Comparison(["a"], [["b"]], {text: ["b"], "c": ["c"]})),
        "attention": visualization.plot_attention(
            visualization.AttentionMap([[0.5, 0.5]], queries=[text], keys=[text, "b"])
        ),
        "links": visualization.plot_attention_links(
            visualization.AttentionMap([[0.5, 0.5]], queries=[text], keys=[text, "b"])
        ),
    }
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.svg")
        xml.etree.ElementTree.parse(tmp_path / f"{name}.svg")


def test_a_legend_has_names_that_begin_with_an_underscore():
    log = {"step": [1], "loss": [1.0]}
    shown = visualization.plot_runs({"_base": log, "b": log}).axes[0].get_legend().get_texts()
    assert [text.get_text() for text in shown] == [" _base, training", "b, training"]
    compared = visualization.plot_comparison(Comparison(["a"], [["b"]], {"_one": ["b"], "two": ["c"]}))
    assert [text.get_text() for text in compared.axes[-1].get_legend().get_texts()] == [" _one", "two"]


def test_a_length_penalty_divides_the_log_probability():
    (axes,) = visualization.plot_length_penalties([7, 1], [-4.0, -3.0], penalties=[0.0, 1.0]).axes
    shown = lines(axes)
    lengths, plain = shown["without a length penalty"]
    assert lengths.tolist() == [7, 1]
    assert plain.tolist() == [-4.0, -3.0]
    np.testing.assert_allclose(shown["length penalty 1"][1], [-4.0 / 2, -3.0])  # (5 + 7) / 6 = 2


def test_curves_of_runs_are_training_and_validation_over_updates():
    logs = {
        "a": {"step": [10, 20], "loss": [3.0, 2.0], "val_loss": [3.5, 2.5], "val_bleu": [float("nan"), 7.0]},
        "b": {"step": [10, 20, 30], "loss": [4.0, 3.0, 1.0]},
    }
    figure = visualization.plot_runs(logs)
    assert titles(figure) == ["loss a token", "BLEU of translations"]
    loss, bleu = map(lines, figure.axes)
    assert {*loss} == {"a, training", "a, validation", "b, training"}
    assert [*loss["b, training"][0]] == [10, 20, 30]
    assert [*loss["a, validation"][1]] == [3.5, 2.5]
    assert ([*bleu["a, validation"][0]], [*bleu["a, validation"][1]]) == ([20], [7.0])


def test_the_log_of_a_run_folder_is_read(tmp_path):
    run, folder = tmp_path / "run", RunFolder(tmp_path / "run")
    run.mkdir()
    folder.write_config(folder.transformer_file, TransformerConfig())
    folder.write_config(folder.training_file, TrainingConfig())
    folder.note_files()
    log = folder.log_file
    with pytest.raises(FileNotFoundError, match=r"run has no log.csv: no epoch has ended yet"):
        visualization.plot_runs(run)
    log.write_text("epoch,step,loss,val_loss\n0,10,3.0,\n1,20,2.0,2.5\n2,3")  # the last row is half written
    shown = lines(visualization.plot_runs(run).axes[0])
    assert [*shown["training"][1]] == [3.0, 2.0]
    assert ([*shown["validation"][0]], [*shown["validation"][1]]) == ([20], [2.5])
    with pytest.raises(ValueError, match="No run has the column los. The columns are: epoch, step, loss"):
        visualization.plot_runs([run], ["los"])
    log.write_text("epoch,step,loss\n0,10,x\n")
    with pytest.raises(ValueError, match=r"log.csv is damaged: could not convert"):
        visualization.plot_runs(run)


def test_a_confusion_counts_what_each_symbol_became():
    references = ["K AE T", "K AE T", "D AO G", "K AE T"]
    hypotheses = ["K AE T", "G AE T", "D AO", "K AE T S"]
    (axes, _) = visualization.plot_confusion(references, hypotheses).axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    columns = [label.get_text() for label in axes.get_xticklabels()]
    assert columns == ["G", "K", "S", "–"]
    assert rows == ["G  0%", "K  67%", "S  0%", "–"]
    shares = np.ma.filled(image(axes), np.nan)
    expected = [[np.nan, 0, 0, 1], [1 / 3, np.nan, 0, 0], [0, 0, np.nan, 0], [0, 0, 1, np.nan]]
    np.testing.assert_allclose(shares, expected)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: visualization.plot_beam(TREE, max_steps=0), "max_steps of at least 1"),
        (lambda: visualization.plot_length_penalties([1, 2], [-1.0]), "a log probability for each"),
        (lambda: visualization.plot_length_penalties([0], [-1.0]), "lengths from 1 up"),
        (lambda: visualization.plot_length_penalties(penalties=[-1.0]), "must be at least 0"),
        (lambda: visualization.plot_runs({}), "at least one run"),
        (lambda: visualization.plot_runs({"a": {"step": [], "loss": []}}), "The log of a has no updates yet"),
        (lambda: visualization.plot_confusion(["a"], []), "1 references, 0 hypotheses"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_a_comparison_shows_scores_with_their_intervals_and_lengths():
    made = {"one": ["a b c d", "e", "i j k l"], "two": ["a b c d", "e f g h", "i j k l"]}
    comparison = Comparison(["1", "2", "3 4"], [["a b c d"], ["e f g h"], ["i j k l"]], made)
    figure = visualization.plot_comparison(comparison)
    assert titles(figure) == ["BLEU", "chrF", "TER", "BLEU by the length of the source"]
    for axes, scores in zip(figure.axes, comparison.scores.values(), strict=False):
        shown = [(bar.lines[0].get_ydata()[0], bar.lines[2][0].get_segments()[0][:, 1]) for bar in axes.containers]
        for (value, ends), score in zip(shown, scores.values(), strict=True):
            assert value == pytest.approx(score.value)
            np.testing.assert_allclose(ends, [score.value - score.interval, score.value + score.interval])
    by_length = comparison.by_length()
    for line, name in zip(figure.axes[-1].get_lines(), made, strict=True):
        assert line.get_label() == name
        assert line.get_ydata().tolist() == [scores[name] for scores in by_length.values()]
