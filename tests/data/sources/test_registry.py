"""A source is chosen by the suffix of a file, or by the name of a corpus; a new one is registered by one line."""

import gzip
import re

import pytest
import toy

from kformer.cli.train_corpus import CorpusOptions
from kformer.data import Corpus, TextFile, TsvFile, load_corpus, open_pairs
from kformer.data.sources import registry
from kformer.runs.folder import RunFolder
from kformer.training.new_run import start_run


@pytest.mark.parametrize("ending", ["", ".gz", ".GZ"])
@pytest.mark.parametrize(
    ("suffix", "pairs"), [(".tsv", [("one", "uno")]), (".TSV", [("one", "uno")]), (".txt", [("one\tuno", "")])]
)
def test_the_suffix_says_how_a_file_is_read(suffix, pairs, ending, tmp_path):
    content = b"one\tuno\n"
    (tmp_path / f"a.es{suffix}{ending}").write_bytes(gzip.compress(content) if ending else content)
    assert list(open_pairs(tmp_path / f"a.es{suffix}{ending}")) == pairs


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.de", "a", "a.gz"])
def test_the_lines_of_a_file_are_what_the_caller_says(name, tmp_path):
    content = b"one\tuno\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "a.gz" else content)
    assert list(open_pairs(tmp_path / name, lines=TsvFile)) == [("one", "uno")]
    assert list(open_pairs(tmp_path / name, lines=TextFile)) == [("one\tuno", "")]


@pytest.mark.parametrize(("name", "suffix"), [("a.docx", ".docx"), ("a.docx.xz", ".docx"), ("a", "")])
def test_a_suffix_that_no_source_has(name, suffix, tmp_path):
    message = f"{name}: no source reads files with the suffix {suffix!r}. Known suffixes: .tsv, .txt, .csv, "
    with pytest.raises(ValueError, match=re.escape(message)):
        open_pairs(tmp_path / name)


class BlockFile:
    """A toy format: pairs stand in blocks, source, target and an empty line, and are read from the file each time."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        blocks = self.path.read_text().split("\n\n")
        return (tuple(block.split("\n")) for block in blocks if block)

    def __len__(self):
        return sum(1 for _ in self)


@pytest.fixture
def block_files(monkeypatch, tmp_path):
    """The toy corpus as files of the toy format, which is registered by one line."""
    monkeypatch.setitem(registry.FILES, ".blocks", BlockFile)
    for part, pairs in (("train", toy.corpus().train), ("valid", toy.corpus().valid)):
        text = "".join(f"{source}\n{target}\n\n" for source, target in pairs)
        (tmp_path / f"{part}.blocks").write_text(text)
    return tmp_path / "train.blocks", tmp_path / "valid.blocks"


@pytest.mark.parametrize("plain_text", [False, True])
def test_a_file_of_a_new_source_is_opened_everywhere(block_files, plain_text):
    assert list(open_pairs(block_files[0])) == toy.corpus().train
    train, valid = block_files
    corpus = CorpusOptions(train=[train], valid=None if valid is None else [valid]).read(plain_text)
    assert [list(corpus.train), list(corpus.valid)] == [toy.corpus().train, toy.corpus().valid]
    with pytest.raises(ValueError, match=r"tab-separated files, and .*train.blocks is none. Leave it out"):
        CorpusOptions(train=[train], columns=["source,target"]).read()


@pytest.mark.tensorflow_only
def test_a_run_begins_with_a_new_source_as_with_a_list(block_files, tmp_path):
    corpus = Corpus("numbers", open_pairs(block_files[0]), open_pairs(block_files[1]), [])
    setups = [
        start_run(RunFolder(tmp_path / name), of_pairs, toy.TRANSFORMER, toy.TRAINING)
        for name, of_pairs in (("list", toy.corpus()), ("blocks", corpus))
    ]
    assert setups[0].train.source_ids.tolist() == setups[1].train.source_ids.tolist()
    described = [RunFolder(tmp_path / name).corpus() for name in ("list", "blocks")]
    assert described[0] | {"test": 0} == described[1]


def test_a_new_corpus_and_a_new_family_of_corpora_are_loaded_by_their_names(monkeypatch):
    monkeypatch.setitem(registry.CORPORA, "numbers", toy.corpus)
    monkeypatch.setitem(registry.FAMILIES, "first:", lambda rest: Corpus(rest, toy.corpus().train[: int(rest)], [], []))
    assert load_corpus("numbers") == toy.corpus()
    assert load_corpus("first:3").train == toy.corpus().train[:3]
    with pytest.raises(ValueError, match="There is no corpus 'first:'"):
        load_corpus("first:")
