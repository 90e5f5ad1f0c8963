"""Runs that learn word alignments, from the files to the weights."""

import csv

import keras
import numpy as np
import pytest
import toy

from kformer.data import AlignedFile, AlignedPair, Corpus, TsvFile, prepare_corpus
from kformer.models import GuidedAlignment
from kformer.training.new_run import prepare_run
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only
TRANSFORMER = toy.TRANSFORMER.replace(d_model=8, d_ff=8, num_heads=2, dropout_rate=0.1)
TRAINING = toy.TRAINING.replace(
    max_steps=4, validation_steps=2, tokenizer="words", tokens_per_batch=256, guided_alignment=0.5
)


def reversed_links(source):
    words = len(source.split())
    return [(place, words - 1 - place) for place in range(words)]


PAIRS = [AlignedPair(source, target, reversed_links(source)) for source, target in toy.corpus().train[:203]]
VALID = toy.corpus().valid[:9]


def corpus(pairs=PAIRS):
    return Corpus("numbers", pairs, VALID, [])


def of_files(folder, pairs=PAIRS):
    (folder / "p.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    (folder / "v.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in VALID))
    (folder / "p.align").write_text("".join(" ".join(f"{s}-{t}" for s, t in pair.links) + "\n" for pair in pairs))
    train_part = AlignedFile(TsvFile(folder / "p.tsv"), folder / "p.align")
    return prepare_corpus("numbers", train_part, TsvFile(folder / "v.tsv"), cache=folder / "cache", tell=print)


def course_of(run):
    with run.log_file.open() as file:
        rows = [*csv.DictReader(file)]
    return [
        {name: value for name, value in row.items() if name not in ("minutes", "tokens_per_second")} for row in rows
    ]


def arrays_of(run):
    with np.load(run.checkpoint_file) as file:
        return {name: file[name] for name in file.files if name != "state.json"}


def assert_same(found, expected):
    assert course_of(found) == course_of(expected)
    ours, theirs = arrays_of(found), arrays_of(expected)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values, err_msg=name)


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_run_that_was_stopped_ends_as_one_that_was_not_from_files_as_from_memory(tmp_path, untraced):
    training = TRAINING.replace(gradient_accumulation_steps=2)
    whole = train(corpus(), tmp_path / "whole", TRANSFORMER, training).run
    files = of_files(tmp_path)
    train(files, tmp_path / "parts", TRANSFORMER, training.replace(max_steps=2))
    parts = train(files, tmp_path / "parts", training=training, resume=True).run
    assert_same(parts, whole)


class Watch(keras.callbacks.Callback):
    """Keeps the model of a run."""

    def on_train_begin(self, logs=None):
        self.seen = self.model


def test_the_weight_arrives_in_the_loss_and_validations_are_as_without_it(tmp_path, untraced):
    """The rate is so low that the weights stay as they are."""
    still, found = TRAINING.replace(learning_rate_scale=1e-30, max_steps=2), {}
    transformer = TRANSFORMER.replace(dropout_rate=0.0)
    plain = [tuple(pair) for pair in PAIRS]
    for weight in (0.0, 0.5, 1.0):
        watch = Watch()
        pairs = PAIRS if weight else plain
        run = train(
            corpus(pairs),
            tmp_path / f"{weight}",
            transformer,
            still.replace(guided_alignment=weight),
            callbacks=[watch],
        ).run
        (found[weight],) = course_of(run)
        assert isinstance(watch.seen, GuidedAlignment) is (weight > 0)
    losses = {weight: float(row["loss"]) for weight, row in found.items()}
    assert losses[0.5] - losses[0.0] == pytest.approx((losses[1.0] - losses[0.0]) / 2, rel=1e-3)
    assert losses[0.5] - losses[0.0] > 0.1
    for name in ("token_loss", "val_token_loss", "val_accuracy", "tokens"):
        if name in found[0.0]:
            assert float(found[0.5][name]) == pytest.approx(float(found[0.0][name]), rel=1e-5)


def test_alignments_without_a_weight_and_a_weight_without_alignments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing would be learned from them, because guided_alignment is 0"):
        prepare_run(corpus(), TRANSFORMER, TRAINING.replace(guided_alignment=0.0))
    with pytest.raises(ValueError, match="guided_alignment=0.5 learns word alignments, and the corpus has none"):
        prepare_run(corpus([tuple(pair) for pair in PAIRS]), TRANSFORMER, TRAINING)


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_alignments(tmp_path, untraced):
    train(corpus(), tmp_path / "run", TRANSFORMER, TRAINING.replace(max_steps=2))
    other = [AlignedPair(*PAIRS[0], []), *PAIRS[1:]]
    with pytest.raises(ValueError, match="Resume with the same text and the same alignments"):
        train(corpus(other), tmp_path / "run", resume=True)
