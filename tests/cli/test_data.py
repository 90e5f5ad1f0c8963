"""`kformer data`: what a corpus consists of, and what rules would leave out."""

import pytest
from typer.testing import CliRunner

from kformer.cli.main import app


def run(*arguments):
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("one two\tодин два\n" * 3 + "one\tone\n" + "a b c d e\tx y\n" + "blank\t \n" + "12 13\t14\n")
    return path


def test_what_is_kept_is_described_and_what_is_there_twice_is_counted(file):
    left_out, kept = run(file).split("What is kept:\n")
    assert left_out.startswith("3 of 7 pairs are left out\n")
    assert "2  28.57%  the same pair is there before\n" in left_out
    assert "1  14.29%  source and target are the same\n" in left_out
    assert "'one two' - 'один два'" in left_out
    lines = kept.splitlines()
    assert lines[0] == "4 pairs, 1 with a blank side"
    # one two, a b c d e, blank, 12 13: 2 + 5 + 1 + 2 words, 6 + 5 + 5 letters
    assert lines[1] == ("source: 10 words, 26 characters; 2.5 words on average, at most 5; letters: Latin 100.0%")
    # один два, x y, 14: 7 Cyrillic letters and 2 Latin ones
    assert "letters: Cyrillic 77.8%, Latin 22.2%" in kept
    assert [line.split() for line in lines[2:6]] == [
        ["1", "words", "█" * 20, "1"],
        ["2", "words", "█" * 40, "2"],
        ["3", "to", "4", "words", "0"],
        ["5", "to", "8", "words", "█" * 20, "1"],
    ]


def test_rules_arrive_in_place_of_the_usual_ones(file):
    assert run(file, "--max-ratio", 2.5).startswith("1 of 7 pairs are left out\n")
    assert run(file, "--min-letters", 0.5).startswith("1 of 7 pairs are left out\n")


def test_plain_text_parallel_files_and_named_fields_are_read(tmp_path, file):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("uno\ndos tres\n")
    (tmp_path / "c.csv").write_text("en,es\none,uno\n")
    assert "target: no text" in run(tmp_path / "a.txt", "--plain-text")
    assert "target: 3 words" in run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert "1 pair, 0 with a blank side" in run(tmp_path / "c.csv", "--fields", "en,es")
    result = CliRunner().invoke(app, ["data", *map(str, (file, file, file))])
    assert "data takes one file of pairs, or two parallel files" in str(result.exception)
    result = CliRunner().invoke(app, ["data", str(file), str(file), "--fields", "a,b"])
    assert "without --columns, --fields" in str(result.exception)


def test_pairs_of_a_test_set_are_counted_and_left_out(tmp_path, file):
    test = tmp_path / "test.csv"
    test.write_text("source,target\none two,один два\na b c d e,x\nnothing,x\n")
    said = run(file, "--without", test)
    assert said.startswith("4 of 7 pairs are left out\n")
    assert f"3  42.86%  the pair is also in {test}\n" in said
    assert f"1  14.29%  the source is also in {test}\n" in said
    assert "What is kept:\n3 pairs, 1 with a blank side" in said
