"""Word-level distillation: a run learns the probabilities of a teacher beside the texts."""

import csv
import io
import math
import shutil

import keras
import numpy as np
import pytest
import rich.console
import toy
from gradients import gradient
from keras import ops
from two_predictions import batch, example, log_probabilities

from kformer.config import TASKS, TrainingConfig, TransformerConfig
from kformer.losses import LabelSmoothedCrossEntropy, WordLevelCrossEntropy
from kformer.models import WithTeacher, build_model, build_transformer
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights, load_weights_file, save_weights
from kformer.tasks import task_of
from kformer.training.compile import compile_model
from kformer.training.new_run import prepare_run, start_run
from kformer.training.resumed_run import resume_run
from kformer.training.train import train

STUDENT = TransformerConfig(11, 11, 1, 1, d_model=8, d_ff=16, num_heads=2, dropout_rate=0.0)
TEACHER = STUDENT.replace(d_model=12, num_heads=3, num_decoder_layers=2, dropout_rate=0.5)


def oracle(labels, logits, share, epsilon):
    """The loss of each token in loops and float64, with the labels smoothed over all classes."""
    losses = np.zeros(labels.shape)
    for row, place in np.ndindex(labels.shape):
        if (label := labels[row, place]) == 0:
            continue
        own, teacher = (log_probabilities(logits[row, number, place].astype("float64")) for number in (0, 1))
        for k, (ours, theirs) in enumerate(zip(own, teacher, strict=True)):
            smooth = epsilon / len(own) + (1 - epsilon) * (k == label)
            losses[row, place] -= ((1 - share) * smooth + share * math.exp(theirs)) * ours
    return losses


@pytest.mark.parametrize(("share", "epsilon"), [(0.0, 0.1), (0.25, 0.1), (0.5, 0.0), (1.0, 0.1)])
def test_the_loss_is_that_of_the_labels_and_of_the_teacher_by_their_shares(share, epsilon):
    labels, logits = example()
    expected = oracle(labels, logits, share, epsilon)
    loss = WordLevelCrossEntropy(share, epsilon)
    np.testing.assert_allclose(ops.convert_to_numpy(loss.call(labels, logits)), expected, rtol=1e-4)
    assert float(loss(labels, logits)) == pytest.approx(expected.sum() / (labels > 0).sum(), rel=1e-5)


def test_numbers_derived_by_hand():
    """The student gives 1/4 and 3/4, the teacher 2/3 and 1/3, and the second class is the label."""
    logits = np.log([[[[1.0, 3.0]], [[2.0, 1.0]]]]).astype("float32")
    taught = 2 / 3 * math.log(4) + 1 / 3 * math.log(4 / 3)
    found = float(WordLevelCrossEntropy(share=0.75, epsilon=0.0)(np.array([[1]]), logits))
    assert found == pytest.approx(0.25 * math.log(4 / 3) + 0.75 * taught, rel=1e-6)


def test_a_student_that_predicts_as_its_teacher_has_nothing_to_learn_from_it():
    _, logits = example()
    same, labels = logits[:, 1:].repeat(2, axis=1), np.ones((3, 5), "int32")
    found = gradient(lambda own: WordLevelCrossEntropy(1.0)(labels, ops.stack([own, same[:, 1]], axis=1)), same[:, 0])
    np.testing.assert_allclose(found, 0, atol=1e-7)


def test_the_gradient_is_the_difference_of_the_probabilities():
    labels, logits = example(rows=1, length=2, classes=3)
    labels[:] = 1
    found = gradient(
        lambda own: WordLevelCrossEntropy(0.5, 0.0)(labels, ops.stack([own, logits[:, 1]], axis=1)), logits[:, 0]
    )
    own, teacher = (np.exp([log_probabilities(token) for token in logits[0, number]]) for number in (0, 1))
    expected = own - 0.5 * teacher - 0.5 * np.eye(3)[[1, 1]]
    np.testing.assert_allclose(found[0], expected / 2, atol=1e-6)  # the mean of two tokens


def test_the_teachers_logits_have_no_gradient():
    labels, logits = example()
    found = gradient(lambda values: WordLevelCrossEntropy(0.5)(labels, values), logits)
    assert np.any(found[:, 0])
    assert not np.any(found[:, 1])


def test_padding_has_no_loss_and_no_gradient():
    labels, logits = example()
    labels[1] = 0
    found = gradient(lambda values: WordLevelCrossEntropy(0.5)(labels, values), logits)
    assert np.any(found[0])
    assert not np.any(found[1])


def test_sample_weights_are_factors_on_both_terms():
    labels, logits = example(rows=2)
    each = oracle(labels, logits, 0.5, 0.1).sum(axis=1)
    found = float(WordLevelCrossEntropy(0.5)(labels, logits, sample_weight=np.array([3.0, 0.5], "float32")))
    assert found == pytest.approx((3 * each[0] + 0.5 * each[1]) / (labels > 0).sum(), rel=1e-5)


def test_without_a_teacher_the_loss_is_that_of_the_labels():
    labels, logits = example()
    losses = (WordLevelCrossEntropy(0.5, 0.1), LabelSmoothedCrossEntropy(0.1))
    found, expected = (float(loss(labels, logits[:, 0])) for loss in losses)
    assert found == expected


@pytest.mark.parametrize("form", ["all", "others"])
def test_labels_are_smoothed_as_without_it(form):
    training = TrainingConfig(
        label_smoothing=0.3, label_smoothing_form=form, word_level=1e-9, word_level_teacher="teacher"
    )
    labels, logits = example()
    plain = LabelSmoothedCrossEntropy(0.3, 0, form)
    found = task_of("translate").objective(STUDENT, training).loss(labels, logits)
    assert float(found) == pytest.approx(float(plain(labels, logits[:, 0])), rel=1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=f"share must be from 0 to 1. Received: share={share}"):
        WordLevelCrossEntropy(share)
    with pytest.raises(ValueError, match=f"word_level must be from 0 to 1. Received: word_level={share}"):
        TrainingConfig(word_level=share, word_level_teacher="teacher")


def test_three_predictions_are_refused():
    with pytest.raises(ValueError, match=r"those of kformer.models.WithTeacher in .* of shape \(1, 3, 5, 7\)"):
        WordLevelCrossEntropy(0.5)(np.ones((1, 5)), np.zeros((1, 3, 5, 7)))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"word_level": 0.5}, "word_level=0.5, word_level_teacher=None. Give both, or leave both out"),
        ({"word_level_teacher": "a"}, "word_level=0.0, word_level_teacher='a'. Give both, or leave both out"),
        (
            {"word_level": 0.5, "word_level_teacher": "a", "r_drop": 5.0},
            "word_level does not go with r_drop. Received: word_level=0.5, r_drop=5.0. Leave one of them out",
        ),
        (
            {"word_level": 0.5, "word_level_teacher": "a", "guided_alignment": 0.1},
            "word_level does not go with guided_alignment",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        TrainingConfig(**fields)


def test_in_training_the_teacher_reads_the_rows_without_dropout_and_otherwise_it_is_not_asked():
    student, teacher = build_transformer(STUDENT), build_transformer(TEACHER)
    model = WithTeacher.of(student, teacher)
    own, taught = (ops.convert_to_numpy(each(batch())) for each in (student, teacher))
    np.testing.assert_array_equal(ops.convert_to_numpy(model(batch())), own)
    both = ops.convert_to_numpy(model(batch(), training=True))
    np.testing.assert_allclose(both, np.stack([own, taught], axis=1), atol=1e-6)


def test_the_teacher_is_no_part_of_the_model_and_of_its_files(tmp_path):
    model, plain = WithTeacher.of(build_transformer(STUDENT), build_transformer(TEACHER)), build_transformer(STUDENT)
    assert model.count_params() == plain.count_params()
    save_weights(tmp_path / "file.weights.h5", model)
    load_weights_file(tmp_path / "file.weights.h5", plain)
    np.testing.assert_array_equal(ops.convert_to_numpy(model(batch())), ops.convert_to_numpy(plain(batch())))


def test_a_model_that_was_read_from_a_file_predicts_and_asks_for_its_teacher_before_it_learns(tmp_path):
    model = WithTeacher.of(build_transformer(STUDENT), build_transformer(TEACHER))
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(restored(batch())), ops.convert_to_numpy(model(batch())))
    with pytest.raises(ValueError, match="does not hold its teacher. Give it one by kformer.models.WithTeacher.of"):
        restored(batch(), training=True)


@pytest.mark.parametrize("task", TASKS)
def test_models_of_every_task_learn_from_a_teacher_which_stays_as_it_is(task):
    keras.utils.set_random_seed(1)
    student, teacher = (task_of(task).adapt(size.replace(task=task)) for size in (STUDENT, TEACHER))
    model, taught = build_model(student), build_model(teacher)
    training = TrainingConfig(precision="float32", word_level=1.0, word_level_teacher="teacher")
    model = WithTeacher.of(model, taught)
    compile_model(model, student, training)
    model.run_eagerly = True  # a trace or a compilation would take longer than these steps
    inputs = {name: ids for name, ids in batch().items() if name in model.input}
    labels = np.random.default_rng(3).integers(3, 11, (3, model(inputs).shape[1]))
    before, own = taught.get_weights(), model.get_weights()
    history = model.fit(inputs, labels, verbose=0, epochs=3).history
    assert history["tokens"] == [labels.size] * 3
    assert history["loss"][0] != history["token_loss"][0]  # the labels count for nothing
    assert all(np.array_equal(*pair) for pair in zip(before, taught.get_weights(), strict=True))
    matrices = [pair for pair in zip(own, model.get_weights(), strict=True) if pair[0].ndim > 1]
    assert all(np.any(earlier != later) for earlier, later in matrices)


def quiet():
    return rich.console.Console(quiet=True)


def taught(teacher, **changes):
    """Settings of a short training that is taught."""
    return toy.TRAINING.replace(**{"word_level": 0.5, "word_level_teacher": str(teacher), "max_steps": 2, **changes})


@pytest.mark.tensorflow_only
@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_a_run_with_the_teachers_vocabulary_goes_on_bit_for_bit_also_where_the_teacher_is_gone(numbers_run, tmp_path):
    teacher = shutil.copytree(numbers_run, tmp_path / "teacher")
    training = taught(teacher, max_steps=4, validation_steps=2, tokens_per_batch=64)
    transformer = toy.TRANSFORMER.replace(d_model=16, d_ff=32, dropout_rate=0.1)
    told = io.StringIO()
    arguments = {"transformer": transformer, "console": rich.console.Console(file=told, width=500)}
    whole = train(toy.corpus(), tmp_path / "whole", training=training, **arguments).run
    assert "The vocabulary was made for another corpus: 0.00%" in told.getvalue()
    train(toy.corpus(), tmp_path / "stopped", training=training.replace(max_steps=3), **arguments)
    shutil.rmtree(teacher)
    stopped = train(toy.corpus(), tmp_path / "stopped", training=training, resume=True, **arguments).run
    weights = []
    for run in (whole, stopped):
        model = build_transformer(run.transformer_config())
        load_weights(run, model)
        weights.append(model.get_weights())
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("model.spm", "tokenizer.json"):
        vocabularies = [run.tokenizer_folder / "shared" / name for run in (whole, RunFolder(numbers_run))]
        assert vocabularies[0].read_bytes() == vocabularies[1].read_bytes()


@pytest.mark.tensorflow_only
@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_a_student_that_begins_as_its_teacher_has_the_uncertainty_of_the_teacher_as_its_loss(numbers_run, tmp_path):
    """The teacher has learned smoothed labels: 0.9 for one of some 300 tokens, and 0.1 for all together.

    The uncertainty of these is -0.9 log 0.9 - 0.1 log(0.1 / 300) = 0.9 nats. A teacher with other weights gives each
    token a share, and the student's loss would be more than 5.
    """
    training = taught(numbers_run, word_level=1.0, max_steps=1, validation_steps=1, tokens_per_batch=64)
    run = train(toy.corpus(), tmp_path / "run", training=training, initialize_from=numbers_run, console=quiet()).run
    with run.log_file.open() as file:
        loss = float(next(csv.DictReader(file))["loss"])
    assert 0.6 < loss < 1.2


@pytest.mark.tensorflow_only
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"task": "language-model"}, "is a run of the task translate. Expected: a run of the task language-model"),
        ({"user_symbols": "<2es>"}, "has the tokenizers of that run. Received: user_symbols as well. Leave them out"),
    ],
)
def test_a_teacher_that_does_not_suit_the_model_is_refused(changes, told, numbers_run):
    task = changes.pop("task", "translate")
    transformer = task_of(task).adapt(toy.TRANSFORMER.replace(task=task))
    with pytest.raises(ValueError, match=told):
        prepare_run(toy.corpus(), transformer, taught(numbers_run, **changes))


@pytest.mark.tensorflow_only
def test_first_weights_with_another_vocabulary_than_the_teachers_are_refused(numbers_run):
    with pytest.raises(ValueError, match="teacher in .* and the new model must have one vocabulary"):
        prepare_run(toy.corpus(), None, taught("bible-en-es"), numbers_run)


@pytest.mark.tensorflow_only
def test_a_teacher_with_fewer_positions_than_the_texts_have_tokens_is_refused(numbers_run, tmp_path):
    teacher = RunFolder(shutil.copytree(numbers_run, tmp_path / "teacher"))
    transformer = teacher.transformer_config().replace(positional_encoding="learned", max_length=8)
    teacher.write_config(teacher.transformer_file, transformer)
    with pytest.raises(ValueError, match="has 8 learned positions, and training takes pairs of up to 32 tokens"):
        prepare_run(toy.corpus(), toy.TRANSFORMER, taught(teacher.path))


@pytest.mark.tensorflow_only
def test_the_configuration_says_of_the_tokenizers_what_is_so_and_may_be_given_again(numbers_run, tmp_path):
    given, run = taught(numbers_run, vocab_size=999, tokenizer="unigram"), RunFolder(tmp_path / "run")
    start_run(run, toy.corpus(), toy.TRANSFORMER, given)
    assert run.training_config() == taught(numbers_run)
    assert resume_run(run, toy.corpus(), toy.TRANSFORMER, given).training == taught(numbers_run)


@pytest.mark.tensorflow_only
def test_a_run_killed_while_it_begins_can_be_begun_again(numbers_run, tmp_path, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("kformer.runs.create.save_tokenizers", killed)
        with pytest.raises(KeyboardInterrupt):
            start_run(run, toy.corpus(), toy.TRANSFORMER, taught(numbers_run))
    assert run.word_level_teacher.exists()
    start_run(run, toy.corpus(), toy.TRANSFORMER, taught(numbers_run))
    assert run.exists()


@pytest.mark.tensorflow_only
def test_a_folder_of_the_users_own_is_not_taken_for_the_copy_of_the_teacher(numbers_run, tmp_path):
    teacher = shutil.copytree(numbers_run, tmp_path / "run" / "word-level-teacher")
    with pytest.raises(FileExistsError, match="holds a run, and a run in .* would keep a copy of another run there"):
        train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, taught(teacher), console=quiet())
    assert RunFolder(teacher).best_weights_file.is_file()
