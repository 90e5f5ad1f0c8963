"""The callbacks of a training run, in the order that `kformer.training.callbacks` asks for."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence

import keras
import rich.console

from kformer.config import MONITORS
from kformer.data import Corpus, references
from kformer.data.arrangements import Arrangement
from kformer.evaluation.bleu_tokenizers import bleu_metric, suitable_bleu_tokenizer
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import ProcessGroup
from kformer.training.live_translation import ExportBest, LiveTranslator, SampleTranslations, ScoreTranslations
from kformer.training.plan import describe_minutes
from kformer.training.run_setup import RunSetup

SHOWN_SAMPLES = 3  # translations to show if sources are scored but no samples are given

CheckThere = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class ActiveRun:
    """A run that is being trained.

    Attributes:
        folder: The run folder; in processes other than the main one, a temporary copy.
        setup: What the run trains with.
        group: The devices and processes that train together.
        model: Compiled, with the weights of `state`.
        state: The progress of the run.
        console: Where to print.
        check_there: From `kformer.runs.ownership.owned`; None in processes that write nothing into the folder.
    """

    folder: RunFolder
    setup: RunSetup
    group: ProcessGroup
    model: keras.Model
    state: TrainingState
    console: rich.console.Console
    check_there: CheckThere | None

    @property
    def arrangement(self) -> Arrangement:
        """How the run's batches become inputs and labels of the model."""
        setup = self.setup
        return task_of(setup.transformer.task).arrangement(setup.tokenizers, setup.training)


@dataclasses.dataclass(frozen=True)
class Validation:
    """Callbacks that score or show translations, or export the model, at a validation.

    Attributes:
        scores: Add metrics to the logs, in every process.
        shows: Show translations or export the model, in the main process.
    """

    scores: list[keras.callbacks.Callback]
    shows: list[keras.callbacks.Callback]


def translate_at_validations(
    run: ActiveRun,
    corpus: Corpus,
    samples: Sequence[str],
    export_to: str | pathlib.Path | None,
    interrupt: callbacks.GracefulInterrupt,
) -> Validation:
    """The callbacks that a run's options ask for; arguments as in `kformer.train`."""
    tensorboard = callbacks.TensorBoardLog(run.folder.tensorboard_folder, run.state)
    scores: list[keras.callbacks.Callback] = []
    shows: list[keras.callbacks.Callback] = []
    scored_sources = run.setup.training.scored_sources
    if samples or scored_sources:
        pairs = list(corpus.valid)  # validations read them again and again, also when their file is gone
        translate = LiveTranslator(run.model, run.setup.transformer, run.setup.tokenizers, run.folder.decoding_config())
        if scored_sources:
            leave, tokenizer = interrupt.leave_validation, _bleu_tokenizer(run, corpus)
            scores.append(ScoreTranslations(translate, pairs, corpus.symbols, scored_sources, tokenizer, leave))
        samples = samples or list(references(pairs))[:SHOWN_SAMPLES]
        shows.append(SampleTranslations(samples, translate, run.console, tensorboard))
    if export_to is not None:
        shows.append(ExportBest(run.folder, export_to, run.state, run.console))
    return Validation(scores, [*shows, tensorboard])


def _bleu_tokenizer(run: ActiveRun, corpus: Corpus) -> str:
    """sacreBLEU's tokenizer for the validation targets. It is printed where it is not the usual one.

    Raises:
        ValueError: The tokenizer cannot be used on this machine.
    """
    training = run.setup.training
    targets = [target for _, target in corpus.valid]
    tokenizer = training.bleu_tokenizer or suitable_bleu_tokenizer(targets)
    if corpus.symbols:  # BLEU is not computed
        return tokenizer
    if tokenizer != "13a":
        run.console.print(f"BLEU splits texts into words by sacreBLEU's tokenizer {tokenizer}.")
    scored = targets[: training.scored_sources]
    if training.monitor == "bleu" and bleu_metric(tokenizer).corpus_score(scored, [scored]).score == 0:
        run.console.print(
            "BLEU is 0.0 for every translation of the validation sources, even a perfect one: no target has four words."
            " Choose another monitor, such as chrf, or another bleu_tokenizer."
        )
    return tokenizer


def list_callbacks(
    run: ActiveRun,
    max_steps: int | None,
    interrupt: callbacks.GracefulInterrupt,
    validation: Validation,
    user_callbacks: Sequence[keras.callbacks.Callback],
) -> list[keras.callbacks.Callback]:
    """All callbacks of a run."""
    training, state, folder, is_main = run.setup.training, run.state, run.folder, run.group.is_main
    user_callbacks = user_callbacks if is_main else ()
    notices = [callbacks.NoticeStop(state, callback) for callback in user_callbacks]
    keep_best = callbacks.KeepBest(
        folder.best_weights_file if is_main else None, state, training.patience, MONITORS[training.monitor]
    )
    at_validations = [*validation.scores, keep_best]
    if is_main:
        at_validations += [
            callbacks.KeepLast(folder.weights_folder, state, training.keep_weights),
            callbacks.ProgressBar(state, max_steps, training.max_minutes, run.console),
            *validation.shows,
        ]
    for callback, notice in zip(user_callbacks, notices, strict=True):
        at_validations += [callback, notice]
    if training.ema_decay:
        at_validations = [callbacks.UseEMA(), *at_validations, callbacks.UseTrained()]
    endings, last = _endings(run, max_steps, interrupt, notices)
    checkpoint = callbacks.Checkpoint(folder.path if is_main else None, state, training.checkpoint_minutes)
    return [
        callbacks.TrackState(state),
        *([] if run.check_there is None else [callbacks.CheckFolder(run.check_there)]),
        *endings,
        callbacks.SaveBeforeValidation(checkpoint),
        *at_validations,
        *([callbacks.CSVLog(folder.log_file, state), *_estimates(run, max_steps)] if is_main else []),
        checkpoint,
        *last,
    ]


def _estimates(run: ActiveRun, max_steps: int | None) -> list[keras.callbacks.Callback]:
    """The callback that tells how many updates a budget in minutes holds, if there is one."""
    if run.setup.training.max_minutes is None:
        return []

    def tell(seconds_per_update: float) -> None:
        told = describe_minutes(run.setup.training, run.state, seconds_per_update, max_steps)
        if told:
            run.console.print(told, markup=False)

    return [callbacks.UpdateTimer(tell)]


def _endings(
    run: ActiveRun,
    max_steps: int | None,
    interrupt: callbacks.GracefulInterrupt,
    notices: Sequence[callbacks.NoticeStop],
) -> tuple[list[keras.callbacks.Callback], list[keras.callbacks.Callback]]:
    """The callbacks that end the run: those for the beginning of the list, and those that must be last in it."""
    state, max_minutes = run.state, run.setup.training.max_minutes
    loss_check = callbacks.StopOnNaN(state)
    of_this_process: list[callbacks.EndsRun] = [interrupt]
    if max_minutes is not None:
        of_this_process.insert(0, callbacks.TimeBudget(state, max_minutes, started=time.monotonic() - state.seconds))
    endings = [loss_check, *of_this_process]
    if max_steps is not None:
        endings.insert(0, callbacks.StepBudget(state, max_steps))
    if run.group.world_size == 1:
        return endings, []
    together = callbacks.StopTogether(of_this_process, loss_check, notices, state, run.group.all_reduce_max)
    return [*endings, together], [callbacks.CompareLast(together)]
