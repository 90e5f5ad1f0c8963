"""What a student learns from a teacher."""

import dataclasses

import pytest
import toy

from kformer.data import AlignedPair, TsvFile, corpus_from_pairs, prepare_corpus
from kformer.data.joined import join_corpora
from kformer.inference import Model
from kformer.jobs.distillation import distilled_corpus, nearest
from kformer.runs.folder import RunFolder
from kformer.training.new_run import prepare_run

pytestmark = pytest.mark.tensorflow_only
SOURCES = ["one two", "six", "three four five", "two"]
WRONG = "no number at all"  # an own target that is unlike any translation


def small_corpus(target=WRONG):
    return corpus_from_pairs("small", [(source, target) for source in SOURCES], toy.corpus().valid[:20])


@pytest.mark.parametrize(
    ("reference", "number", "expected"),
    [
        ("the cat sat down", 1, ["the cat sat"]),
        ("the cat sat down", 2, ["the cat sat", "a cat sat"]),
        ("", 2, ["the dog ran", "a cat sat"]),
        ("  ", 9, ["the dog ran", "a cat sat", "the cat sat"]),
    ],
)
def test_the_nearest_translations_are_taken_and_without_a_reference_the_best(reference, number, expected):
    assert nearest(["the dog ran", "a cat sat", "the cat sat", "the cat sat"], reference, number) == expected


def test_the_teachers_translations_take_the_place_of_the_targets(numbers_run, tmp_path):
    given = small_corpus(target="")
    found = distilled_corpus(numbers_run, given, tmp_path / "teacher", processes=1)
    assert [*found.train] == [(source, toy.translation(source)) for source in SOURCES]
    assert found.valid == given.valid


def test_of_several_translations_the_one_that_is_like_the_target_is_taken(numbers_run, tmp_path):
    """The beams hold "uno", which no search would find best for "two"."""
    given = dataclasses.replace(small_corpus(), train=[("two", "uno"), ("one", "seis")])
    one = distilled_corpus(numbers_run, given, tmp_path / "teacher", processes=1)
    search = RunFolder(numbers_run).decoding_config().replace(beam_size=8)
    texts = [text.text for text in Model(numbers_run, search, n_best=8)([b"two"])[0]]
    assert next(iter(one.train))[1] == nearest(texts, "uno")[0]
    three = distilled_corpus(numbers_run, given, tmp_path / "teacher", targets=3, processes=1)
    assert [source for source, _ in three.train] == ["two"] * 3 + ["one"] * 3
    assert len({*three.train}) == 6


def test_of_files_that_were_prepared_the_teachers_translations_are_learned(numbers_run, tmp_path):
    """What was kept of the files is of their own targets."""
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{WRONG}\n" for source in SOURCES * 9))
    (tmp_path / "valid.tsv").write_text("one two\tdos uno\n")
    files = (TsvFile(tmp_path / name) for name in ("pairs.tsv", "valid.tsv"))
    given = prepare_corpus("files", *files, cache=tmp_path / "cache")
    training = toy.TRAINING.replace(vocab_size=290)
    prepare_run(given, toy.TRANSFORMER, training)
    found = distilled_corpus(numbers_run, given, tmp_path / "teacher", beam_size=1, processes=1)
    new = prepare_run(found, toy.TRANSFORMER, training)
    learned, tokenizer = new.pairs[0], new.tokenizers[1]
    first = learned.target_ids[: learned.target_offsets[1] - 1].astype("int32")  # without the end
    assert tokenizer.detokenize([first])[0].numpy().decode() == toy.translation(SOURCES[0])
    assert len(learned.target_offsets) - 1 == 9 * len(SOURCES)
    assert (found.valid, found.name_of("valid")) == (given.valid, given.name_of("valid"))
    again = distilled_corpus(numbers_run, given, tmp_path / "teacher", beam_size=1, processes=1)
    assert again.key == found.key


def test_of_a_corpus_with_tags_the_directions_are_distilled_one_by_one(numbers_run, tmp_path):
    both = join_corpora([small_corpus(), small_corpus()], ["<2es>", "<2en>"])
    with pytest.raises(ValueError, match="A corpus with tags cannot be distilled. .*<2es>, <2en>"):
        distilled_corpus(numbers_run, both, tmp_path / "teacher")


def test_alignments_of_the_own_targets_are_refused_before_the_teacher_translates(numbers_run, tmp_path):
    aligned = dataclasses.replace(small_corpus(), train=[AlignedPair("one", "uno", [(0, 0)])])
    with pytest.raises(ValueError, match="The word alignments of small are of its own targets"):
        distilled_corpus(numbers_run, aligned, tmp_path / "teacher")
    assert not (tmp_path / "teacher").exists()


def test_a_folder_with_another_corpus_or_search_is_refused_and_stays(numbers_run, tmp_path):
    distilled_corpus(numbers_run, small_corpus(), tmp_path, processes=1)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    own = small_corpus().train
    for pairs in ([*own[:-1], ("two", "other")], [*own, ("six", WRONG)], own[:-1]):
        with pytest.raises(ValueError, match="holds the translations of another corpus"):
            distilled_corpus(numbers_run, dataclasses.replace(small_corpus(), train=pairs), tmp_path, processes=1)
    with pytest.raises(ValueError, match="holds another job"):
        distilled_corpus(numbers_run, small_corpus(), tmp_path, beam_size=2, processes=1)
    with pytest.raises(ValueError, match="targets must be from 1 to the teacher's beam size"):
        distilled_corpus(numbers_run, small_corpus(), tmp_path, beam_size=2, targets=3)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == files


def test_a_line_that_is_not_translated_keeps_its_own_target(numbers_run, tmp_path):
    long = "one " * 30_000
    given = dataclasses.replace(small_corpus(), train=[("six", ""), (long, "its own"), ("", "blank")])
    told = []
    found = distilled_corpus(numbers_run, given, tmp_path, processes=1, tell=told.append)
    assert [target for _, target in found.train][:2] == ["seis", "its own"]
    (fault,) = told
    assert "keep their own targets, because the teacher has no translation: 1. The first: line 2 of " in fault
