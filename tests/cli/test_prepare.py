"""`kformer prepare`, and `kformer train` on what it prepared."""

import json
import os
import pathlib
import re
import threading

import pytest
import toy
from commands import refused, run

from kformer.cli.train_corpus import CorpusOptions

pytestmark = pytest.mark.tensorflow_only

SMALL = ["--num-encoder-layers", 1, "--num-decoder-layers", 1]
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


def test_training_begins_and_goes_on_without_the_texts(tmp_path, file, unread):
    corpus = ["--train", file, "--cache", tmp_path / "cache"]
    said = run("prepare", *corpus, *SETTINGS)
    assert f"{file} train: 1,327 pairs kept" in said
    assert f"{file} valid: 27 pairs kept" in said
    assert re.search(rf"have (\d+) source and \1 target tokens. All is in {tmp_path / 'cache'}", said)
    assert [*(tmp_path / "cache").glob("ids-*/shards.json")]
    unread()
    with toy.untraced():
        begun = run("train", *corpus, *SETTINGS, *SMALL, "--max-steps", 2, "--output", tmp_path / "run")
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


def test_a_test_set_is_left_out_and_another_one_makes_another_corpus(tmp_path, file):
    [(first, target), (second, _), *_] = toy.corpus().train
    chosen = ["prepare", "--train", file, *SETTINGS, "--cache", tmp_path / "cache"]
    for number, line in enumerate([f"{first}\t{target}\n", f"{first}\t{target}\n{second}\tx\n"], 1):
        (tmp_path / "test.tsv").write_text(line)
        said = run(*chosen, "--without", tmp_path / "test.tsv")
        assert f"{number} of 1,354 pairs are left out" in said
        assert "the pair is also in" in said
        assert ("the source is also in" in said) == (number == 2)
    assert "is left out" not in run(*chosen)
    assert len([*(tmp_path / "cache").glob("texts-*/")]) == 3


def test_corpora_that_are_held_are_refused(tmp_path):
    assert "prepare is for files: --train PAIRS.tsv" in refused("prepare", "--corpus", "cmudict")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["one\tuno\ntwo\tdos\n" * 9])
    writer.start()
    assert "what comes through a pipe, is held in memory" in refused("prepare", "--train", tmp_path / "pipe")
    writer.join()


def test_bad_lines_of_parallel_pipes_cannot_be_skipped(tmp_path):
    pipes = tmp_path / "en", tmp_path / "es"
    for pipe in pipes:
        os.mkfifo(pipe)
    source, target = pipes
    given = ("train", "--output", tmp_path / "run", "--train-source", source, "--train-target", target)
    assert "takes parallel files from a disk" in refused(*given, "--skip-bad-lines")


# ---- several corpora


@pytest.fixture
def both(tmp_path, file):
    """The options that train both directions of a file."""
    other = tmp_path / "dev.tsv"
    other.write_text("one two\tdos uno\ntwo three\ttres dos\n")
    columns = ["--columns", "source,target", "--columns", "target,source"]
    return [
        "--train",
        file,
        "--train",
        file,
        *columns,
        "--tag",
        "<2es>",
        "--tag",
        "<2en>",
        "--valid",
        other,
        "--valid",
        other,
    ]


SUBWORDS = ["--size", "tiny", "--vocab-size", 330, "--max-length", 64, "--max-steps", 1]


def test_each_corpus_has_its_file_its_columns_and_its_tag(tmp_path, both):
    with toy.untraced():
        said = run("train", *both, *SUBWORDS, *SMALL, "--corpus-weights", "1 3", "--output", tmp_path / "run")
    assert "dev.tsv valid: 4 pairs kept" in said
    assert "over each corpus: <2es> numbers 1, <2en> numbers 3" in said
    samples = (tmp_path / "run" / "samples.json").read_text()
    assert all(source in samples for source in ("<2es> one two", "<2en> dos uno"))


def test_an_option_wins_over_the_file_of_settings(tmp_path):
    (tmp_path / "settings.yaml").write_text("data: {train: of-file.tsv, valid: [valid.tsv], tag: ['<a>']}\n")
    found = CorpusOptions(train=[pathlib.Path("given.tsv")], tag=["<b>"]).with_file(tmp_path / "settings.yaml")
    assert (found.train, found.tag) == ([pathlib.Path("given.tsv")], ["<b>"])
    assert found.valid == [pathlib.Path("valid.tsv")]


def test_a_file_of_settings_chooses_the_corpora_and_options_win(tmp_path, both, file):
    names = {"--train": "train", "--columns": "columns", "--tag": "tag", "--valid": "valid"}
    values = {}
    for option, value in zip(both[::2], both[1::2], strict=True):
        values.setdefault(names[option], []).append(str(value))
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"data": values, "training": {"corpus_weights": "1 3"}}))
    said = run("prepare", "--config", settings, *SUBWORDS[:-2])
    assert "dev.tsv valid: 4 pairs kept" in said
    settings.write_text(json.dumps({"data": {**values, "inline_tags": "drop", "cache": str(tmp_path / "kept")}}))
    said = run("prepare", "--config", settings, "--tag", "<a>", "--tag", "<b>", *SUBWORDS[:-2])
    assert f"All is in {tmp_path / 'kept'}" in said
    assert len([*(tmp_path / "kept").glob("texts-*/")]) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"trains": "a"}, "data has the unknown field trains. .* Did you mean 'train'"),
        ({"skip_bad_lines": "yes"}, "data: skip_bad_lines must be true or false. Received: 'yes'"),
        ({"train": 3}, "data: train must be a text, or a list of texts. Received: 3"),
        ({"train": []}, r"data: train must be a text, or a list of texts. Received: \[\]"),
        ({"cache": ["a", "b"]}, "data: cache must be a text. Received:"),
    ],
)
def test_a_file_of_settings_with_other_fields_is_refused(tmp_path, data, message):
    (tmp_path / "settings.json").write_text(json.dumps({"data": data}))
    assert re.search(message, refused("prepare", "--config", tmp_path / "settings.json"))


def test_files_of_several_forms_are_one_corpus(tmp_path, file):
    (tmp_path / "table.csv").write_text("English,Spanish\n" + 30 * "one two,dos uno\n")
    (tmp_path / "a.en").write_text(20 * "two three\n")
    (tmp_path / "a.es").write_text(20 * "tres dos\n")
    (tmp_path / "dev.csv").write_text("Spanish,English\n" + 7 * "uno,one\n")
    (tmp_path / "dev.en").write_text(5 * "two\n")
    (tmp_path / "dev.es").write_text(5 * "dos\n")
    (tmp_path / "more.tsv").write_text(11 * "one three\tuno tres\n")
    (tmp_path / "more_dev.tsv").write_text(3 * "three\ttres\n")
    files = ["--train", tmp_path / "table.csv", "--fields", "English,Spanish"]
    files += ["--train", tmp_path / "more.tsv", "--fields", ""]
    files += ["--train-source", tmp_path / "a.en", "--train-target", tmp_path / "a.es"]
    valid = ["--valid", tmp_path / "dev.csv", "--valid", tmp_path / "more_dev.tsv"]
    valid += ["--valid-source", tmp_path / "dev.en", "--valid-target", tmp_path / "dev.es"]
    tags = ["--tag", "<a>", "--tag", "<b>", "--tag", "<c>"]
    with toy.untraced():
        said = run("train", *files, *valid, *tags, *SUBWORDS, *SMALL, "--output", tmp_path / "run")
    assert "train: 61 pairs kept" in said
    assert "valid: 15 pairs kept" in said
    samples = (tmp_path / "run" / "samples.json").read_text()
    assert all(source in samples for source in ("<a> one", "<b> three", "<c> two"))
    said = refused("train", *files, *valid[2:], *tags, *SUBWORDS, "--output", tmp_path / "other")
    assert "as many --valid as --train" in said
    assert "Received: 1 --valid and 2 --train" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tag", "<2es>"], "as many --tag as corpora, in their order. Received: 1, and 2 of those"),
        (["--valid", "a", "--valid", "b", "--valid", "c"], "at most as many --valid as corpora: each belongs to the"),
        (["--columns", "a", "--columns", "b", "--columns", "c"], "as many --columns as --train, in their order."),
        (["--train-source", "a", "--train-target", "b", *3 * ["--fields", "c"]], "Received: 3, and 2 of those"),
        (
            ["--tag", "<2 es>", "--tag", "<2en>"],
            "A tag is one word without white space, such as <2es>. Received: '<2 es>'",
        ),
        (["--corpus-weights", "1 2 3"], "corpus_weights must have a number for each of several corpora. Received: 3"),
        (["--corpus-weights", "1 -2"], "--corpus-weights: corpus_weights must be numbers above 0"),
        (["--corpus-weights", "1 x"], "corpus_weights must be numbers above 0"),
        (["--corpus-temperature", "0.5"], "corpus_temperature must be a finite number of at least 1. Received: 0.5"),
    ],
)
def test_options_that_do_not_fit_the_corpora_are_refused(tmp_path, file, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with toy.untraced():
        said = refused("train", "--train", file, "--train", file, *options, *SUBWORDS, "--output", tmp_path / "run")
    assert message in said
    assert not (tmp_path / "run").exists()


def test_synthetic_pairs_have_a_tag_and_no_file_of_validation(tmp_path, file):
    made, dev = tmp_path / "made.tsv", tmp_path / "dev.tsv"
    made.write_text("eno owt\tdos uno\nowt\tdos\n")
    dev.write_text("one two\tdos uno\ntwo three\ttres dos\n")
    files = ["--train", file, "--train", made, "--tag", "", "--tag", "<bt>", "--cache", tmp_path / "cache"]
    with toy.untraced():
        run("train", *files, "--valid", dev, *SUBWORDS, *SMALL, "--output", tmp_path / "run")
    search = json.loads((tmp_path / "run" / "decoding.json").read_text())
    assert (search["tags"], search["untagged"]) == ("<bt>", True)
    assert "<bt>" not in (tmp_path / "run" / "samples.json").read_text()
    said = run("prepare", *files, *SUBWORDS[:-2])  # without a file: of the real pairs alone
    assert re.search(r"valid: \d+ pairs kept", said)
    [held_out] = [
        folder / "held_out.json" for folder in (tmp_path / "cache").glob("texts-*/") if [*folder.glob("held*")]
    ]
    assert not {source for source, _ in json.loads(held_out.read_text())} & {
        "eno owt",
        "owt",
        "<bt> owt",
        "<bt> eno owt",
    }


def test_a_tag_needs_a_file(tmp_path):
    assert "A corpus with a name has no tag." in refused("prepare", "--corpus", "cmudict", "--tag", "<a>")


def test_pipes_are_not_joined(tmp_path, file):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_text("one\tuno\ntwo\tdos\n"), daemon=True).start()
    assert "must be files that can be read again. Received: " in refused("prepare", "--train", file, "--train", pipe)


@pytest.mark.slow
def test_lines_are_translated_with_a_tag_that_the_model_knows(tmp_path, both):
    with toy.untraced():
        run("train", *both, *SUBWORDS, *SMALL, "--output", tmp_path / "run")
    (tmp_path / "lines").write_text("one two\n\nthree\n")
    (tmp_path / "tagged").write_text("<2en> one two\n\n<2en> three\n")
    translate = ["translate", tmp_path / "run", "--beam-size", 1]
    expected = run(*translate, "--input", tmp_path / "tagged")
    assert run(*translate, "--input", tmp_path / "lines", "--tag", "<2en>") == expected
    said = refused(*translate, "--input", tmp_path / "lines", "--tag", "<2e>")
    assert "does not know the tag '<2e>'. It has <2es>, <2en>. Leave out --tag, or choose one of these. Did you" in said
    (tmp_path / "pairs").write_text("uno\tone\ndos\ttwo\n")
    (tmp_path / "tagged").write_text("<2en> uno\tone\n<2en> dos\ttwo\n")
    evaluate = ["evaluate", tmp_path / "run", "--beam-size", 1, "--test"]
    assert run(*evaluate, tmp_path / "pairs", "--tag", "<2en>") == run(*evaluate, tmp_path / "tagged")
    assert "does not know the tag" in refused(*evaluate, tmp_path / "pairs", "--tag", "<2fr>")
    assert "does not know the tag '<a>'. It has none" in refused(
        "translate", "--preset", "cmudict", "--tag", "<a>", "--input", tmp_path / "lines"
    )


def test_bad_lines_are_left_out_on_demand(tmp_path, file):
    with file.open("a") as opened:
        opened.write("no tab here\n")
    assert "1 column where 2 were expected" in refused("prepare", "--train", file, *SUBWORDS[:-2])
    said = run("prepare", "--train", file, "--skip-bad-lines", *SUBWORDS[:-2])
    assert "1 line cannot be read and is left out" in said
    (tmp_path / "settings.json").write_text(json.dumps({"data": {"train": str(file), "skip_bad_lines": True}}))
    assert "is left out" in run("prepare", "--config", tmp_path / "settings.json", *SUBWORDS[:-2])
    said = run("data", file, "--skip-bad-lines")
    assert "1 line cannot be read and is left out" in said
    assert "1 column where 2 were expected" in refused("data", file)
