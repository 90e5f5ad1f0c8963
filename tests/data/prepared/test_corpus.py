"""Corpora of files that are read once: by one process, for all that come later."""

import concurrent.futures
import contextlib
import errno
import os
import shutil

import pytest
import toy

from kformer.data import (
    Corpus,
    JoinedFiles,
    ParallelFiles,
    TextFile,
    TsvFile,
    corpus_from_pairs,
    encode_pairs,
    prepare_corpus,
    read_tsv,
)
from kformer.data.cleaning import Cleaning
from kformer.files.checksums import DamagedFileError
from kformer.files.writing import WriteError
from kformer.runs.folder import RunFolder
from kformer.tasks.translate import TranslateTask
from kformer.tokenizers import SymbolTokenizer, load_tokenizers
from kformer.training.new_run import start_run
from kformer.training.resumed_run import resume_run
from kformer.training.run_setup import encode
from kformer.training.train import train

PAIRS = [(source, target) for source, target in toy.corpus().train][:701]
WORDS = toy.TRAINING.replace(tokenizer="words")


def write(path, pairs=PAIRS):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "pairs.tsv")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def unread(monkeypatch):
    """From its call on, the lines of text files cannot be read."""

    def refuse(lines):
        raise AssertionError(f"{lines.path} was read again.")

    return lambda: monkeypatch.setattr("kformer.data.sources.lines.TextLines.open", refuse)


def prepare(file, cache, **options):
    return prepare_corpus("numbers", TsvFile(file), cache=cache, tell=pytest.fail, **options)


def folders(cache, kind):
    return sorted(path for path in cache.glob(f"{kind}-*") if path.is_dir())


def test_the_parts_and_the_facts_are_those_of_a_corpus_in_memory(file, cache, unread):
    expected = corpus_from_pairs("numbers", read_tsv(file))
    first = prepare(file, cache)
    assert list(first.train) == expected.train
    assert len(first.train) == 681
    again = prepare(file, cache)
    unread()
    for corpus in (first, again):
        assert (len(corpus.train), corpus.valid, corpus.test) == (681, expected.valid, [])
        assert corpus.facts() == expected.facts()


@pytest.mark.parametrize(
    ("files", "times"),
    [
        (lambda file: {"train": TsvFile(file)}, 4),
        (lambda file: {"train": TsvFile(file), "valid": TsvFile(file)}, 1),
        (lambda file: {"train": TsvFile(file), "cleaning": Cleaning(max_ratio=100.0)}, 5),
        (lambda file: {"train": JoinedFiles([TsvFile(file), TsvFile(file)], ["<a>", ""])}, 10),
    ],
)
def test_what_is_to_be_read_is_told_before(files, times, file, cache):
    """The texts are read several times."""
    shown = {}

    @contextlib.contextmanager
    def progress(description, total):
        shown[description] = [total, 0]

        def advance(done):
            shown[description][1] += done

        yield advance

    prepare_corpus("numbers", **files(file), cache=cache, progress=progress)
    assert shown == {"Reading numbers": [times * len(PAIRS), times * len(PAIRS)]}


def test_validation_pairs_of_their_own_are_not_held_out(tmp_path, file, cache):
    others = write(tmp_path / "valid.tsv", [("one", "uno")])
    corpus = prepare(file, cache, valid=TsvFile(others), valid_name="valid.tsv")
    assert list(corpus.train) == PAIRS
    assert (len(corpus.train), corpus.valid, corpus.name_of("valid")) == (701, [("one", "uno")], "valid.tsv")
    assert corpus.facts() == Corpus("numbers", PAIRS, [("one", "uno")], []).facts()


def test_texts_with_any_character_are_held_out_as_they_are(tmp_path, cache):
    pairs = [(f'{number} "a\u2028b\\ \U0001f600', "c\u0301 \x1f") for number in range(40)]
    file = write(tmp_path / "pairs.tsv", pairs)
    assert sorted([*prepare(file, cache).train, *prepare(file, cache).valid]) == sorted(pairs)


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: TextFile(folder / "pairs.tsv"),
        lambda folder: ParallelFiles(folder / "pairs.tsv", folder / "pairs.tsv"),
        lambda folder: TsvFile(folder / "pairs.tsv", ("target", "source")),
        lambda folder: TsvFile(write(folder / "more.tsv", [*PAIRS, ("one", "uno")])),
    ],
    ids=["plain text", "parallel files", "columns", "another file"],
)
def test_another_file_or_another_way_to_read_it_is_another_corpus(tmp_path, file, cache, other):
    prepare(file, cache)
    pairs = other(tmp_path)
    corpus = prepare_corpus("numbers", pairs, cache=cache)
    assert sorted([*corpus.train, *corpus.valid]) == sorted(pairs)
    assert len(folders(cache, "texts")) == 2


def test_a_copy_of_the_file_is_the_same_corpus(tmp_path, file, cache):
    prepare(file, cache)
    prepare(shutil.copy(file, tmp_path / "copy.tsv"), cache)
    os.utime(file, (1, 1))
    prepare(file, cache)
    assert len(folders(cache, "texts")) == 1


def test_a_file_that_changes_while_it_is_read_leaves_nothing_behind(file, cache):
    class Changed(TsvFile):
        def __iter__(self):
            yield from [*super().__iter__()]
            write(file, [*PAIRS, ("one", "uno")])

    with pytest.raises(ValueError, match="pairs.tsv has changed while it was read. Begin again"):
        prepare_corpus("numbers", Changed(file), cache=cache)
    assert not folders(cache, "texts")


@pytest.mark.parametrize("number", [700, 701, 750])
def test_a_file_that_is_replaced_after_it_was_prepared_is_not_learned(file, cache, number):
    prepare(file, cache)
    corpus = prepare(file, cache)  # of which the texts are known
    write(file, [(f"new {place}", "nuevo") for place in range(number)])
    with pytest.raises(ValueError, match="has changed"):
        list(corpus.train)


def test_validation_pairs_that_belong_to_none_of_joined_files_are_scored_together(tmp_path, file, cache, untraced):
    files = JoinedFiles([TsvFile(file), TsvFile(write(tmp_path / "more.tsv", PAIRS[:50]))])
    corpus = prepare_corpus("both", files, TsvFile(write(tmp_path / "valid.tsv", PAIRS[:9])), cache=cache)
    training = WORDS.replace(max_steps=1, validation_steps=1, scored_sources=9, monitor="chrf")
    run = train(corpus, tmp_path / "run", toy.TRANSFORMER, training).run
    assert "val_chrf" in run.log_file.read_text().splitlines()[0].split(",")


def test_warnings_of_the_first_reading_come_each_time(tmp_path, cache):
    file = write(tmp_path / "pairs.tsv", [("source", "target"), *PAIRS])
    for _ in range(2):
        with pytest.warns(UserWarning, match="'source', 'target' look like names of the columns") as found:
            prepare(file, cache)
        assert len(found) == 1


@pytest.mark.parametrize("name", ["texts.json", "held_out.json", "learned.npy"])
def test_what_is_known_of_the_texts_is_never_damaged_without_a_word(file, cache, name):
    prepare(file, cache)
    [folder] = folders(cache, "texts")
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"{name} does not match its checksum.*Remove the folder"):
        prepare(file, cache)


def test_a_damaged_list_of_files_is_made_again(file, cache):
    prepare(file, cache)
    for damaged in ("{", "[]", ""):
        (cache / "files.json").write_text(damaged)
        prepare(file, cache)
    assert len(folders(cache, "texts")) == 1


def test_several_that_begin_at_once_read_the_file_once(file, cache):
    readings, notes = [], []

    class Counted(TsvFile):
        def __iter__(self):
            readings.append(self)
            return super().__iter__()

    def prepared(_):
        return prepare_corpus("numbers", Counted(file), cache=cache, tell=notes.append).facts()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(prepared, range(4)))
    assert found == 4 * [corpus_from_pairs("numbers", PAIRS).facts()]
    assert len({id(one) for one in readings}) == 1
    assert all("is making" in note and "waiting for it" in note for note in notes)


def test_a_cache_that_cannot_be_written_to_is_told(tmp_path, file):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file cannot be a folder"):
        prepare(file, tmp_path / "file")


def test_the_default_cache_is_that_of_the_user(tmp_path, file, monkeypatch):
    monkeypatch.setenv("KFORMER_CACHE", str(tmp_path / "mine"))
    prepare_corpus("numbers", TsvFile(file))
    assert len(folders(tmp_path / "mine" / "corpora", "texts")) == 1


class TestRuns:
    """A run of a prepared corpus has the tokenizers and the ids that one of a list has."""

    pytestmark = pytest.mark.tensorflow_only

    @pytest.mark.parametrize(
        ("task", "tokenizer", "reads"),
        [
            ("translate", "bpe", TsvFile),
            ("translate", "words", TsvFile),
            ("classify", "words", TsvFile),
            ("tag", "words", TsvFile),
            ("language-model", "bpe", TextFile),
            ("masked-language-model", "words", TextFile),
        ],
    )
    def test_each_task_begins_and_goes_on_without_the_texts(self, tmp_path, cache, unread, task, tokenizer, reads):
        targets = {"classify": lambda text: text.split()[0], "tag": str.upper}.get(task, toy.translation)
        file = write(tmp_path / "pairs.tsv", [(source, targets(source)) for source, _ in PAIRS])
        transformer, training = toy.TRANSFORMER.replace(task=task), toy.TRAINING.replace(tokenizer=tokenizer)

        def begin(corpus, name):
            return start_run(RunFolder(tmp_path / name), corpus, transformer, training)

        def corpus():
            return prepare_corpus("numbers", reads(file), cache=cache, tell=pytest.fail)

        expected = begin(corpus_from_pairs("numbers", reads(file).held()), "memory")
        found = [begin(corpus(), "first")]
        unread()
        found += [begin(corpus(), "second"), resume_run(RunFolder(tmp_path / "first"), corpus())]
        for setup in found:
            assert setup.transformer == expected.transformer
            for name in ("source_ids", "source_offsets", "target_ids", "target_offsets"):
                for part in ("train", "valid"):
                    left, right = (getattr(getattr(one, part), name) for one in (setup, expected))
                    assert left.tolist() == right.tolist()
        for name in ("corpus.json", "decoding.json", "transformer.json"):
            texts = [(tmp_path / folder / name).read_text() for folder in ("memory", "first", "second")]
            assert len(set(texts)) == 1
        assert len(folders(cache, "ids")) == 1

    def test_other_settings_of_the_vocabulary_or_the_lengths_make_other_ids(self, tmp_path, file, cache):
        settings = [WORDS, WORDS.replace(max_length=5), WORDS.replace(vocab_size=8), WORDS.replace(max_length=6)]
        for number, training in enumerate([*settings, *settings]):
            setup = start_run(RunFolder(tmp_path / f"run{number}"), prepare(file, cache), toy.TRANSFORMER, training)
            memory = corpus_from_pairs("numbers", read_tsv(file))
            expected = start_run(RunFolder(tmp_path / f"memory{number}"), memory, toy.TRANSFORMER, training)
            assert setup.train.source_ids.tolist() == expected.train.source_ids.tolist()
            kept = [
                load_tokenizers(RunFolder(tmp_path / f"{name}{number}").tokenizer_folder) for name in ("run", "memory")
            ]
            assert kept[0][0].spellings() == kept[1][0].spellings()
        assert len(folders(cache, "tokenizers")) == len(folders(cache, "ids")) == 4


def learned(corpus):
    """The vocabulary of a corpus, as a run learns it."""
    from kformer.tasks.translate import TranslateTask

    task = TranslateTask()
    return corpus.learned_tokenizers("translate", WORDS, lambda: task.train_tokenizers(corpus.train, WORDS))


def test_no_damage_to_a_kept_vocabulary_is_silent(file, cache):
    learned(prepare(file, cache))
    [folder] = folders(cache, "tokenizers")
    for kept in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole = kept.read_bytes()
        for damaged in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), None):
            kept.unlink()
            if damaged is not None:
                kept.write_bytes(damaged)
            with pytest.raises(DamagedFileError, match=f"{kept.name}.*Remove the folder .*tokenizers-"):
                learned(prepare(file, cache))
            kept.write_bytes(whole)
    assert learned(prepare(file, cache))[0].vocab_size > 4


def test_a_file_that_changed_without_another_time_or_size_is_read_again(file, cache):
    before = list(prepare(file, cache).train)
    state = os.stat(file)
    with file.open("r+b") as opened:
        content = opened.read().replace(b"uno", b"una")
        opened.seek(0)
        opened.write(content)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = list(prepare(file, cache).train)
    assert (os.stat(file).st_size, os.stat(file).st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert before != after


def test_what_is_whole_is_opened_where_nothing_can_be_written(file, cache, monkeypatch, unread):
    expected = learned(prepare(file, cache))[0].vocab_size
    ids = encode_pairs(prepare(file, cache).train, *learned(prepare(file, cache)), max_length=32)
    corpus = prepare(file, cache)
    with corpus.kept_ids("translate", WORDS, learned(corpus)) as store:
        encode_pairs(corpus.train, *learned(corpus), max_length=32, store=store)

    def refusing(call):
        def refuse(*arguments, **options):
            if any(str(argument).startswith(str(cache)) for argument in arguments):
                raise OSError(errno.EROFS, "Read-only file system")
            return call(*arguments, **options)

        return refuse

    for name in ("open", "replace", "mkdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    unread()
    corpus = prepare(file, cache)
    assert learned(corpus)[0].vocab_size == expected
    with corpus.kept_ids("translate", WORDS, learned(corpus)) as store:
        assert encode_pairs(corpus.train, *learned(corpus), max_length=32, store=store).kept == ids.kept
    with pytest.raises(WriteError, match="Nothing can be written to .*: Read-only file system. Make room, or choose"):
        prepare(write(file, PAIRS[:99]), cache)


def test_the_ids_of_sources_depend_on_where_tags_stand(tmp_path, cache):
    """Both are kept, in the same cache."""
    tsv = TsvFile(write(tmp_path / "pairs.tsv", PAIRS[:99]))
    corpus = prepare_corpus("both", JoinedFiles([tsv], ["<2es>"]), cache=cache, tell=pytest.fail)
    tokenizer = SymbolTokenizer(["<2es>", *toy.WORDS, *toy.WORDS.values()])
    ids = {
        place: encode(corpus, TranslateTask(), WORDS.replace(tags_before=place), (tokenizer, tokenizer))[0]
        for place in ("source", "target", "source")
    }
    with_tags, without = ids["source"], ids["target"]
    assert len(with_tags.source_ids) == len(without.source_ids) + with_tags.kept
    assert with_tags.target_ids.tolist() == without.target_ids.tolist()
    assert (with_tags.part_start_ids, without.part_start_ids) == ((), (tokenizer.symbols.index("<2es>") + 4,))
