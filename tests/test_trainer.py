"""A training run as a whole: what it learns, what it leaves on disk, how it ends and goes on."""

import csv
import dataclasses
import io
import os
import re
import signal
import threading

import numpy as np
import pytest
import rich.console
import toy

from kformer import hardware
from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import corpus_from_pairs
from kformer.evaluation.evaluate import score
from kformer.inference.load import load_model
from kformer.runs.folder import RunFolder
from kformer.training.train import train
from kformer.translation.translator import Translator

pytestmark = pytest.mark.tensorflow_only
SHORT = toy.TRAINING.replace(max_steps=4, validation_steps=2)


def quiet():
    return rich.console.Console(file=io.StringIO(), width=200)


def test_a_tiny_model_learns_the_toy_language(numbers_translator):
    test = toy.corpus().test
    translations = numbers_translator([source for source, _ in test])
    right = sum(translation == target for translation, (_, target) in zip(translations, test, strict=True))
    assert right >= 95


def test_the_run_folder_holds_all_that_is_promised(numbers_run):
    run = RunFolder(numbers_run)
    for path in (run.best_weights_file, run.checkpoint_file, run.corpus_file, run.tokenizer_folder):
        assert path.exists()
    assert list(run.tensorboard_folder.rglob("events.out.tfevents.*"))
    with run.log_file.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(float(row["step"])) for row in rows] == [100, 200, 300]
    assert float(rows[-1]["val_token_loss"]) < float(rows[0]["val_token_loss"])
    assert run.training_config() == toy.TRAINING
    assert run.transformer_config().d_model == toy.TRANSFORMER.d_model
    assert not list(run.path.glob("*partial*"))


def test_at_most_five_in_a_hundred_positions_are_padding(tmp_path):
    # Of these lengths, 24 shapes of batches (the most where XLA compiles each) would leave 6.3 %.
    lengths = np.random.default_rng(1).integers(3, 28, 1000)
    targets = lengths + np.random.default_rng(2).integers(-2, 3, 1000)
    pairs = [(" ".join(["one"] * n), " ".join(["uno"] * m)) for n, m in zip(lengths, targets, strict=True)]
    corpus, console = corpus_from_pairs("lengths", pairs, pairs[:2]), quiet()
    training = SHORT.replace(tokenizer="symbols", tokens_per_batch=64, max_steps=1)
    train(corpus, tmp_path / "run", toy.TRANSFORMER, training, console=console)
    share = re.search(r"([0-9.]+)% of all positions are padding", console.file.getvalue())[1]
    assert 4 < float(share) <= 5


def test_vocabulary_sizes_and_special_ids_come_from_the_tokenizers(tmp_path):
    run = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=quiet()).run
    assert run.transformer_config().source_vocab_size == 320
    assert run.transformer_config().end_id == 2


def test_one_vocabulary_a_side_ties_the_target_matrices_alone(tmp_path):
    training = SHORT.replace(shared_vocabulary=False)
    run = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet()).run
    assert run.transformer_config().embedding_tying == "target"
    assert isinstance(Translator.from_run(run.path)("one two"), str)


def test_the_budget_of_steps_ends_the_run_and_resume_goes_on(tmp_path):
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=quiet())
    assert report.steps == 4
    assert report.reason == "the budget of 4 steps is spent"
    again = train(toy.corpus(), tmp_path / "run", training=SHORT.replace(max_steps=8), resume=True, console=quiet())
    assert again.steps == 8
    with report.run.log_file.open() as file:
        assert [int(float(row["step"])) for row in csv.DictReader(file)] == [2, 4, 6, 8]


def test_a_resumed_run_equals_one_that_was_never_stopped(tmp_path):
    whole = train(toy.corpus(), tmp_path / "whole", toy.TRANSFORMER, SHORT.replace(max_steps=8), console=quiet())
    train(toy.corpus(), tmp_path / "parts", toy.TRANSFORMER, SHORT, console=quiet())
    parts = train(toy.corpus(), tmp_path / "parts", training=SHORT.replace(max_steps=8), resume=True, console=quiet())
    assert parts.best == whole.best


def test_a_spent_budget_is_said_and_nothing_is_trained(tmp_path):
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=quiet())
    before = (tmp_path / "run" / "checkpoint.npz").read_bytes()
    again = train(toy.corpus(), tmp_path / "run", training=SHORT, resume=True, console=quiet())
    assert again.reason == "the budget of 4 steps was spent already"
    assert (tmp_path / "run" / "checkpoint.npz").read_bytes() == before


def test_the_budget_of_epochs_counts_passes_over_the_corpus(tmp_path):
    small = corpus_from_pairs("small", toy.corpus().train[:100])
    training = toy.TRAINING.replace(max_steps=None, max_epochs=2, validation_steps=None, tokens_per_batch=64)
    report = train(small, tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    with report.run.log_file.open() as file:
        assert len(list(csv.DictReader(file))) == 2


def test_the_budget_of_minutes_ends_the_run(tmp_path):
    training = SHORT.replace(max_steps=None, max_minutes=0.02)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    assert report.reason == "the budget of 0.02 minutes is spent"
    assert report.run.best_weights_file.exists()


def test_ctrl_c_ends_the_run_in_good_order(tmp_path):
    run, over = RunFolder(tmp_path / "run"), threading.Event()

    def interrupt():
        while not run.checkpoint_file.exists():
            if over.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        endless = SHORT.replace(max_steps=10**6, patience=10**6)
        report = train(toy.corpus(), run.path, toy.TRANSFORMER, endless, console=quiet())
    finally:
        over.set()
        thread.join()
    assert report.reason == "interrupted"
    assert len(rows_of(run)) >= 1
    assert isinstance(Translator.from_run(run.path)("one"), str)


def test_patience_ends_a_run_that_no_longer_improves(tmp_path):
    training = SHORT.replace(max_steps=10**6, patience=1, learning_rate_scale=1e-9)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    assert report.reason == "1 validations brought no better loss"


def rows_of(run):
    with run.log_file.open() as file:
        return list(csv.DictReader(file))


def test_bleu_of_translations_can_tell_the_best_weights(tmp_path):
    training = toy.TRAINING.replace(monitor="bleu", scored_sources=40, max_steps=120, validation_steps=60)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    assert report.best == max(float(row["val_bleu"]) for row in rows_of(report.run)) > 0
    # The best weights' own greedy translations of the first 40 sources have it.
    translate = load_model(report.run.path, DecodingConfig(beam_size=1))
    assert score(translate, toy.corpus().valid[:40])["bleu"] == pytest.approx(report.best, abs=0.5)


def test_word_error_rate_can_tell_the_best_weights(tmp_path):
    corpus = dataclasses.replace(toy.corpus(), symbols=True)
    training = SHORT.replace(monitor="word_error_rate", scored_sources=7)
    report = train(corpus, tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    assert report.best == min(float(row["val_word_error_rate"]) for row in rows_of(report.run))


def test_a_score_that_does_not_suit_the_corpus_is_refused(tmp_path):
    corpus = dataclasses.replace(toy.corpus(), symbols=True)
    with pytest.raises(ValueError, match="'numbers' is scored by loss, word_error_rate. Received: monitor='bleu'"):
        train(
            corpus, tmp_path / "run", toy.TRANSFORMER, SHORT.replace(monitor="bleu", scored_sources=5), console=quiet()
        )
    assert not (tmp_path / "run").exists()


def test_the_best_model_is_exported_when_it_improves(tmp_path):
    console, exported = quiet(), tmp_path / "exported"
    training = SHORT.replace(max_steps=6)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, export_to=exported, console=console)
    losses = [float(row["val_token_loss"]) for row in rows_of(report.run)]
    records = [loss for number, loss in enumerate(losses) if loss == min(losses[: number + 1])]
    assert sorted(entry.name for entry in exported.iterdir()) == [str(number + 1) for number in range(len(records))]
    assert f"exported {exported / '1'}" in console.file.getvalue()


def test_averaged_weights_are_validated_and_a_resumed_run_goes_on_with_the_trained_ones(tmp_path):
    training = SHORT.replace(max_steps=8, ema_decay=0.9)
    whole = train(toy.corpus(), tmp_path / "whole", toy.TRANSFORMER, training, console=quiet())
    train(toy.corpus(), tmp_path / "parts", toy.TRANSFORMER, training.replace(max_steps=4), console=quiet())
    parts = train(toy.corpus(), tmp_path / "parts", training=training, resume=True, console=quiet())
    plain = train(toy.corpus(), tmp_path / "plain", toy.TRANSFORMER, SHORT.replace(max_steps=8), console=quiet())
    assert parts.best == whole.best != plain.best
    assert rows_of(whole.run)[-1]["token_loss"] == rows_of(plain.run)[-1]["token_loss"]


def test_samples_are_shown_after_each_validation(tmp_path):
    console = quiet()
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, samples=["one two"], console=console)
    assert console.file.getvalue().count("  one two\n  -> ") == 2


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_trains_and_translates_in_float32(tmp_path, precision):
    training = SHORT.replace(precision=precision)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet())
    assert report.best < 7  # finite, and no worse than a uniform guess (ln 320 = 5.8) by much
    assert Translator.from_run(report.run.path).model.dtype_policy.compute_dtype == "float32"


def test_gradient_accumulation_counts_updates(tmp_path):
    training = SHORT.replace(gradient_accumulation_steps=2)
    assert train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, training, console=quiet()).steps == 4


def test_learned_positions_translate_as_much_of_a_text_as_they_reach(tmp_path):
    transformer = toy.TRANSFORMER.replace(positional_encoding="learned", max_length=19)
    training = SHORT.replace(max_length=19)
    run = train(toy.corpus(), tmp_path / "run", transformer, training, samples=["one " * 50], console=quiet()).run
    translator = Translator.from_run(run.path)
    ids = translator.source_tokenizer.tokenize(["one two " * 50])[:, :18]  # and the end
    kept = translator.source_tokenizer.detokenize(ids).numpy()[0].decode()
    assert len(kept) > 18
    assert translator("one two " * 50) == translator(kept)


def test_training_with_fewer_learned_positions_than_tokens_is_refused(tmp_path):
    transformer = toy.TRANSFORMER.replace(positional_encoding="learned", max_length=19)
    with pytest.raises(ValueError, match="has 19 learned positions, and training takes .* 23 tokens. Raise"):
        train(toy.corpus(), tmp_path / "run", transformer, SHORT.replace(max_length=23), console=quiet())
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_settings_leaves_no_run_that_blocks_the_next_one(tmp_path):
    with pytest.raises(ValueError, match="No pair of 1,354 is left: .* Check the texts or raise max_length."):
        train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT.replace(max_length=1), console=quiet())
    assert list(tmp_path.iterdir()) == []


def test_a_budget_of_steps_ends_a_run_though_float16_has_skipped_one(tmp_path, monkeypatch):
    # The optimizer's own count leaves out updates whose gradients overflow.
    monkeypatch.setattr("kformer.training.callbacks.track_state.update_count", lambda optimizer: 3)
    report = train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT.replace(validation_steps=4), console=quiet())
    assert (report.steps, report.reason) == (3, "the budget of 4 steps is spent")


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("product", [True, False])
def test_precision_auto_is_what_the_machine_multiplies(gpu, cpu, product, monkeypatch):
    monkeypatch.setattr(hardware, "has_gpu", lambda: gpu)
    monkeypatch.setattr(hardware, "_cuda_generations", lambda: [9, 8 if product else 7])
    monkeypatch.setattr(hardware, "cpu_multiplies_bfloat16", lambda: cpu)
    multiplies = product if gpu else cpu
    assert hardware.resolve_precision("auto") == ("mixed_bfloat16" if multiplies else "float32")
    assert hardware.resolve_precision("mixed_float16") == "mixed_float16"


def test_an_existing_run_is_not_overwritten(numbers_run):
    with pytest.raises(FileExistsError, match="holds a run already. Go on with it by resume"):
        train(toy.corpus(), numbers_run, toy.TRANSFORMER, SHORT)


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run, so there is nothing to resume"):
        train(toy.corpus(), tmp_path / "none", resume=True)


def test_resuming_on_another_corpus_is_refused(tmp_path):
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=quiet())
    other = corpus_from_pairs("other", toy.corpus().train)
    with pytest.raises(ValueError, match="was trained on another corpus: numbers with 1,354 training pairs"):
        train(other, tmp_path / "run", training=SHORT, resume=True, console=quiet())


def test_resuming_with_another_configuration_is_refused(tmp_path):
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=quiet())
    changed = SHORT.replace(warmup_steps=7, patience=3)
    with pytest.raises(ValueError, match=r"Received for .*run: warmup_steps=7 \(the run has 100\). Leave them out"):
        train(toy.corpus(), tmp_path / "run", training=changed, resume=True, console=quiet())
    with pytest.raises(ValueError, match=r"d_ff=256 \(the run has 128\)"):
        train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER.replace(d_ff=256), resume=True, console=quiet())


def test_a_damaged_checkpoint_is_told_when_a_run_goes_on(tmp_path):
    console, checkpoint = quiet(), RunFolder(tmp_path / "run").checkpoint_file
    train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT, console=console)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    report = train(toy.corpus(), tmp_path / "run", resume=True, console=console)
    assert "The last checkpoint cannot be read" in console.file.getvalue()
    assert "Going on from update 2." in console.file.getvalue()
    assert report.steps == 4


def test_a_corpus_without_validation_is_refused(tmp_path):
    corpus = corpus_from_pairs("mine", toy.corpus().train, [])
    with pytest.raises(ValueError, match="has no valid pairs"):
        train(corpus, tmp_path / "run", TransformerConfig.of_size("tiny"), TrainingConfig.of_size("tiny"))
