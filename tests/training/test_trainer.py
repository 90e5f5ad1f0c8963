"""A training run as a whole: what it learns, what it leaves on disk, how it ends and goes on."""

import csv
import dataclasses
import errno
import functools
import io
import json
import os
import re
import shutil
import signal
import sys
import types

import keras
import numpy as np
import pytest
import rich.console
import toy

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus, corpus_from_pairs, encode_pairs
from kformer.evaluation.evaluate import score
from kformer.files.writing import WriteError
from kformer.inference import Model
from kformer.models import build_transformer
from kformer.process import hardware
from kformer.runs.folder import RunFolder
from kformer.runs.ownership import FolderLostError, RunInUseError, owned
from kformer.runs.weights import load_weights_file
from kformer.tasks.translator import Translator
from kformer.text.parts import divide
from kformer.tokenizers import load_tokenizers
from kformer.training.callbacks import AverageWeights
from kformer.training.compile import compile_model
from kformer.training.new_run import start_run
from kformer.training.plan import plan_batches
from kformer.training.speed import measure_seconds_per_update
from kformer.training.train import train
from kformer.training.user_callbacks import check_callbacks

pytestmark = pytest.mark.tensorflow_only
SHORT = toy.TRAINING.replace(max_steps=4, validation_steps=2)
# Texts of three words in a vocabulary of words: all batches have one shape, and TensorFlow traces a training step once.
WORDS = SHORT.replace(tokenizer="symbols", tokens_per_batch=64, max_length=8)
LONG = WORDS.replace(max_steps=2000, patience=2000)  # longer than any test waits for, and yet not without end


def quiet():
    return rich.console.Console(file=io.StringIO(), width=200)


def three_words():
    parts = {
        part: [pair for pair in getattr(toy.corpus(), part) if len(pair[0].split()) == 3] for part in ("train", "valid")
    }
    return Corpus(name="three words", test=[], **parts)


def train_words(output, training=WORDS, **options):
    return train(three_words(), output, toy.TRANSFORMER, training, console=quiet(), **options)


def rows_of(run):
    with run.log_file.open() as file:
        return list(csv.DictReader(file))


def course_of(run):
    """The rows without the times that they took."""
    return [
        {name: value for name, value in row.items() if name not in ("minutes", "tokens_per_second")}
        for row in rows_of(run)
    ]


def arrays_of(run):
    with np.load(run.checkpoint_file) as file:
        return {name: file[name] for name in file.files if name != "state.json"}


def state_of(run):
    """Where the run stands, without the time that it took."""
    with np.load(run.checkpoint_file) as file:
        return {**json.loads(file["state.json"].tobytes()), "seconds": None}


def label_smoothed_loss(run, weights, pairs, epsilon=0.1):
    """In nats a token: 1 - epsilon on the right token, epsilon / V on every one."""
    model = build_transformer(run.transformer_config(), dtype="float32")
    load_weights_file(weights, model)
    encoded, losses = encode_pairs(pairs, *load_tokenizers(run.tokenizer_folder), max_length=32), []
    for inputs, target_out in BatchPlan(encoded, 1024).once(shuffle_seed=None):
        logits = keras.ops.convert_to_numpy(model(inputs)).astype("float64")  # (B, T, V)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        right = np.take_along_axis(logs, target_out[..., None], axis=-1)[..., 0]
        losses.extend((-(1 - epsilon) * right - epsilon * logs.mean(axis=-1))[target_out != 0])
    return np.mean(losses)


# A model that has learned: the run of conftest.py.


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
    rows = rows_of(run)
    assert [int(float(row["step"])) for row in rows] == [100, 200, 300, 400]
    assert float(rows[-1]["val_token_loss"]) < float(rows[0]["val_token_loss"])
    assert run.training_config() == toy.TRAINING.replace(scored_sources=40)
    assert run.transformer_config().d_model == toy.TRANSFORMER.d_model
    assert not list(run.path.glob("*partial*"))


def test_bleu_of_translations_can_tell_the_best_weights(numbers_run):
    best = max(float(row["val_bleu"]) for row in rows_of(RunFolder(numbers_run)))
    assert best > 90
    # The best weights' own greedy translations of the first 40 sources have it.
    translate = Model(numbers_run, DecodingConfig(beam_size=1))
    assert score(translate, toy.corpus().valid[:40])["bleu"] == pytest.approx(best, abs=0.5)


def test_an_existing_run_is_not_overwritten(numbers_run):
    with pytest.raises(FileExistsError, match="holds a run already. Go on with it by resume"):
        train(toy.corpus(), numbers_run, toy.TRANSFORMER, SHORT)


def test_resuming_on_another_corpus_is_refused(numbers_run):
    corpus = toy.corpus()
    told = "was trained on another corpus: numbers with 1,354 training and 100 validation pairs. Received: "
    with pytest.raises(ValueError, match=told + "other with 1,327 and 27"):
        train(corpus_from_pairs("other", corpus.train), numbers_run, resume=True)
    for part in ("train", "valid"):
        changed = dataclasses.replace(corpus, **{part: [("one", "dos"), *getattr(corpus, part)[1:]]})
        with pytest.raises(ValueError, match=told + "numbers with 1,354 and 100"):
            train(changed, numbers_run, resume=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"warmup_steps": 7, "patience": 3}, r"warmup_steps=7 \(the run has 100\). Leave them out"),
        ({"seed": 2}, r"seed=2 \(the run has 1\). Leave them out"),
    ],
)
def test_resuming_with_another_training_is_refused(numbers_run, changes, told):
    training = RunFolder(numbers_run).training_config().replace(**changes)
    with pytest.raises(ValueError, match="Received values that differ from the run in .*run: " + told):
        train(toy.corpus(), numbers_run, training=training, resume=True)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run of 8 updates whose configuration asks for 32 of warm-up at 0.4 of the paper's rate, and what it said."""
    folder, console = tmp_path_factory.mktemp("fitted") / "run", quiet()
    training = WORDS.replace(warmup_steps=32, learning_rate_scale=0.4, fit_warmup=True, max_steps=8)
    with toy.untraced():
        train(three_words(), folder, toy.TRANSFORMER, training, console=console)
    return folder, training, console.file.getvalue()


def test_a_warmup_is_fitted_to_a_budget_of_steps(fitted):
    folder, training, said = fitted
    # A quarter of 8 is 2. At the update w the rate is scale * (64 * w)**-0.5: 0.1 * 128**-0.5 = 0.4 * 2048**-0.5.
    kept = RunFolder(folder).training_config()
    assert kept == training.replace(warmup_steps=2, learning_rate_scale=0.1, fit_warmup=True, scored_sources=0)
    # The last row has the rate of the next update, the ninth: 0.1 * (64 * 9)**-0.5.
    assert float(rows_of(RunFolder(folder))[-1]["learning_rate"]) == pytest.approx(0.1 / 24, rel=1e-5)
    assert "The warm-up is fitted to the budget: 2 updates instead of 32, with the same peak of the" in said
    assert re.search(r"The budget is 8 updates \(.* passes .*\); the warm-up takes 2 of them \(25%\)\.", said)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("given", [True, False])
def test_a_resumed_run_keeps_its_fitted_warmup(fitted, given, tmp_path):
    folder, training, _ = fitted
    run = RunFolder(shutil.copytree(folder, tmp_path / "run"))
    longer, console = (training if given else run.training_config()).replace(max_steps=12), quiet()
    train(three_words(), run.path, training=longer, resume=True, console=console)
    assert "is fitted to the budget" not in console.file.getvalue()  # it was, when the run began
    kept = run.training_config()
    assert (kept.warmup_steps, kept.learning_rate_scale, kept.max_steps) == (2, 0.1, 12)
    assert float(rows_of(run)[-1]["learning_rate"]) == pytest.approx(0.1 * (64 * 13) ** -0.5, rel=1e-5)


def test_a_warmup_that_is_chosen_is_not_taken_for_the_fitted_one(fitted):
    folder, training, _ = fitted
    chosen = training.replace(fit_warmup=False)
    with pytest.raises(ValueError, match=r"warmup_steps=32 \(the run has 2\)"):
        train(three_words(), folder, training=chosen, resume=True, console=quiet())


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_the_speed_of_a_machine_is_measured_without_a_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    budget = WORDS.replace(max_steps=1)  # does not matter
    seconds = measure_seconds_per_update(three_words(), toy.TRANSFORMER, budget, seconds=0.1)
    assert 0 < seconds < 60
    assert not list(tmp_path.iterdir())


def test_a_measurement_that_a_signal_has_ended_has_no_result(monkeypatch):
    monkeypatch.setattr("kformer.training.speed.train", lambda *arguments, **options: None)
    with pytest.raises(KeyboardInterrupt):
        measure_seconds_per_update(three_words(), toy.TRANSFORMER, WORDS)


def test_a_measurement_is_ended_by_no_budget_and_its_validation_is_short(monkeypatch):
    def trained(corpus, folder, transformer, training, callbacks, console):
        given.append((len(corpus.valid), training.max_epochs, training.max_minutes))
        callbacks[0].set_model(types.SimpleNamespace(stop_training=False))
        callbacks[0].measured(2.5)
        assert callbacks[0].model.stop_training

    given, budget = [], WORDS.replace(max_steps=None, max_epochs=1, max_minutes=2)
    monkeypatch.setattr("kformer.training.speed.train", trained)
    assert measure_seconds_per_update(toy.corpus(), toy.TRANSFORMER, budget) == 2.5
    assert given == [(10, None, None)]


@pytest.mark.usefixtures("untraced")
def test_a_chosen_warmup_stays_and_is_told_to_be_too_long(tmp_path):
    console, training = quiet(), WORDS.replace(warmup_steps=20, learning_rate_scale=0.4, max_steps=8, fit_warmup=False)
    report = train(three_words(), tmp_path / "run", toy.TRANSFORMER, training, console=console)
    assert report.run.training_config().warmup_steps == 20
    said = console.file.getvalue()
    assert "is fitted to the budget" not in said
    assert "; the warm-up takes 20, so the learning rate only reaches 40% of its peak." in said
    # 0.4 * (2 / 20)**0.5 = 0.126
    assert "warmup_steps 2 and learning_rate_scale 0.126 keep the peak" in said


def test_resuming_with_another_transformer_is_refused(numbers_run):
    with pytest.raises(ValueError, match=r"d_ff=256 \(the run has 128\)"):
        train(toy.corpus(), numbers_run, toy.TRANSFORMER.replace(d_ff=256), resume=True)


# One short run with all that must go on exactly: averages, accumulation and dropout.

WHOLE = SHORT.replace(ema_decay=0.9, gradient_accumulation_steps=2, checkpoint_minutes=1e-9)
TRANSFORMER = toy.TRANSFORMER.replace(dropout_rate=0.1)


class Watch(keras.callbacks.Callback):
    """A user's callback, which notes what it sees at each validation."""

    def __init__(self):
        super().__init__()
        self.weights_validated, self.weights_at_end, self.logs = [], [], []

    def on_test_begin(self, logs=None):
        self.weights_validated.append(self.model.get_weights())

    def on_epoch_end(self, epoch, logs=None):
        self.weights_at_end.append(self.model.get_weights())
        self.logs.append(dict(logs))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The report of the run, its output, and what a user's callback has seen."""
    console, watch, folder = quiet(), Watch(), tmp_path_factory.mktemp("whole") / "run"
    options = {"samples": ["one two"], "callbacks": [watch], "console": console}
    with toy.untraced():
        report = train(toy.corpus(), folder, TRANSFORMER, WHOLE, **options)
    return report, console.file.getvalue(), watch


@pytest.mark.slow
@pytest.mark.in_ci
def test_the_budget_of_steps_counts_updates_not_micro_batches(whole):
    report, _, _ = whole
    assert (report.steps, report.reason) == (4, "the budget of 4 steps is spent")
    assert [int(float(row["step"])) for row in rows_of(report.run)] == [2, 4]


def test_vocabulary_sizes_and_special_ids_come_from_the_tokenizers(whole):
    transformer = whole[0].run.transformer_config()
    assert (transformer.source_vocab_size, transformer.end_id) == (320, 2)


def test_the_lengths_of_the_training_texts_are_kept_and_told(whole):
    """A word is a token here. Five of six texts have four words, the longest, and an end."""
    report, output, _ = whole
    search = report.run.decoding_config()
    assert (search.beam_size, search.max_source_length, search.max_sentence_length) == (4, 5, 5)
    ratios = sorted(len(target) / len(source) for source, target in toy.corpus().train)
    assert ratios[0] <= search.short_ratio <= ratios[len(ratios) // 100]
    assert "divides lines of more than 5 source tokens into sentences" in output


def test_samples_are_shown_after_each_validation(whole):
    assert whole[1].count("  one two\n  -> ") == 2


def test_the_tokens_of_an_update_are_told(whole):
    report, output, _ = whole
    told = re.search(r"An update sees ([0-9,]+) source and ([0-9,]+) target tokens on average", output)
    seen = sum(float(row["tokens"]) for row in rows_of(report.run)) / report.steps
    assert float(told[2].replace(",", "")) == pytest.approx(seen, rel=0.15)
    assert "% of all positions are padding" in output
    parameters = build_transformer(report.run.transformer_config()).count_params()
    assert f"{parameters:,} parameters, float32, tensorflow" in output


def test_the_best_weights_are_those_that_had_the_best_metric(whole):
    report, _, _ = whole
    losses = [float(row["val_token_loss"]) for row in rows_of(report.run)]
    assert report.best == min(losses)
    found = label_smoothed_loss(report.run, report.run.best_weights_file, toy.corpus().valid)
    assert found == pytest.approx(report.best, rel=1e-5)


def test_a_callback_of_a_user_sees_the_weights_that_are_validated_and_all_metrics(whole):
    report, _, watch = whole
    model = build_transformer(report.run.transformer_config())
    for file, validated, at_end in zip(
        report.run.kept_weights(), watch.weights_validated, watch.weights_at_end, strict=True
    ):
        load_weights_file(file, model)
        for kept, ours, later in zip(model.get_weights(), validated, at_end, strict=True):
            np.testing.assert_array_equal(ours, kept)
            np.testing.assert_array_equal(later, kept)
    assert [sorted(logs) for logs in watch.logs] == [sorted(set(row) - {"epoch"}) for row in rows_of(report.run)]


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_run_killed_between_validations_goes_on_bit_for_bit(whole, tmp_path):
    class Dies(keras.callbacks.Callback):
        """Before the third batch of the second epoch: the last checkpoint is in the middle of an update."""

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            if (self.epoch, batch) == (1, 2):
                raise KeyboardInterrupt

    run, console = RunFolder(tmp_path / "run"), quiet()
    with pytest.raises(KeyboardInterrupt):
        train(toy.corpus(), run.path, TRANSFORMER, WHOLE, callbacks=[Dies()], console=console)
    report = train(toy.corpus(), run.path, resume=True, console=console)
    assert "Going on from update 2." in console.file.getvalue()
    assert (report.best, report.reason) == (whole[0].best, whole[0].reason)
    assert course_of(run) == course_of(whole[0].run)
    ours, theirs = arrays_of(run), arrays_of(whole[0].run)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    "changes",
    [
        {
            **{"optimizer": "adamw", "weight_decay": 0.1, "gradient_clip_norm": 0.5, "schedule": "cosine"},
            **{"max_steps": None, "max_epochs": 1, "ema_decay": 0.5},  # 14 batches, in 7 updates
        },
        {"optimizer": "adafactor", "schedule": "constant", "max_steps": 4},
    ],
    ids=["adamw, cosine, clipped", "adafactor"],
)
def test_a_run_with_another_optimizer_and_rate_goes_on_bit_for_bit(changes, tmp_path):
    fields = {"learning_rate": 0.05, "warmup_steps": 2, "gradient_accumulation_steps": 2}
    training = WORDS.replace(**fields, **changes)
    whole = train_words(tmp_path / "whole", training)
    stopped = train_words(tmp_path / "run", training, callbacks=[Signals("batch", 6)])  # in the middle of an update
    assert (stopped.interrupted, stopped.steps) == (True, 2)
    report = train_words(tmp_path / "run", training, resume=True)
    assert (report.steps, report.best, report.reason) == (whole.steps, whole.best, whole.reason)
    ours, theirs = arrays_of(report.run), arrays_of(whole.run)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert course_of(report.run) == course_of(whole.run)


@pytest.mark.usefixtures("untraced")
def test_a_rate_that_ends_with_the_budget_ends_with_the_larger_budget_of_a_resume(tmp_path):
    training = WORDS.replace(schedule="linear", learning_rate=0.5, warmup_steps=1, max_steps=3, validation_steps=1)
    begun, resumed = quiet(), quiet()
    train(three_words(), tmp_path / "run", toy.TRANSFORMER, training, console=begun)
    assert "The learning rate falls to 0 at update 3, the last of the budget." in begun.file.getvalue()
    report = train(
        three_words(), tmp_path / "run", training=training.replace(max_steps=6), resume=True, console=resumed
    )
    assert "The learning rate falls to 0 at update 6, the last of the budget." in resumed.file.getvalue()
    # A row has the rate of the next update. From 0.5 at update 1 the rate fell by a half of that at each update; now
    # it falls by a fifth, as in a run with six updates.
    rates = [float(row["learning_rate"]) for row in rows_of(report.run)]
    assert rates == pytest.approx([0.25, 0.0, 0.0, 0.1, 0.0, 0.0], abs=1e-6)


@pytest.mark.usefixtures("untraced")
def test_a_rate_ends_with_a_budget_of_epochs(tmp_path):
    fields = {"schedule": "linear", "learning_rate": 0.5, "warmup_steps": 1, "final_learning_rate": 0.1}
    training = WORDS.replace(**fields, max_steps=None, max_epochs=1, gradient_accumulation_steps=3)
    console = quiet()
    report = train(three_words(), tmp_path / "run", toy.TRANSFORMER, training, console=console)
    assert report.steps == 4  # 187 texts in batches of 16 are 11.7 batches, and three are an update
    assert "The learning rate falls to 0.1 at update 4, the last of the budget." in console.file.getvalue()
    # Each of three updates takes a third of 0.4. The row of an update has the rate of the next one.
    rates = {int(float(row["step"])): float(row["learning_rate"]) for row in rows_of(report.run)}
    assert rates == pytest.approx({2: 0.5 - 0.4 * 2 / 3, 4: 0.1})


def test_a_spent_budget_is_said_and_nothing_is_trained(whole, tmp_path):
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    before = run.checkpoint_file.read_bytes()
    again = train(toy.corpus(), run.path, training=WHOLE, resume=True, console=quiet())
    assert again.reason == "the budget of 4 steps was spent already; raise it to go on"
    minutes = WHOLE.replace(max_steps=None, max_minutes=0.0001)  # those before the resume count
    again = train(toy.corpus(), run.path, training=minutes, resume=True, console=quiet())
    assert again.reason == "the budget of 0.0001 minutes was spent already; raise it to go on"
    again = train(toy.corpus(), run.path, resume=True, console=quiet())  # with the budget that was given last
    assert again.reason == "the budget of 0.0001 minutes was spent already; raise it to go on"
    assert run.checkpoint_file.read_bytes() == before


@pytest.mark.usefixtures("untraced")
def test_a_damaged_checkpoint_is_told_when_a_run_goes_on(whole, tmp_path):
    """By its name, which may hold brackets."""
    run, console = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run[b]")), quiet()
    run.checkpoint_file.write_bytes(run.checkpoint_file.read_bytes()[:-100])
    report = train(toy.corpus(), run.path, resume=True, console=console)
    assert "The last checkpoint cannot be read" in console.file.getvalue()
    assert "run[b]/checkpoint.npz is not a kformer checkpoint" in console.file.getvalue()
    assert "Going on from update 4." in console.file.getvalue()  # before the last validation
    assert (report.steps, report.best, report.reason) == (4, whole[0].best, "the budget of 4 steps is spent")
    assert course_of(run) == course_of(whole[0].run)


# How runs end.


@pytest.mark.parametrize(
    ("file", "field", "value", "told"),
    [
        ("training", "seed", 2, r"training.json was edited since the last checkpoint: seed=2 \(the checkpoint has 1\)"),
        ("training", "tokens_per_batch", 512, r"tokens_per_batch=512 \(the checkpoint has 1024\). Put the values back"),
        (
            "transformer",
            "norm_first",
            True,
            r"transformer.json was .*norm_first=True \(the checkpoint has False\)",
        ),
        ("training", "max_steps", 9, r"training.json does not match its checksum in SHA256SUMS"),
        (
            "training",
            "seed",
            None,
            r"training.json was edited .*: seed=1 \(the checkpoint has 3\)",
        ),
    ],
)
def test_a_configuration_edited_between_stop_and_resume_is_refused(file, field, value, told, whole, tmp_path):
    """None as the value takes the field out, so that today's default would count."""
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    path = run.path / f"{file}.json"
    values = json.loads(path.read_text())
    if value is None:
        del values[field]
        state = json.loads((arrays := dict(np.load(run.checkpoint_file)))["state.json"].tobytes())
        state["training"][field] = 3
        arrays["state.json"] = np.frombuffer(json.dumps(state).encode(), "uint8")
        np.savez(run.checkpoint_file, **arrays)
    else:
        values[field] = value
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=told):
        train(toy.corpus(), run.path, resume=True, console=quiet())


def test_a_checkpoint_of_a_run_on_another_corpus_is_refused(whole, tmp_path):
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    state = json.loads((arrays := dict(np.load(run.checkpoint_file)))["state.json"].tobytes())
    arrays["state.json"] = np.frombuffer(json.dumps({**state, "corpus": "0" * 64}).encode(), "uint8")
    np.savez(run.checkpoint_file, **arrays)
    with pytest.raises(ValueError, match=r"checkpoint.npz is of a run on another corpus. Put back the checkpoint"):
        train(toy.corpus(), run.path, resume=True, console=quiet())


def test_a_description_of_the_corpus_without_its_fingerprint_is_refused(whole, tmp_path):
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    run.corpus_file.write_text('{"name": "toy"}')
    with pytest.raises(ValueError, match="corpus.json does not match its checksum"):
        train(toy.corpus(), run.path, resume=True, console=quiet())


@pytest.mark.parametrize(
    "spoil", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")], ids=["removed", "damaged"]
)
def test_lost_checkpoints_are_told_and_the_weights_stay(spoil, whole, tmp_path):
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    before = run.best_weights_file.read_bytes()
    for file in run.path.glob("*checkpoint.npz"):
        spoil(file)
    with pytest.raises(FileNotFoundError, match="has weights, but no readable checkpoint: it was removed or damaged"):
        train(toy.corpus(), run.path, resume="auto", console=quiet())
    assert run.best_weights_file.read_bytes() == before
    kept = run.weights_folder.rename(tmp_path / "kept")
    with pytest.raises(FileNotFoundError, match="has weights, but no readable checkpoint: it was removed or damaged"):
        train(toy.corpus(), run.path, resume="auto", console=quiet())
    kept.rename(run.weights_folder)
    run.best_weights_file.unlink()  # those of the last validations are still there
    with pytest.raises(FileNotFoundError, match="has weights, but no readable checkpoint: it was removed or damaged"):
        train(toy.corpus(), run.path, resume="auto", console=quiet())
    assert len(run.kept_weights()) == 2


@pytest.mark.parametrize("lost", [True, False])
def test_lost_or_damaged_best_weights_are_told_before_a_run_goes_on(lost, whole, tmp_path):
    run = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run"))
    data = bytearray(run.best_weights_file.read_bytes())
    data[-100] ^= 1
    run.best_weights_file.write_bytes(data)
    if lost:
        run.best_weights_file.unlink()
    told = "has no best.weights.h5: somebody removed it" if lost else "best.weights.h5 does not match its checksum"
    with pytest.raises((FileNotFoundError, ValueError), match=f"{told}.*average .* NEW --last 1"):
        train(toy.corpus(), run.path, resume=True, console=quiet())


@pytest.mark.usefixtures("untraced")
def test_a_run_whose_folder_is_moved_ends_and_writes_nothing_in_its_place(tmp_path):
    def move(callback):
        (tmp_path / "run").rename(tmp_path / "moved")

    with pytest.raises(FolderLostError, match="was moved or removed while this process worked there"):
        train_words(tmp_path / "run", LONG.replace(validation_steps=100), callbacks=[AtBatch(1, move)])
    assert [entry.name for entry in tmp_path.iterdir()] == ["moved"]


def test_a_signal_during_the_preparation_ends_the_run_before_its_first_batch(tmp_path, monkeypatch, capfd):
    compiled = compile_model

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        compiled(*arguments)

    monkeypatch.setattr("kformer.training.build_run.compile_model", interrupted)
    report = train_words(tmp_path / "run")
    assert (report.steps, report.reason, report.interrupted) == (0, "interrupted", True)
    assert "kformer: saving the run after this preparation." in capfd.readouterr().err


@pytest.mark.usefixtures("untraced")
def test_a_name_may_hold_brackets(tmp_path):
    corpus, console = dataclasses.replace(three_words(), name="a[/b]"), quiet()
    train(corpus, tmp_path / "run", toy.TRANSFORMER, SHORT.replace(max_steps=1), console=console)
    assert "a[/b] train: " in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
def test_the_validation_pairs_are_called_by_the_name_of_their_file(tmp_path):
    corpus, console = dataclasses.replace(three_words(), name="pairs.tsv", valid_name="dev.tsv"), quiet()
    train(corpus, tmp_path / "run", toy.TRANSFORMER, SHORT.replace(max_steps=1), console=console)
    said = console.file.getvalue()
    assert f"pairs.tsv train: {len(corpus.train)} pairs kept" in said
    assert f"dev.tsv valid: {len(corpus.valid)} pairs kept" in said


@pytest.mark.usefixtures("untraced")
def test_auto_begins_a_run_and_then_goes_on_with_it(tmp_path):
    begun = train_words(tmp_path / "run", WORDS.replace(max_steps=2), resume="auto")
    assert [int(float(row["step"])) for row in rows_of(begun.run)] == [2]
    report = train_words(tmp_path / "run", WORDS, resume="auto", summary=tmp_path / "end.json")
    assert [int(float(row["step"])) for row in rows_of(report.run)] == [2, 4]
    assert json.loads((tmp_path / "end.json").read_text()) == {
        "exit_status": 0,
        "reason": "the budget of 4 steps is spent",
        "steps": 4,
        "best": report.best,
        "monitor": "loss",
        "run": str(report.run.path),
        "weights": str(report.run.best_weights_file),
        "checkpoint": str(report.run.checkpoint_file),
    }


def test_the_budget_of_epochs_counts_passes_over_the_corpus(tmp_path):
    # 216 texts in batches of 16 rows: 13.5 batches an epoch, which are two to an update.
    training = WORDS.replace(max_steps=None, max_epochs=2, validation_steps=None, gradient_accumulation_steps=2)
    report = train_words(tmp_path / "run", training)
    tokens = [float(row["tokens"]) for row in rows_of(report.run)]
    pairs = len(three_words().train)
    assert len(tokens) == 1  # validations: two epochs have fewer than 50 updates
    assert sum(tokens) == pytest.approx(2 * 4 * pairs, rel=0.1)


@pytest.mark.usefixtures("untraced")
def test_the_budget_of_minutes_ends_the_run(tmp_path):
    report = train_words(tmp_path / "run", LONG.replace(max_minutes=0.02))
    assert report.reason == "the budget of 0.02 minutes is spent"
    assert report.run.best_weights_file.exists()


class AtBatch(keras.callbacks.Callback):
    """Does something when a batch begins."""

    def __init__(self, batch, action):
        super().__init__()
        self.batch, self.action = batch, action

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.batch:
            self.action(self)


STOPPED = WORDS.replace(
    **{"max_steps": 6, "validation_steps": 2, "gradient_accumulation_steps": 2, "ema_decay": 0.9, "keep_weights": 2},
    **{"scored_sources": 40, "monitor": "word_error_rate", "patience": 3},
)


class Signals(keras.callbacks.Callback):
    """Sends SIGINT at a moment: before a batch, when a validation begins, or at its end, where it is scored."""

    def __init__(self, hook, number):
        super().__init__()
        self.hook, self.number, self.seen = hook, number, 0

    def _count(self, hook):
        self.seen += hook == self.hook
        if hook == self.hook and self.seen == self.number:
            os.kill(os.getpid(), signal.SIGINT)

    def on_train_batch_begin(self, batch, logs=None):
        self._count("batch")

    def on_test_begin(self, logs=None):
        self._count("validation")

    def on_test_end(self, logs=None):
        self._count("scores")

    def on_epoch_end(self, epoch, logs=None):
        self._count("end")


@pytest.mark.usefixtures("untraced")
def test_a_run_that_has_done_more_than_an_epoch_of_this_machine_validates_after_the_next_batch(tmp_path, monkeypatch):
    training = WORDS.replace(max_steps=8, validation_steps=4)
    stopped = train_words(tmp_path / "run", training, callbacks=[Signals("batch", 4)])
    assert (stopped.reason, stopped.steps) == ("interrupted", 3)
    monkeypatch.setattr("kformer.training.fit_run.batches_between_validations", lambda training, plan: 2)
    report = train_words(tmp_path / "run", training, resume=True)
    assert [int(float(row["step"])) for row in rows_of(report.run)] == [4, 6, 8]


# The run is resumed after each of these moments and stopped at the next one: between the two batches of an update, in a
# validation, before the first batch of an epoch, at an epoch's end, and while the budget's last validation is scored.
MOMENTS = [("batch", 2), ("validation", 1), ("batch", 1), ("end", 1), ("scores", 1)]


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_run_that_was_stopped_again_and_again_takes_the_course_of_one_that_was_not(tmp_path):
    undisturbed = train_words(tmp_path / "undisturbed", STOPPED)
    for moment in MOMENTS:
        stopped = train_words(tmp_path / "run", STOPPED, resume="auto", callbacks=[Signals(*moment)])
        assert stopped.reason == ("interrupted" if stopped.steps < 6 else undisturbed.reason)
    seen = []  # by a callback that is there for the last validation alone
    look = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append("begins"),
        on_epoch_end=lambda epoch, logs: seen.append(f"epoch {epoch}"),
        on_train_end=lambda logs: seen.append("ends"),
    )
    report = train_words(tmp_path / "run", STOPPED, resume=True, callbacks=[look])
    assert seen == ["begins", "epoch 2", "ends"]
    assert (report.steps, report.best, report.reason) == (6, undisturbed.best, undisturbed.reason)
    ours, theirs = arrays_of(report.run), arrays_of(undisturbed.run)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert course_of(report.run) == course_of(undisturbed.run)
    assert state_of(report.run) == state_of(undisturbed.run)
    for file, theirs in zip(report.run.kept_weights(), undisturbed.run.kept_weights(), strict=True):
        assert file.name == theirs.name
        for ours, whole in zip(weights_in(report.run, file), weights_in(report.run, theirs), strict=True):
            np.testing.assert_array_equal(ours, whole)


def weights_in(run, file):
    model = build_transformer(run.transformer_config(), dtype="float32")
    load_weights_file(file, model)
    return model.get_weights()


@pytest.mark.usefixtures("untraced")
def test_ctrl_c_is_acknowledged(tmp_path, capfd):
    interrupt = AtBatch(1, lambda callback: os.kill(os.getpid(), signal.SIGINT))
    options = {"callbacks": [interrupt], "summary": tmp_path / "end.json"}
    report = train_words(tmp_path / "run", LONG.replace(validation_steps=100), **options)
    assert (report.steps, report.reason, report.interrupted) == (1, "interrupted", True)
    summary = json.loads((tmp_path / "end.json").read_text())
    assert (summary["exit_status"], summary["reason"], summary["weights"]) == (75, "interrupted", None)
    assert "kformer: saving the run after this step" in capfd.readouterr().err


def signal_at(batch, number):
    return AtBatch(batch, lambda callback: os.kill(os.getpid(), number))


@pytest.mark.usefixtures("untraced")
def test_a_further_signal_stops_the_run(tmp_path):
    former = signal.signal(signal.SIGUSR1, lambda number, frame: pytest.fail("Nobody handled the signal."))
    try:
        options = {"callbacks": [signal_at(1, signal.SIGUSR1)], "stop_signals": [signal.SIGUSR1]}
        report = train_words(tmp_path / "run", LONG.replace(validation_steps=100), **options)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert (report.steps, report.reason, report.interrupted) == (1, "interrupted", True)


@pytest.mark.usefixtures("untraced")
def test_sigterm_ends_the_process_when_the_folder_is_free(tmp_path):
    owner, lock = [], tmp_path / "run" / "lock"
    former = signal.signal(signal.SIGTERM, lambda number, frame: owner.append(lock.read_text()))
    try:
        train_words(tmp_path / "run", LONG.replace(validation_steps=100), callbacks=[signal_at(1, signal.SIGTERM)])
    finally:
        signal.signal(signal.SIGTERM, former)
    assert owner == [""]


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path):
    with owned(tmp_path / "run"):
        with pytest.raises(RunInUseError, match="Another process works in"):
            train_words(tmp_path / "run", resume="auto")
        assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["lock"]


def test_an_owner_that_was_killed_is_told(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").write_text(json.dumps({"host": "far", "process": 7, "since": "2020"}))
    console = quiet()
    with pytest.raises(ValueError, match="No pair"):  # a mistake, so that nothing is trained here
        train(three_words(), tmp_path / "run", toy.TRANSFORMER, LONG.replace(max_length=1), console=console)
    assert "process 7 on far since 2020, ended without notice" in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
def test_a_full_disk_names_the_update_and_the_remedy(tmp_path):
    def full(callback):
        raise OSError(errno.ENOSPC, "No space left on device")

    told = "No space left on device. The run ended at update 1. .* undamaged: remove the cause"
    with pytest.raises(WriteError, match=told):
        train_words(tmp_path / "run", LONG.replace(validation_steps=100), callbacks=[AtBatch(1, full)])


@pytest.mark.usefixtures("untraced")
def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    def killed(callback):
        raise KeyboardInterrupt

    console = quiet()
    with pytest.raises(KeyboardInterrupt):
        train_words(tmp_path / "run", callbacks=[AtBatch(1, killed)])
    run = RunFolder(tmp_path / "run")
    assert run.exists()
    assert not run.checkpoint_file.exists()
    report = train(three_words(), run.path, resume=True, console=console)
    assert "There is no checkpoint yet: the run begins again." in console.file.getvalue()
    assert report.steps == 4


def test_a_run_killed_between_the_renamings_of_two_checkpoints_goes_on(whole, tmp_path):
    run, console = RunFolder(shutil.copytree(whole[0].run.path, tmp_path / "run")), quiet()
    run.checkpoint_file.unlink()  # its new content did not get its name yet
    train(toy.corpus(), run.path, resume=True, console=console)
    assert "Going on from update 4." in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
def test_a_callback_of_a_user_can_end_the_run(tmp_path):
    stop = AtBatch(2, lambda callback: setattr(callback.model, "stop_training", True))
    report = train_words(tmp_path / "run", LONG.replace(validation_steps=100), callbacks=[stop])
    assert (report.steps, report.reason) == (3, "the callback AtBatch stopped the training")
    assert report.run.best_weights_file.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_patience_ends_a_run_of_which_each_better_model_was_exported(tmp_path):
    console, exported = quiet(), tmp_path / "exported"
    corpus = dataclasses.replace(three_words(), symbols=True)
    # So small a rate changes nothing: the second validation scores what the first one did.
    training = LONG.replace(monitor="word_error_rate", scored_sources=7, patience=1, learning_rate_scale=1e-9)
    report = train(corpus, tmp_path / "run", toy.TRANSFORMER, training, export_to=exported, console=console)
    assert (report.steps, report.reason) == (4, "1 validation brought no better word error rate")
    assert [float(row["val_word_error_rate"]) for row in rows_of(report.run)] == [report.best] * 2
    assert [entry.name for entry in exported.iterdir() if entry.is_dir()] == ["1"]
    assert f"exported {exported / '1'}" in console.file.getvalue()


def chinese_numbers():
    """The toy's corpus with Chinese numerals as targets, without blanks: "one two three" is 三二一."""
    numerals = dict(zip(toy.WORDS.values(), "一二三四五六", strict=True))
    corpus = toy.corpus()
    parts = {
        part: [(source, "".join(numerals[word] for word in target.split())) for source, target in getattr(corpus, part)]
        for part in ("train", "valid")
    }
    return Corpus(name="Chinese numbers", test=[], **parts)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_as_long_as_bleu_is_zero_the_loss_decides_and_patience_does_not_end_the_run(tmp_path):
    console, corpus = quiet(), chinese_numbers()
    training = SHORT.replace(max_steps=6, monitor="bleu", scored_sources=5, patience=1, bleu_tokenizer="13a")
    report = train(corpus, tmp_path / "run", toy.TRANSFORMER, training, console=console)
    assert (report.steps, report.reason, report.best) == (6, "the budget of 6 steps is spent", 0.0)
    assert [float(row["val_bleu"]) for row in rows_of(report.run)] == [0.0] * 3  # each target is one word
    losses = [float(row["val_token_loss"]) for row in rows_of(report.run)]
    assert min(losses) < losses[0]
    kept = label_smoothed_loss(report.run, report.run.best_weights_file, corpus.valid)
    assert kept == pytest.approx(min(losses), rel=1e-4)
    assert "BLEU is 0.0 for every translation of the validation sources" in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
def test_a_tokenizer_that_this_machine_lacks_is_told_before_a_run_goes_on(tmp_path, monkeypatch):
    training = SHORT.replace(max_steps=1, monitor="chrf", scored_sources=5)
    run = RunFolder(tmp_path / "run")
    start_run(run, chinese_numbers(), toy.TRANSFORMER, training)  # and killed before the first checkpoint
    monkeypatch.setitem(sys.modules, "MeCab", None)
    training = training.replace(max_steps=2, bleu_tokenizer="ja-mecab")
    batches = []
    counter = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))
    with pytest.raises(ValueError, match="ja-mecab"):
        train(chinese_numbers(), run.path, training=training, resume=True, callbacks=[counter])
    assert batches == []


@pytest.mark.usefixtures("untraced")
def test_bleu_counts_the_characters_of_chinese_targets(tmp_path):
    console = quiet()
    training = SHORT.replace(max_steps=1, monitor="bleu", scored_sources=5)
    train(chinese_numbers(), tmp_path / "run", toy.TRANSFORMER, training, console=console)
    assert "BLEU splits texts into words by sacreBLEU's tokenizer zh." in console.file.getvalue()
    assert "BLEU is 0.0" not in console.file.getvalue()


@pytest.mark.usefixtures("untraced")
def test_a_budget_of_steps_ends_a_run_though_float16_has_skipped_some(tmp_path, monkeypatch):
    # So large a scale overflows: Keras halves it, and leaves the weights as they are.
    scaled = functools.partial(keras.optimizers.LossScaleOptimizer, initial_scale=2.0**30)
    monkeypatch.setattr(keras.optimizers, "LossScaleOptimizer", scaled)
    report = train_words(tmp_path / "run", WORDS.replace(precision="mixed_float16", validation_steps=4, ema_decay=0.9))
    assert report.reason == "the budget of 4 steps is spent"
    assert report.steps == float(rows_of(report.run)[0]["step"]) == 0


# What the configuration says is done.


@pytest.fixture(scope="module")
def learned_in_float32(tmp_path_factory):
    """The loss of each of two validations, between which something is learned."""
    training = WORDS.replace(max_steps=60, validation_steps=30)
    return losses_of(train_words(tmp_path_factory.mktemp("float32") / "run", training))


def losses_of(report):
    return [float(row["val_token_loss"]) for row in rows_of(report.run)]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [pytest.param("mixed_bfloat16", marks=pytest.mark.in_ci), "mixed_float16"])
def test_low_precision_learns_as_float32_does_and_translates_in_float32(tmp_path, precision, learned_in_float32):
    training = WORDS.replace(max_steps=60, validation_steps=30, precision=precision)
    report = train_words(tmp_path / "run", training)
    losses = losses_of(report)
    assert losses[-1] < losses[0] - 0.2
    assert losses == pytest.approx(learned_in_float32, rel=0.02)
    assert losses != learned_in_float32
    assert Translator.from_run(report.run.path).model.dtype_policy.compute_dtype == "float32"


def first_batch(output, monkeypatch, seed):
    """What `fit` would be given first."""
    given = []
    monkeypatch.setattr(keras.Model, "fit", lambda self, batches, **arguments: given.append(next(iter(batches))))
    train_words(output, WORDS.replace(seed=seed))
    return given[0][1].numpy()


def test_the_seed_decides_the_order_of_the_batches(tmp_path, monkeypatch):
    batches = [first_batch(tmp_path / str(number), monkeypatch, seed) for number, seed in enumerate((1, 1, 2))]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert not np.array_equal(batches[0], batches[2])


@pytest.mark.usefixtures("untraced")
def test_the_seed_decides_the_first_weights(tmp_path):
    look = WORDS.replace(max_steps=1, validation_steps=1, learning_rate_scale=1e-9)  # next to nothing is learned
    losses = []
    for number, seed in enumerate((1, 1, 2)):
        train_words(tmp_path / str(number), look.replace(seed=seed))
        losses.append(float(rows_of(RunFolder(tmp_path / str(number)))[0]["val_token_loss"]))
    assert losses[0] == losses[1]
    assert abs(losses[0] - losses[2]) > 1e-3


@pytest.mark.usefixtures("untraced")
def test_micro_batches_of_unequal_sizes_make_the_update_of_one_big_batch(tmp_path):
    """An update is the mean over its tokens, however they are divided: 24 texts of four words, and 24 of one."""
    long, short = ([pair for pair in toy.corpus().train if len(pair[0].split()) == words][:24] for words in (4, 1))
    corpus = Corpus(name="long and short", train=long + short * (24 // len(short)), valid=long, test=[])
    training = SHORT.replace(tokenizer="symbols", max_length=8, warmup_steps=4)
    losses = []
    for name, changes in {
        "big": {"tokens_per_batch": 48 * 5},
        "micro": {"tokens_per_batch": 24 * 5, "gradient_accumulation_steps": 2},
    }.items():
        report = train(corpus, tmp_path / name, toy.TRANSFORMER, training.replace(**changes), console=quiet())
        assert report.steps == 4
        losses.append(float(rows_of(report.run)[-1]["val_token_loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.usefixtures("untraced")
def test_an_error_gives_the_cursor_of_the_terminal_back(tmp_path):
    def broken(batch, logs):
        raise RuntimeError("broken")

    console = rich.console.Console(file=io.StringIO(), force_terminal=True, width=80)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=broken)
    callback.async_safe = True
    with pytest.raises(RuntimeError, match="broken"):
        train(three_words(), tmp_path / "run", toy.TRANSFORMER, WORDS, callbacks=[callback], console=console)
    hidden, shown = (console.file.getvalue().count(f"\x1b[?25{letter}") for letter in "lh")
    assert hidden == shown == 1


def test_at_most_five_in_a_hundred_positions_are_padding(make_pairs_of_lengths):
    # Of these lengths, 24 shapes of batches (the most where XLA compiles each) would leave 6.3 %.
    assert 0.04 < plan_batches(make_pairs_of_lengths, SHORT.replace(tokens_per_batch=64)).padding_share <= 0.05


@pytest.fixture
def make_pairs_of_lengths():
    """A thousand pairs of 3 to 27 words, in tokens that are words."""
    from kformer.tokenizers import SymbolTokenizer

    lengths = np.random.default_rng(1).integers(3, 28, 1000)
    targets = lengths + np.random.default_rng(2).integers(-2, 3, 1000)
    pairs = [(" ".join(["one"] * n), " ".join(["uno"] * m)) for n, m in zip(lengths, targets, strict=True)]
    return encode_pairs(pairs, SymbolTokenizer(["one"]), SymbolTokenizer(["uno"]), max_length=32)


@pytest.mark.slow
@pytest.mark.in_ci
@pytest.mark.usefixtures("untraced")
def test_learned_positions_translate_a_long_text_in_parts_that_they_reach(tmp_path):
    transformer = toy.TRANSFORMER.replace(positional_encoding="learned", max_length=19)
    training = SHORT.replace(max_length=19, max_steps=1, shared_vocabulary=False)
    run = train(toy.corpus(), tmp_path / "run", transformer, training, samples=["one " * 50], console=quiet()).run
    assert run.transformer_config().embedding_tying == "target"  # of two vocabularies
    translator = Translator.from_run(run.path, DecodingConfig(max_source_length=99))  # more than there are positions
    text = "one two " * 50
    assert len(translator.source_tokenizer.tokenize([text])[0]) > 19
    parts = divide([text], translator.source_tokenizer, 18, 18)  # and the end
    texts = [part.decode() for part in translator.source_tokenizer.detokenize(parts.ids).numpy()]
    assert " ".join(texts) == text.strip()
    assert translator(text) == " ".join(translator(texts))


# What is refused before anything is written.


def test_a_score_that_does_not_suit_the_corpus_is_refused(tmp_path):
    corpus = dataclasses.replace(toy.corpus(), symbols=True)
    told = "'numbers', of symbols, is scored by loss, .*, word_error_rate, phoneme_error_rate. Received: monitor='bleu'"
    with pytest.raises(ValueError, match=told):
        train(corpus, tmp_path / "run", toy.TRANSFORMER, SHORT.replace(monitor="bleu", scored_sources=5))
    assert not (tmp_path / "run").exists()


def test_training_with_fewer_learned_positions_than_tokens_is_refused(tmp_path):
    transformer = toy.TRANSFORMER.replace(positional_encoding="learned", max_length=19)
    with pytest.raises(ValueError, match="has 19 learned positions, and training takes .* 23 tokens. Raise"):
        train(toy.corpus(), tmp_path / "run", transformer, SHORT.replace(max_length=23), console=quiet())
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_the_settings_leaves_no_run_that_blocks_the_next_one(tmp_path):
    with pytest.raises(ValueError, match="train: No pair of 1,354 is left: .* Check the texts or raise max_length."):
        train(toy.corpus(), tmp_path / "run", toy.TRANSFORMER, SHORT.replace(max_length=1), console=quiet())
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run, so there is nothing to resume"):
        train(toy.corpus(), tmp_path / "none", resume=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corpus": [("one", "uno")]}, r"corpus must be a kformer.data.Corpus. Received: a list. .*corpus_from_pairs"),
        ({"training": {"max_steps": 2}}, r"training must be a kformer.TrainingConfig. Received: \{'max_steps': 2\}"),
        ({"transformer": "tiny"}, r"transformer must be a kformer.TransformerConfig. Received: 'tiny'"),
        ({"callbacks": [keras.callbacks.Callback]}, r"callbacks must be instances of keras.callbacks.Callback."),
    ],
)
def test_an_argument_of_another_class_is_refused_before_anything_is_written(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(**{"corpus": three_words(), "output": tmp_path / "run", **arguments})
    assert not (tmp_path / "run").exists()


class OwnBackup(keras.callbacks.BackupAndRestore):
    """A user's own kind of it."""


SCHEDULED = "the learning rate follows a schedule and cannot be set.*choose schedule and warmup_steps"
ASSIGNS = (
    "it assigns weights in the middle of a run, so that a resumed run would give other results than one "
    "without a stop.*"
)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (keras.callbacks.LearningRateScheduler(lambda epoch: 0.1), f"LearningRateScheduler: {SCHEDULED}"),
        (keras.callbacks.ReduceLROnPlateau(), f"ReduceLROnPlateau: {SCHEDULED}"),
        (OwnBackup("backup"), f"OwnBackup: {ASSIGNS}the run saves its own checkpoints"),
        (keras.callbacks.SwapEMAWeights(), f"SwapEMAWeights: {ASSIGNS}set ema_decay in training"),
        (AverageWeights(), f"AverageWeights: {ASSIGNS}set ema_decay in training"),
        (
            keras.callbacks.EarlyStopping(restore_best_weights=True),
            f"EarlyStopping with restore_best_weights=True: {ASSIGNS}set patience in training",
        ),
        (
            keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
            "ModelCheckpoint with save_best_only=True: .* replace its file by worse weights. Leave it out: the run",
        ),
    ],
)
@pytest.mark.parametrize("resume", [False, "auto"])
def test_a_callback_that_no_resumed_run_can_have_is_refused_before_the_first_step(callback, message, resume, tmp_path):
    with pytest.raises(ValueError, match=f"A run cannot have the callback {message}"):
        train(three_words(), tmp_path / "run", callbacks=[callback], resume=resume)
    assert not (tmp_path / "run").exists()


def test_callbacks_that_only_look_or_end_a_run_are_taken():
    check_callbacks(
        [keras.callbacks.EarlyStopping(), keras.callbacks.ModelCheckpoint("a.keras"), keras.callbacks.Callback()]
    )


def test_a_file_is_refused_as_the_folder_of_exports_before_anything_is_written(tmp_path):
    (tmp_path / "exported").touch()
    with pytest.raises(OSError, match="exported"):
        train_words(tmp_path / "run", export_to=tmp_path / "exported")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["train", "valid"])
def test_a_corpus_without_pairs_to_train_or_to_validate_on_is_refused(part, tmp_path):
    corpus = dataclasses.replace(toy.corpus(), name="mine", **{part: []})
    with pytest.raises(ValueError, match=f"The corpus 'mine' has no {part} pairs"):
        train(corpus, tmp_path / "run", TransformerConfig.of_size("tiny"), TrainingConfig.of_size("tiny"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("gpu_generations", "cpu_multiplies", "precision"),
    [
        ([9], False, "mixed_bfloat16"),
        ([8], False, "mixed_bfloat16"),
        ([7], True, "float32"),  # the GPU computes, whatever the CPU can
        ([9, 7], True, "float32"),  # the slower one of two counts
        ([], True, "mixed_bfloat16"),
        ([], False, "float32"),
    ],
)
def test_precision_auto_is_what_the_machine_multiplies(gpu_generations, cpu_multiplies, precision, monkeypatch):
    monkeypatch.setattr(hardware, "has_gpu", lambda: bool(gpu_generations))
    monkeypatch.setattr(hardware, "_cuda_generations", lambda: gpu_generations)
    monkeypatch.setattr(hardware, "cpu_multiplies_bfloat16", lambda: cpu_multiplies)
    assert hardware.resolve_precision("auto") == precision
    assert hardware.resolve_precision("mixed_float16") == "mixed_float16"
