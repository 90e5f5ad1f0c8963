"""`kformer distill`: a teacher's translations, and a student's training."""

import json
import shutil

import pytest
import toy
from commands import refused, run

from kformer.runs.folder import RunFolder

pytestmark = pytest.mark.tensorflow_only
SMALL = ("--vocab-size", 300, "--d-model", 16, "--d-ff", 32)


@pytest.fixture
def files(tmp_path):
    """The options that name a corpus of 60 pairs, whose own targets are not the teacher's."""
    for part in ("train", "valid"):
        lines = [f"{source}\tPerhaps {target}.\n" for source, target in getattr(toy.corpus(), part)[:60]]
        (tmp_path / f"{part}.tsv").write_text("".join(lines))
    return ["--train", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv"]


def test_a_student_is_trained_on_the_teachers_translations_and_goes_on(numbers_run, files, tmp_path):
    student = RunFolder(tmp_path / "student")
    options = (*files, "--output", student.path, "--teacher-beam-size", 2, "--processes", 1)
    with toy.untraced():
        run("distill", numbers_run, *options, "--size", "tiny", *SMALL, "--validation-steps", 2, "--max-steps", 2)
        with (student.path / "teacher" / "train-1.jsonl").open(encoding="utf-8") as lines:
            pairs = [json.loads(line) for line in lines]
        exact = sum(pair["target"] == toy.translation(pair["source"]) for pair in pairs)
        assert len(pairs) == 60
        assert exact > 50  # of two hypotheses, the other one may be nearer to "Perhaps uno."
        assert student.corpus()["train"] == 60
        assert student.decoding_config().beam_size == 1
        assert student.decoding_config().max_source_length > 0  # of its texts
        answers = (student.path / "teacher" / "answers" / "manifest.jsonl").read_bytes()
        assert "4 steps" in run("distill", numbers_run, *options, "--max-steps", 4, "--resume")
    assert (student.path / "teacher" / "answers" / "manifest.jsonl").read_bytes() == answers
    assert student.decoding_config().beam_size == 1


def test_a_student_has_a_fast_size_and_the_beams_that_are_asked_for(numbers_run, files, tmp_path, monkeypatch):
    monkeypatch.setattr("kformer.cli.distill.distilled_corpus", lambda teacher, corpus, folder, **options: corpus)
    student = RunFolder(tmp_path / "student")
    with toy.untraced():
        run("distill", numbers_run, *files, "--output", student.path, *SMALL, "--max-steps", 1, "--beam-size", 3)
    transformer = student.transformer_config()
    assert (transformer.num_encoder_layers, transformer.num_decoder_layers) == (6, 1)
    assert student.decoding_config().beam_size == 3


@pytest.mark.parametrize(
    ("options", "learned"),
    [
        ((), (None, None)),
        (("--word-level", 0.5), (0.5, "numbers")),
        (("--word-level", 0.5, "--word-level-teacher", "other"), (0.5, "other")),
    ],
)
def test_a_student_learns_the_teachers_probabilities_where_that_is_asked_for(
    options, learned, numbers_run, tmp_path, monkeypatch
):
    shutil.copytree(numbers_run, tmp_path / "numbers")
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr("kformer.cli.distill.run_training", lambda *arguments: seen.append(arguments[5]))
    run("distill", "numbers", "--corpus", "bible-en-es", "--output", "student", *options)
    assert [(fields["word_level"], fields["word_level_teacher"]) for fields in seen] == [learned]


def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_written(
    numbers_run, numbers_export, files, tmp_path
):
    asked = (*files, "--output", tmp_path / "student")
    assert "is not a run folder" in refused("distill", numbers_export, *asked)
    assert "Expected: a model of the task translate" in refused("distill", "bible-english", *asked)
    assert "from 1 to the teacher's beam size" in refused("distill", numbers_run, *asked, "--targets", 9)
    assert "There is no preset" in refused("distill", tmp_path / "nothing", *asked)
    assert not (tmp_path / "student").exists()
