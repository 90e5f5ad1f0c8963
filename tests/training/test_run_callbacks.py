"""Which callbacks a run has, in which order, in the main process and in the others."""

import contextlib
import io
import re
import time

import keras
import numpy as np
import pytest
import rich.console
import tensorflow as tf

from kformer.config import MONITORS, DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.data.corpus import CorpusPart
from kformer.runs.folder import RunFolder
from kformer.text.batches import Hypothesis
from kformer.training import callbacks, run_callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import ProcessGroup
from kformer.training.run_callbacks import ActiveRun, Translations, list_callbacks, translate_at_validations
from kformer.training.run_setup import RunSetup


class OfUser(keras.callbacks.Callback):
    """A user's own."""


ASKED = (lambda: {"val_bleu": 0.0}, lambda: None, lambda: None)  # to score, to show and to export


def active_run(folder, rank=0, world_size=1, seconds=0.0, **training):
    setup = RunSetup(TransformerConfig(), TrainingConfig(**training), None, None, None, resumed=False)
    group = ProcessGroup(rank, world_size, world_size, contextlib.nullcontext)
    console = rich.console.Console(file=io.StringIO(), width=200)
    state, check_there = TrainingState(seconds=seconds), None if rank else lambda: None
    return ActiveRun(RunFolder(folder), setup, group, None, state, console, check_there)


def listed(folder, rank=0, world_size=1, max_steps=7, seconds=0.0, **training):
    return callbacks_of(active_run(folder, rank, world_size, seconds, **training), max_steps)


def callbacks_of(run, max_steps=7):
    training, state, group = run.setup.training, run.state, run.group
    monitor, least = MONITORS[training.monitor], training.least_improvement
    budget = callbacks.Budget(max_steps, training.max_minutes, training.patience, monitor, least)
    translations = Translations(callbacks.TensorBoardLog(run.folder.path, state), *ASKED)
    together = None if group.world_size == 1 else callbacks.StopTogether(state, group.all_reduce_max)
    interrupt = callbacks.GracefulInterrupt(state, together=together)
    return list_callbacks(run, budget, interrupt, translations, [OfUser()])


def only(kind, found):
    (callback,) = (one for one in found if isinstance(one, kind))
    return callback


def test_the_minutes_of_a_resumed_run_count(tmp_path):
    budget = only(callbacks.TimeBudget, listed(tmp_path, seconds=300.0, max_minutes=7.0))
    assert 300 <= time.monotonic() - budget.started < 400


def names(found):
    return " ".join(type(callback).__name__ for callback in found)


def test_a_run_without_budget(tmp_path):
    assert names(listed(tmp_path, max_steps=None)) == (
        "TrackState CheckFolder StopOnNaN GracefulInterrupt Validation ProgressBar TensorBoardLog OfUser NoticeStop "
        "CSVLog Checkpoint"
    )


def test_a_run_with_a_budget(tmp_path):
    assert names(listed(tmp_path, max_minutes=1.0)) == (
        "TrackState CheckFolder StepBudget StopOnNaN GracefulInterrupt "
        "Validation ProgressBar TensorBoardLog OfUser NoticeStop CSVLog UpdateTimer TimeBudget Checkpoint"
    )


def test_of_several_processes_the_main_one_writes_and_shows_and_all_stop_together(tmp_path):
    main, other = (listed(tmp_path, rank, 2, max_minutes=1.0) for rank in range(2))
    assert names(main) == (
        "TrackState CheckFolder StepBudget StopOnNaN GracefulInterrupt StopTogether "
        "Validation ProgressBar TensorBoardLog OfUser NoticeStop CSVLog UpdateTimer TimeBudget Checkpoint CompareLast"
    )
    assert names(other) == (
        "TrackState StepBudget StopOnNaN GracefulInterrupt StopTogether Validation TimeBudget Checkpoint CompareLast"
    )
    shown = only(callbacks.Validation, main)
    assert (*shown.scores, shown.main.show_samples, shown.main.export_best) == ASKED
    *_, validation, _, checkpoint, _ = other
    assert [*validation.scores] == [ASKED[0]]
    assert (validation.main, validation.keep_best.path, checkpoint.path) == (None, None, None)


@pytest.mark.parametrize(
    ("monitor", "log_key"), [("loss", "val_token_loss"), ("bleu", "val_bleu"), ("accuracy", "val_accuracy")]
)
def test_the_best_weights_are_those_of_the_monitor(tmp_path, monitor, log_key):
    validation = only(callbacks.Validation, listed(tmp_path, monitor=monitor))
    assert validation.keep_best.monitor.log_key == log_key


def test_the_least_improvement_is_that_of_the_budget(tmp_path):
    validation = only(callbacks.Validation, listed(tmp_path, least_improvement=0.25))
    assert (validation.keep_best.least_improvement, validation.budget.least_improvement) == (0.25, 0.25)


def test_a_checkpoint_is_written_as_often_as_is_asked(tmp_path):
    checkpoint = only(callbacks.Checkpoint, listed(tmp_path, checkpoint_minutes=3.0))
    assert checkpoint.minutes == 3.0


def test_the_bar_shows_the_limits_of_the_budget_where_the_run_prints(tmp_path):
    run = active_run(tmp_path, max_minutes=3.0)
    bar = only(callbacks.ProgressBar, callbacks_of(run, max_steps=9))
    assert (bar.total_steps, bar.max_minutes, bar.console) == (9, 3.0, run.console)


def test_the_weights_of_as_many_validations_are_kept_as_is_asked(tmp_path):
    main = only(callbacks.Validation, listed(tmp_path, keep_weights=3)).main
    assert (main.keep_weights, main.weights_folder) == (3, RunFolder(tmp_path).weights_folder)


def test_whatever_may_end_a_run_of_several_processes_ends_it_in_all(tmp_path):
    found = listed(tmp_path, 0, 2, max_minutes=1.0)
    ending = (callbacks.StopOnNaN, callbacks.GracefulInterrupt, callbacks.NoticeStop, callbacks.TimeBudget)
    together = only(callbacks.StopTogether, found)
    assert [only(kind, found).together for kind in (*ending, callbacks.CompareLast)] == [together] * 5


@pytest.mark.parametrize(
    ("max_steps", "told"),
    [
        (None, "At the speed of the first updates, about 30 updates fit into 1 minute; "),
        (31, "At the speed of the first updates, about 30 updates fit into 1 minute; "),
        (30, ""),  # which end the run first
    ],
)
def test_the_updates_that_a_budget_of_minutes_holds_are_told_unless_steps_end_the_run_first(max_steps, told, tmp_path):
    run = active_run(tmp_path, max_minutes=1.0)
    only(callbacks.UpdateTimer, callbacks_of(run, max_steps)).measured(2.0)
    said = run.console.file.getvalue()
    assert said.startswith(told)
    assert bool(said) == bool(told)


class Perfect:
    """Stands for the translator of a model that knows the validation targets."""

    def __init__(self, pairs):
        self.targets, self.read = dict(pairs), []

    def __call__(self, texts):
        self.read += [text.decode() for text in texts]
        return [[Hypothesis(self.targets.get(text.decode(), "?"), 0.0)] for text in texts]

    def attention(self, text):
        return [np.zeros((1, 1, 1))]


SENTENCES = [(f"text {number}", f"a sentence of number {number}") for number in range(1, 8)]
NUMERALS = [(f"text {number}", numeral * 5) for number, numeral in enumerate("一二三四五六七", 1)]


@pytest.fixture
def at_validations(tmp_path, monkeypatch):
    """What a run does with translations, the translator, the run, and how often a batch was said to be done."""

    def found(valid, samples=(), symbols=False, parts=(), names=(), **training):
        corpus = Corpus("texts", [("another text", "of training")], [*valid], [], parts=parts)
        training |= {"tokenizer": "symbols"} if symbols else {}
        run, translator, batches = active_run(tmp_path / "run", **training), Perfect(valid), []
        lengths = DecodingConfig(max_source_length=7)
        run.folder.path.mkdir()
        lengths.save(run.folder.decoding_file)
        run.folder.write_corpus({"parts": names or [part.name for part in parts]})

        def live(model, config, tokenizers, decoding):
            assert decoding == lengths
            return translator

        monkeypatch.setattr(run_callbacks, "LiveTranslator", live)
        interrupt = callbacks.GracefulInterrupt(run.state)
        interrupt.leave_validation = lambda: batches.append(len(translator.read))
        translations = translate_at_validations(run, corpus, samples, None, interrupt)
        corpus.valid.clear()  # the file of a corpus may be gone when a validation comes
        return translations, translator, run, batches

    return found


@pytest.mark.parametrize(
    ("valid", "options", "scores"),
    [
        (SENTENCES, {}, {"val_bleu": 100, "val_chrf": 100}),
        (NUMERALS, {}, {"val_bleu": 100, "val_chrf": 100}),  # of five words each, by the tokenizer for Chinese
        (NUMERALS, {"bleu_tokenizer": "13a"}, {"val_bleu": 0, "val_chrf": 100}),  # of one word each
        (SENTENCES, {"monitor": "ter"}, {"val_bleu": 100, "val_chrf": 100, "val_ter": 0}),  # which takes long
        (SENTENCES, {"symbols": True}, {"val_word_error_rate": 0, "val_phoneme_error_rate": 0}),
    ],
)
def test_the_first_validation_sources_are_scored_as_suits_their_targets(valid, options, scores, at_validations):
    translations, translator, _, batches = at_validations(valid, scored_sources=5, **options)
    assert translations.score() == pytest.approx(scores)
    assert translator.read == [source for source, _ in valid[:5]]
    assert batches == [5]  # where a signal may end the validation


def test_each_corpus_is_scored_as_suits_its_targets(at_validations):
    """English and Chinese, most letters of which are English. A perfect translation has 100 in both."""
    parts = (CorpusPart("en", "", 1, 7), CorpusPart("zh", "", 0, 7))
    chinese = [(f"zh {source}", target) for source, target in NUMERALS]
    translations, _, run, _ = at_validations([*SENTENCES, *chinese], parts=parts, scored_sources=14)
    scores = translations.score()
    assert (scores["val_bleu en"], scores["val_bleu zh"]) == (pytest.approx(100), pytest.approx(100))
    assert run.console.file.getvalue() == "BLEU splits texts of zh into words by sacreBLEU's tokenizer zh.\n"


def test_scores_keep_the_names_that_the_corpora_had_when_the_run_began(at_validations):
    """Their files may have others now, and the columns of the log have not."""
    parts = (CorpusPart("moved", "", 1, 3), CorpusPart("away", "", 0, 4))
    translations, *_ = at_validations(SENTENCES, parts=parts, names=["here", "there"], scored_sources=7)
    assert {*translations.score()} == {
        *("val_bleu", "val_bleu here", "val_bleu there", "val_chrf", "val_chrf here", "val_chrf there")
    }


def test_validation_pairs_that_belong_to_no_corpus_are_scored_together(at_validations):
    """Those of one file for all corpora."""
    parts = (CorpusPart("here", "", 1, 0), CorpusPart("there", "", 1, 0))
    translations, translator, *_ = at_validations(SENTENCES, parts=parts, scored_sources=7)
    assert {*translations.score()} == {"val_bleu", "val_chrf"}
    assert translator.read == [source for source, _ in SENTENCES]


@pytest.mark.parametrize("scored", [0, 5])
@pytest.mark.parametrize("samples", [[], ["text 7", "text 6", "text 5", "text 4"]])
def test_chosen_samples_are_shown_or_else_three_of_the_scored_sources(scored, samples, at_validations):
    translations, _, run, _ = at_validations([SENTENCES[0], *SENTENCES], samples, scored_sources=scored)
    assert (translations.score is None) == (scored == 0)
    assert translations.export_best is None
    if not samples and not scored:
        assert translations.show_samples is None
        return
    translations.tensorboard.on_train_begin()
    translations.show_samples()
    translations.tensorboard.close()
    (file,) = (run.folder.tensorboard_folder / "validation").iterdir()
    records = tf.data.TFRecordDataset(str(file))
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in records]
    assert [value.tag for event in events for value in event.summary.value] == ["samples", "attention"]
    shown = [line.strip() for line in run.console.file.getvalue().splitlines() if line.startswith("  text")]
    assert shown == (samples or ["text 1", "text 2", "text 3"])
    assert f"  {shown[-1]}\n  -> a sentence of number {shown[-1][-1]}\n" in run.console.file.getvalue()


def test_samples_are_of_each_corpus_in_turn_as_long_as_it_has_any(at_validations):
    parts = (CorpusPart("short", "", 1, 1), CorpusPart("long", "", 1, 6))
    translations, translator, *_ = at_validations(SENTENCES, parts=parts, scored_sources=7)
    translations.tensorboard.on_train_begin()
    translations.show_samples()
    translations.tensorboard.close()
    assert translator.read == ["text 1", "text 2", "text 3"]


@pytest.mark.parametrize(
    ("valid", "options", "told"),
    [
        (SENTENCES, {"monitor": "bleu"}, ""),
        (NUMERALS, {"monitor": "bleu"}, "BLEU splits texts into words by sacreBLEU's tokenizer zh."),
        (NUMERALS, {"monitor": "chrf", "bleu_tokenizer": "char"}, "BLEU splits .* by sacreBLEU's tokenizer char."),
        (NUMERALS, {"monitor": "bleu", "bleu_tokenizer": "13a"}, "BLEU is 0.0 for every translation"),
        (NUMERALS, {"monitor": "chrf", "bleu_tokenizer": "13a"}, ""),
        # Only the first five are scored, and the longer ones after them do not help.
        ([(source, "short") for source, _ in SENTENCES[:5]] + SENTENCES[5:], {"monitor": "bleu"}, "BLEU is 0.0 for"),
        (NUMERALS, {"monitor": "loss", "symbols": True}, ""),  # BLEU is not computed
    ],
)
def test_how_bleu_splits_texts_is_told_where_it_is_not_usual_or_in_vain(valid, options, told, at_validations):
    _, _, run, _ = at_validations(valid, scored_sources=5, **options)
    assert re.match(told, run.console.file.getvalue())
    assert bool(run.console.file.getvalue()) == bool(told)
