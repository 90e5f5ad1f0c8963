"""Runs whose texts are divided into subwords anew each time that they are seen."""

import csv

import numpy as np
import pytest
import toy
from own_models import write_model

from kformer.data import Corpus
from kformer.data.corpus_facts import CorpusFacts
from kformer.training.new_run import prepare_run
from kformer.training.train import train

pytestmark = pytest.mark.tensorflow_only
TRANSFORMER = toy.TRANSFORMER.replace(d_model=8, d_ff=8, num_heads=2)
SHORT = toy.TRAINING.replace(max_steps=4, validation_steps=2, vocab_size=300, tokens_per_batch=256)
UNIGRAM = SHORT.replace(tokenizer="unigram", unigram_alpha=0.3)
CORPUS = Corpus("numbers", toy.corpus().train[:90], toy.corpus().valid[:9], [])


def course_of(run):
    with run.log_file.open() as file:
        rows = [*csv.DictReader(file)]
    return [
        {name: value for name, value in row.items() if name not in ("minutes", "tokens_per_second")} for row in rows
    ]


def arrays_of(run):
    with np.load(run.checkpoint_file) as file:
        return {name: file[name] for name in file.files if name != "state.json"}


@pytest.mark.slow
@pytest.mark.in_ci
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, untraced):
    whole = train(CORPUS, tmp_path / "whole", TRANSFORMER, UNIGRAM).run
    train(CORPUS, tmp_path / "parts", TRANSFORMER, UNIGRAM.replace(max_steps=2))
    parts = train(CORPUS, tmp_path / "parts", training=UNIGRAM, resume=True).run
    assert course_of(parts) == course_of(whole)
    expected, found = arrays_of(whole), arrays_of(parts)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_run_learns_from_divided_texts_and_is_validated_on_the_usual_ones(tmp_path, untraced):
    """The rate is so low that the weights stay as they are, so that only the texts decide the losses."""
    divided = SHORT.replace(bpe_dropout=0.3, learning_rate_scale=1e-30, max_steps=2)
    usual = divided.replace(bpe_dropout=0.0)
    (first,), (second,) = (
        course_of(train(CORPUS, tmp_path / name, TRANSFORMER, training).run)
        for name, training in (("divided", divided), ("usual", usual))
    )
    assert first["val_loss"] == second["val_loss"]
    assert first["loss"] != second["loss"]


class Unread(Corpus):
    """It must not be read before the settings are checked."""

    def facts(self) -> CorpusFacts:
        raise AssertionError("The corpus was read.")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unigram", "bpe_dropout is for bpe .* of the kind unigram. Give unigram_alpha in its place"),
        ("word", "bpe_dropout is for bpe .* of the kind word. Leave it out"),
    ],
)
def test_a_model_of_the_users_own_of_another_kind_is_refused_before_the_corpus_is_read(kind, message, tmp_path):
    file = write_model(tmp_path / "own.model", [source for source, _ in CORPUS.train], model_type=kind)
    training = SHORT.replace(source_tokenizer=str(file), bpe_dropout=0.1)
    with pytest.raises(ValueError, match=message):
        prepare_run(Unread("numbers", CORPUS.train, CORPUS.valid, []), TRANSFORMER, training)


def test_a_model_of_the_users_own_may_be_divided(tmp_path):
    file = write_model(tmp_path / "own.model", [source for source, _ in CORPUS.train], model_type="bpe")
    training = SHORT.replace(source_tokenizer=str(file), bpe_dropout=0.1)
    assert prepare_run(CORPUS, TRANSFORMER, training).training.bpe_dropout == 0.1


def test_a_corpus_of_symbols_is_refused_before_it_is_read():
    corpus = Unread("sounds", [("a b", "A B")] * 9, [("a", "A")], [], symbols=True)
    with pytest.raises(ValueError, match="tokens of the kind symbols. Leave it out"):
        prepare_run(corpus, toy.TRANSFORMER, SHORT.replace(bpe_dropout=0.1))


def test_the_tokens_of_first_weights_decide():
    corpus = Unread("numbers", CORPUS.train, CORPUS.valid, [])
    with pytest.raises(ValueError, match="bpe_dropout is for bpe .* tokens of the kind symbols. Leave it out"):
        prepare_run(corpus, None, SHORT.replace(bpe_dropout=0.1), initialize_from="cmudict")


@pytest.mark.slow
def test_a_rate_that_ends_with_the_epochs_knows_how_many_batches_divided_texts_make(tmp_path, untraced):
    fields = {"schedule": "linear", "learning_rate": 0.5, "final_learning_rate": 0.1, "warmup_steps": 1}
    training = SHORT.replace(**fields, bpe_dropout=0.5, max_steps=None, max_epochs=1, validation_steps=1)
    report = train(CORPUS, tmp_path / "run", TRANSFORMER, training)
    # A row has the rate of the next update, and that after the last one stays. So the last two rows have the lowest.
    *_, third_last, second_last, last = [float(row["learning_rate"]) for row in course_of(report.run)]
    assert (second_last, last) == pytest.approx((0.1, 0.1))
    assert third_last > 0.11
