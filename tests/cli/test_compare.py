"""`kformer compare`, and `kformer evaluate` with intervals and against another model."""

import json
import shutil

import pytest
import toy
from commands import refused, run

from kformer.runs.folder import RunFolder

pytestmark = pytest.mark.tensorflow_only


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


@pytest.fixture(scope="module")
def other(numbers_run, tmp_path_factory):
    """The same model with a search that writes a token at most."""
    folder = tmp_path_factory.mktemp("models") / "short"
    shutil.copytree(numbers_run, folder)
    run_folder = RunFolder(folder)
    search = run_folder.decoding_config().replace(max_length=3)
    run_folder.write_config(run_folder.decoding_file, search)
    return folder


@pytest.fixture
def tests(tmp_path):
    """24 long lines, and 3 short ones."""
    pairs = [pair for part in (toy.corpus().test, toy.corpus().train) for pair in part]
    long = [pair for pair in pairs if len(pair[0].split()) > 2][:24]
    return write(tmp_path / "long.tsv", long), write(
        tmp_path / "short.tsv", [pair for pair in pairs if len(pair[0].split()) == 2][:3]
    )


def test_settings_scores_lengths_and_lines_are_shown(numbers_run, other, tests, tmp_path):
    picture = tmp_path / "a.svg"
    said = run("compare", numbers_run, other, "--test", tests[0], "--test", tests[1], "--lines", 1, "--plot", picture)
    assert "decoding.max_length" in said
    assert "transformer.d_model" not in said
    assert "Scores of 27 lines" in said
    rows = [line.split() for line in said.splitlines()]
    bleu = next(row for row in rows if row[:1] == ["BLEU"])
    assert float(bleu[1]) > 60 > float(bleu[4])
    assert "(p" in bleu
    assert "BLEU of each test set" in said
    assert "BLEU by the length of the source" in said
    assert "short is worse (-" in said
    assert said.count("reference: ") == 1
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}"], "compare needs two or more models. Received: 1."),
        (["{run}", "{run}"], "The models must differ."),
        (["{run}", "nowhere"], "nowhere does not exist"),
        (["{run}", "{other}"], "There must be one test set."),
        (["{run}", "{other}", "--plot", "a.gif"], "--plot must end with one of .png, .svg, .html"),
        (["{run}", "{other}", "--bleu-tokenizer", "14a"], "must be one of 13a"),
    ],
)
def test_what_cannot_be_compared_is_told_at_once(numbers_run, other, arguments, message):
    words = [word.format(run=numbers_run, other=other) for word in arguments]
    tests = [] if "test set" in message else ["--corpus", "bible-en-es"]
    assert message in refused("compare", *words, *tests)


def test_a_score_has_an_interval_and_another_model_a_p_value(numbers_run, other, tests):
    plain = json.loads(run("evaluate", numbers_run, "--test", tests[0]).splitlines()[-1])
    surely = json.loads(run("evaluate", numbers_run, "--test", tests[0], "--intervals").splitlines()[-1])
    assert {name: surely[name] for name in plain} == pytest.approx(plain)
    assert {"bleu_interval", "chrf_interval", "ter", "ter_interval"} <= {*surely}
    both = json.loads(run("evaluate", numbers_run, "--test", tests[0], "--against", other).splitlines()[-1])
    assert both["against"]["model"] == str(other)
    assert both["against"]["bleu"] < both["bleu"]
    assert both["against"]["bleu_p_value"] < 0.05
    assert {name: both[name] for name in plain} == pytest.approx(plain)


def test_blank_targets_are_told_with_intervals_too(numbers_run, tmp_path):
    pairs = write(tmp_path / "pairs.tsv", [("one two three four", "cuatro tres dos uno"), ("one", " ")])
    for options in ([], ["--intervals"]):
        assert "left out, because the target is blank: 1 pair." in run(
            "evaluate", numbers_run, "--test", pairs, *options
        )


def test_intervals_are_of_translators():
    said = refused("evaluate", "--preset", "bible-books", "--corpus", "bible-books", "--intervals")
    assert "--intervals and --against are for translators. Received: a model of the task classify" in said
