"""`kformer compare`, and `kformer evaluate` with intervals and against another model."""

import json
import re
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


def test_the_lines_that_are_worse_most_come_first(numbers_run, other, tests):
    def losses(number):
        said = run("compare", numbers_run, other, "--test", tests[0], "--lines", number)
        return [float(loss) for loss in re.findall(r"short is worse \((-[0-9.]+)\):", said)]

    found = losses(24)
    assert len({*found}) > 3
    assert found == sorted(found)
    assert losses(2) == found[:2]


def test_lines_that_are_the_same_and_the_line_that_is_better_most_are_told(numbers_run, other, tests):
    """The first model writes two words at most."""
    said = run("compare", other, numbers_run, "--test", tests[0], "--test", tests[1], "--lines", 27)
    better = said.count(f"{numbers_run.name} is better (+")
    assert 20 <= better <= 24  # the two words may happen to be right
    assert f"{numbers_run.name} and short give the same translation of {27 - better} lines.\n" in said
    assert "is worse" not in said


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


@pytest.fixture(scope="module")
def tagged(numbers_run, other, tmp_path_factory):
    """Both models with the tags "six" and "five": a word that stands before each text."""
    folders = []
    for model in (numbers_run, other):
        folder = tmp_path_factory.mktemp("tagged") / model.name
        shutil.copytree(model, folder)
        run_folder = RunFolder(folder)
        run_folder.write_config(
            run_folder.decoding_file, run_folder.decoding_config().replace(tags="six five", beam_size=1)
        )
        folders.append(folder)
    return folders


@pytest.mark.slow
def test_each_test_set_may_have_its_tag(tagged, tmp_path):
    """The first model is right if the tags come before the texts: it writes them at the end."""
    sources = [source for source, _ in toy.corpus().test if len(source.split()) == 3][:6]
    files = []
    for word in ("seis", "cinco"):
        pairs = [(source, " ".join([toy.WORDS[one] for one in source.split()][::-1] + [word])) for source in sources]
        files += ["--test", write(tmp_path / f"{word}.tsv", pairs)]
    chosen = ["compare", *tagged, "--lines", 0, *files]

    def of_sets(*tags):
        rows = [line.split() for line in run(*chosen, *tags).splitlines()]
        by_set = {row[0]: float(row[1]) for row in rows if row[:1] in (["seis"], ["cinco"])}
        return [by_set["seis"], by_set["cinco"]]

    right = of_sets("--tag", "six", "--tag", "five")
    assert min(right) > 80
    exchanged = of_sets("--tag", "five", "--tag", "six")
    assert max(exchanged) < min(right)
    first, second = of_sets("--tag", "six")  # for both
    assert (first, second) == (right[0], exchanged[1])


def test_each_test_set_is_scored_as_its_script_is_written(numbers_run, other, tests, tmp_path):
    """A translation is much shorter than a reference only where each Chinese character is a word."""
    sentences = "他去了城里的市场。" * 5
    pairs = [(source, f"{target} {sentences}") for source, target in toy.corpus().test if len(source.split()) == 3]
    chinese = write(tmp_path / "zh.tsv", pairs[:6])
    alone = json.loads(run("evaluate", numbers_run, "--test", chinese).splitlines()[-1])
    assert "tok:zh" in alone["bleu_signature"]
    rows = run("compare", numbers_run, other, "--lines", 0, "--test", tests[0], "--test", chinese).splitlines()
    assert sum("splits texts of zh into words by sacreBLEU's tokenizer zh" in row for row in rows) == 1
    assert sum("splits texts" in row for row in rows) == 1
    assert next(row.split()[1] for row in rows if row.split()[:1] == ["zh"]) == f"{alone['bleu']:.3g}"


@pytest.mark.slow
def test_the_search_of_a_comparison_holds_for_all_models(numbers_run, other, tests):
    said = run("compare", numbers_run, other, "--test", tests[0], "--lines", 0, "--beam-size", 1)
    assert "decoding.beam_size" not in said  # which would be a difference
    assert "decoding.max_length" in said
    assert "reference: " not in said  # no line is shown
    assert "A greedy search (a beam of 1) has no length penalty" in refused(
        "compare", numbers_run, other, "--test", tests[0], "--beam-size", 1, "--length-penalty", 1
    )


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["four"], "The model does not know the tag 'four'. It has six, five."),
        (["six", "five"], "There must be one --tag, or one for each --test. Received: 2, and 1 of those."),
    ],
)
def test_tags_of_a_comparison_are_checked(tagged, tests, tags, message):
    given = [word for tag in tags for word in ("--tag", tag)]
    assert message in refused("compare", *tagged, "--test", tests[0], *given)


def test_intervals_are_of_translators():
    said = refused("evaluate", "--preset", "bible-books", "--corpus", "bible-books", "--intervals")
    assert "--intervals and --against are for translators. Received: a model of the task classify" in said
