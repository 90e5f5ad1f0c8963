"""`kformer prepare`, and `kformer train` on what it prepared."""

import os
import re
import threading

import pytest
import toy
from typer.testing import CliRunner

from kformer.cli.main import app

pytestmark = pytest.mark.tensorflow_only

SETTINGS = ["--size", "tiny", "--tokenizer", "words", "--vocab-size", 60, "--max-length", 9]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "numbers.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in toy.corpus().train))
    return path


@pytest.fixture
def unread(monkeypatch):
    """From its call on, the lines of text files cannot be read."""

    def refuse(lines):
        raise AssertionError(f"{lines.path} was read again.")

    return lambda: monkeypatch.setattr("kformer.data.sources.lines.TextLines.open", refuse)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    return str(result.exception)


def test_training_begins_and_goes_on_without_the_texts(tmp_path, file, unread):
    corpus = ["--train", file, "--cache", tmp_path / "cache"]
    said = run("prepare", *corpus, *SETTINGS)
    assert f"{file} train: 1,327 pairs kept" in said
    assert f"{file} valid: 27 pairs kept" in said
    assert re.search(r"have (\d+) source and \1 target tokens. All is in ", said)
    unread()
    with toy.untraced():
        begun = run("train", *corpus, *SETTINGS, "--max-steps", 2, "--output", tmp_path / "run")
        assert f"{file} train: 1,327 pairs kept" in begun
        run("train", *corpus, "--max-steps", 3, "--output", tmp_path / "run", "--resume")


def test_the_cache_is_by_default_that_of_the_user(tmp_path, file, unread, monkeypatch):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "mine"))
    run("prepare", "--train", file, *SETTINGS)
    unread()
    assert str(tmp_path / "mine" / "corpora") in run("prepare", "--train", file, *SETTINGS)


def test_what_is_learned_is_chosen_as_for_train(tmp_path, file):
    (tmp_path / "config.yaml").write_text("training:\n  max_length: 4\n")
    chosen = ["--train", file, "--size", "tiny", "--tokenizer", "words", "--config", tmp_path / "config.yaml"]
    assert "longer than 4 tokens" in run("prepare", *chosen)
    assert "longer than 3 tokens" in run("prepare", *chosen, "--max-length", 3)  # an option wins


def test_labels_are_prepared_too(tmp_path, unread):
    file, others = tmp_path / "labels.tsv", tmp_path / "valid.tsv"
    file.write_text("id\tone two\tshort\n" * 9 + "id\tone two three\tlong\n" * 9)
    others.write_text("id\tthree\tshort\n" * 3)
    corpus = ["--train", file, "--valid", others, "--columns", "id,source,target", "--task", "classify"]
    said = run("prepare", *corpus, *SETTINGS[:-2])
    assert "labels.tsv train: 18 pairs kept" in said
    assert "valid.tsv valid: 3 pairs kept" in said
    assert "and 6 target tokens" in said


@pytest.mark.parametrize(
    ("rule", "left_out"),
    [
        ([], 0),
        (["--max-ratio", 2], 1),  # the first pair
        (["--max-characters", 9], 2),  # the first and the second
        (["--min-letters", 0.5], 1),  # the third
        (["--source-script", "Latin"], 1),  # the second
        (["--target-script", "Greek"], 4),  # all but the second, and the third, which has no letters
        (["--drop-copies"], 2),  # the third and the fourth
        (["--duplicates", "pairs"], 1),  # the last
        (["--duplicates", "sources"], 2),  # the last two, whose source is that of the fourth
    ],
)
def test_each_rule_of_cleaning_arrives(tmp_path, rule, left_out):
    pairs = ["two\tdosdosdosdos", "αααααααααα\tββββββ", "12 3\t12 3", "one\tone", "one\tuno", "one\tuno"]
    (tmp_path / "pairs.tsv").write_text("".join(f"{pair}\n" for pair in pairs))
    (tmp_path / "valid.tsv").write_text("x\ty\n")
    files = ["--train", tmp_path / "pairs.tsv", "--valid", tmp_path / "valid.tsv"]
    said = run("prepare", *files, *SETTINGS[:-2], "--cache", tmp_path / "cache", *rule)
    assert f"train: {6 - left_out} pairs kept" in said
    assert (f"{left_out} of 6 pairs are left out" in said) == (left_out > 0)


def test_what_is_left_out_and_what_overlaps_is_told(tmp_path, file):
    valid = tmp_path / "valid.tsv"
    valid.write_text(f"{toy.corpus().train[0][0]}\tx\n" * 20)
    chosen = ["--train", file, "--valid", valid, "--max-characters", 20, *SETTINGS]
    said = run("prepare", *chosen, "--cache", tmp_path / "cache")
    assert re.search(r"\n +[\d,]+ +\d+\.\d\d%  a side has more than 20 characters\n", said)
    assert "warning: 1 training pair of" in said
    assert "Validate on other texts" in said


def test_corpora_that_are_held_are_refused(tmp_path):
    assert "prepare is for files: --train PAIRS.tsv" in refused("prepare", "--corpus", "cmudict")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["one\tuno\ntwo\tdos\n" * 9])
    writer.start()
    assert "what comes through a pipe, is held in memory" in refused("prepare", "--train", tmp_path / "pipe")
    writer.join()
