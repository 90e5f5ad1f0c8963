"""`kformer train --alignments`: which options go together, and how early a user is told of those that do not."""

import pytest
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.cli.train_corpus import CorpusOptions
from kformer.data import AlignedPair
from kformer.data.corpus_facts import CorpusFacts


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "cache"))
    pairs = [(f"a{n} b{n}", f"x{n}") for n in range(40)]
    (tmp_path / "p.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    for side, name in enumerate(("p.en", "p.es")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    (tmp_path / "p.align").write_text("1-0\n" * len(pairs))
    (tmp_path / "bad.align").write_text("1-0\n" * 6 + "2-0\n" * (len(pairs) - 6))


def refused(*words, command="train"):
    output = ("--output", "run") if command == "train" else ()
    answer = CliRunner().invoke(app, [command, *output, *words])
    assert answer.exit_code != 0
    return " ".join(f"{answer.output} {answer.exception}".split())


@pytest.fixture
def unread(monkeypatch):
    """No text may be read."""

    def read(*parts):
        raise AssertionError("The corpus was read.")

    monkeypatch.setattr(CorpusFacts, "of", read)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--train", "p.tsv", "--guided-alignment", "0.1"], "the corpus has none. Give those of its training files"),
        (["--train", "p.tsv", "--alignments", "p.align"], "because guided_alignment is 0. Give it a weight"),
        (
            ["--corpus", "bible-en-es", "--alignments", "p.align", "--guided-alignment", "1"],
            "A corpus with a name has no alignments. Leave out --alignments, or give files",
        ),
        (
            ["--train", "p.tsv", "--alignments", "p.align", "--alignments", "", "--guided-alignment", "1"],
            "as many --alignments as corpora, in their order. Received: 2, and 1 of those",
        ),
        (
            ["--train", "p.tsv", "--alignments", "p.align", "--guided-alignment", "1", "--skip-bad-lines"],
            "With --alignments no line of a file may be left out",
        ),
        (
            ["--train", "p.tsv", "--task", "classify", "--alignments", "p.align", "--guided-alignment", "1"],
            "those of the task translate. Received: the task classify",
        ),
        (
            ["--train", "p.tsv", "--bpe-dropout", "0.1", "--alignments", "p.align", "--guided-alignment", "1"],
            "--bpe-dropout, --guided-alignment: guided_alignment does not go with bpe_dropout",
        ),
    ],
    ids=range(7),
)
def test_options_that_do_not_go_together_are_told_before_anything_is_read(words, told):
    assert told in refused(*words)


@pytest.mark.usefixtures("unread")
def test_prepare_refuses_them_as_early():
    assert "the corpus has none" in refused("--train", "p.tsv", "--guided-alignment", "0.1", command="prepare")


def test_a_bad_line_is_told_by_its_file_and_number():
    told = refused("--train", "p.tsv", "--alignments", "bad.align", "--guided-alignment", "1")
    assert "bad.align, line 7: the link 2-0 names a word that is not there" in told


def test_each_corpus_gets_its_own_alignments_also_from_a_configuration_file(tmp_path):
    given = {"train": ["p.tsv"], "train_source": ["p.en"], "train_target": ["p.es"]}
    (tmp_path / "c.yaml").write_text("data: {alignments: ['', p.align]}\n")
    files = {name: [tmp_path / value for value in values] for name, values in given.items()}
    options = CorpusOptions(**files, valid=[tmp_path / "p.tsv"]).with_file(tmp_path / "c.yaml")
    pairs = list(options.read().train)
    assert len(pairs) == 80
    assert [isinstance(pair, AlignedPair) for pair in pairs] == [False] * 40 + [True] * 40
    assert pairs[40].links == ((1, 0),)
