"""One training run, from a corpus to the best weights in a run folder: open, build, compile, fit, report."""

import contextlib
import dataclasses
import functools
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras
import rich.console
import tensorflow as tf

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus, make_dataset
from kformer.data.labels import unknown_labels
from kformer.files.writing import WriteError
from kformer.models import build_model
from kformer.process.console import Console
from kformer.runs.folder import RunFolder
from kformer.runs.summary import FINISHED, RESUME, write_ended
from kformer.runtime.paths import check_export_path
from kformer.text.text_model import require_tensorflow
from kformer.training.callbacks import CSVLog, GracefulInterrupt, Interrupted, ProgressBar, StopTogether, TensorBoardLog
from kformer.training.checkpoints import TrainingState, load_last_checkpoint, previous_checkpoint
from kformer.training.compile import compile_model
from kformer.training.distributed import ProcessGroup, lost_processes_explained, process_group
from kformer.training.first_weights import load_first_weights
from kformer.training.opened_run import RunRequest, opened_run
from kformer.training.plan import (
    batches_between_validations,
    budget_of,
    describe_budget,
    describe_plan,
    plan_batches,
)
from kformer.training.pretrained_embeddings import EMBEDDING_FILES, assign_embeddings, freeze_embeddings
from kformer.training.resumed_run import environment_note
from kformer.training.run_callbacks import ActiveRun, Translations, list_callbacks, translate_at_validations
from kformer.training.run_setup import RunSetup, vocabulary_report
from kformer.training.text_lengths import lengths_report
from kformer.training.user_callbacks import check_callbacks
from kformer.wording import count

_NO_LAST_EPOCH = 2**31  # a callback ends the run


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """How a run ended.

    Attributes:
        run: The run folder.
        steps: Optimizer updates done, those before a resume included.
        best: The best value of the monitored metric, such as the label-smoothed loss in nats per token, BLEU from 0 to
            100, or the word error rate from 0 to 1; None if nothing was validated. With a BLEU of 0.0, the weights that
            are kept are those with the lowest validation loss.
        reason: Why the run ended, in words.
        interrupted: Whether a signal ended it, so that it should be resumed.
    """

    run: RunFolder
    steps: int
    best: float | None
    reason: str
    interrupted: bool


def train(
    corpus: Corpus,
    output: str | pathlib.Path,
    transformer: TransformerConfig | None = None,
    training: TrainingConfig | None = None,
    *,
    resume: bool | Literal["auto"] = False,
    initialize_from: str | pathlib.Path | None = None,
    samples: Sequence[str] = (),
    export_to: str | pathlib.Path | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    console: rich.console.Console | None = None,
    devices: int | None = None,
    stop_signals: Sequence[signal.Signals] = (),
    summary: str | pathlib.Path | None = None,
) -> TrainingReport:
    """Trains a translator, or a model of another task, with `model.fit` and keeps everything in a run folder.

    The weights with the best `training.monitor` metric are kept. The run ends cleanly at the first limit of the budget,
    or after `patience` validations without better weights. Ctrl-C (SIGINT), SIGTERM and `stop_signals` save the run and
    end it before the next batch. A resumed run goes on as if it had not been stopped. A second signal ends the run at
    once. After SIGTERM not only the run but also the process ends.

    While it trains, the process holds a lock on the folder `output`, so that no second process trains there. Other
    processes may translate, evaluate and export meanwhile.

    Args:
        corpus: What to learn from; its validation part decides which weights are the best.
        output: The run folder; made if missing.
        transformer: Sizes; the size `small` by default. Vocabulary sizes and special ids are taken from
            the tokenizers that are trained here.
        training: Text, batches, optimizer and budget; the size `small` by default.
        resume: Go on from the last checkpoint in `output`. On a CPU, the results are exactly those without a stop.
            The configurations are then those of the run. If `transformer`, `training` or `initialize_from` is given, it
            must be the same as in the run, except for the budget. "auto": go on if `output` holds a run, or else begin
            one.
        initialize_from: A run folder, or the name of a preset, whose weights the new run begins with. Its tokenizers
            and transformer are kept, so `transformer`, if given, must be the same. The state of its optimizer is not
            kept. The new run folder gets a copy of what it needs from the old one.
        samples: Source texts whose translations are shown after every validation; by default some of the
            scored sources, if there are any (`training.scored_sources`). Only a translator takes them.
        export_to: A base folder that gets a new version, a SavedModel, whenever a validation is the best so far
            (TensorFlow backend).
        callbacks: Keras callbacks of your own, run in the main process. A Keras "epoch" is one interval between
            validations. At the end of an epoch your callbacks run after kformer's callbacks that score, keep and show
            the weights, and before the checkpoint is written. The logs then have all metrics. During a validation and
            at the end of an epoch the model has the validated weights: with `training.ema_decay` the averaged ones. A
            callback that sets `model.stop_training` ends the run cleanly. A run that is resumed between two
            validations calls `fit` twice: for the rest of that epoch, and for the following ones. So what a callback
            counts begins anew, such as the patience of `EarlyStopping`; `training.patience` goes on. Callbacks that
            assign weights or the learning rate, or would lose a file, are refused, if they are Keras's:
            `BackupAndRestore`, `SwapEMAWeights`, `EarlyStopping(restore_best_weights=True)`,
            `ModelCheckpoint(save_best_only=True)`, `LearningRateScheduler` and `ReduceLROnPlateau`.
        console: Where to print; by default standard output, where characters that it cannot write become escapes.
        devices: How many of this machine's devices share every batch; by default all GPUs (or other devices) that
            Keras lists. If several processes have called `kformer.training.distributed.initialize`, all devices of all
            processes are used. Then only process 0 prints and writes to `output`, and the others get the run from it.
        stop_signals: Further signals that save and end the run as SIGTERM does, but do not end the process.
        summary: A JSON file that says how the run ended, see `kformer.runs.summary.write_ended`. It is written before a
            SIGTERM ends the process, but not if the run ends by an error.

    Returns:
        A report; the weights are in `report.run`.

    Raises:
        FileExistsError: `output` holds a run already and `resume` is False.
        FileNotFoundError: There is nothing to resume.
        kformer.runs.ownership.RunInUseError: Another process trains in `output`.
        kformer.runs.ownership.FolderLostError: `output` was moved or removed during the training.
        ValueError: The corpus has no training or no validation pairs; the corpus or a configuration is not that of the
            resumed run; the transformer is not that of `initialize_from`; the devices cannot share the run's batches
            evenly; an argument has the wrong class; or a run cannot have one of the callbacks.
        ConnectionError: Another process was lost. The last checkpoint is undamaged.
        FloatingPointError: The loss became NaN or infinite. The last checkpoint and the best weights are kept.
        WriteError: The disk is full, for example. The files that the run folder had before are undamaged.

    Examples:
        >>> corpus = kformer.data.corpus_from_pairs("numbers", kformer.data.read_tsv("pairs.tsv"))
        >>> training = TrainingConfig.of_size("tiny", max_steps=2)
        >>> report = train(corpus, "runs/numbers", training=training)  # doctest: +SKIP
        >>> report.steps  # doctest: +SKIP
        2
    """
    _check_kinds(corpus, transformer, training)
    check_callbacks(callbacks)
    if export_to is not None:
        require_tensorflow("The export of the best weights")
        check_export_path(export_to)
    group = process_group(devices)
    if console is None or not group.is_main:
        console = Console(quiet=not group.is_main)
    say = functools.partial(console.print, markup=False)  # a path may hold brackets
    request = RunRequest(RunFolder(output), corpus, transformer, training, resume, initialize_from, samples)
    state = TrainingState()
    together = None if group.world_size == 1 else StopTogether(state, group.all_reduce_max)
    with (
        # Signals are handled from here on. After the contexts below are closed, a received SIGTERM is raised again.
        GracefulInterrupt(state, stop_signals, together) as interrupt,
        lost_processes_explained(group, request.folder.path),
        opened_run(request, group, say) as opened,
        group.scope(),
    ):
        folder, setup = opened.folder, opened.setup
        _check_devices(setup.training, group)
        _describe_setup(corpus, folder, setup, say)
        if not setup.resumed:
            _tell_fitted_warmup(training, setup.training, say)
        model = _build(folder, setup)
        if setup.resumed:
            _load_progress(folder, model, state, say)
        backend = keras.backend.backend() + group.describe()
        say(f"{model.count_params():,} parameters, {setup.training.precision}, {backend}")
        state.transformer, state.training = setup.transformer.to_dict(), setup.training.to_dict()
        state.corpus = folder.corpus()["sha256"]
        run = ActiveRun(folder, setup, group, model, state, console, opened.check_there)
        translations = translate_at_validations(run, corpus, samples, export_to, interrupt)
        _fit(run, translations, callbacks, interrupt)
        report = TrainingReport(request.folder, state.step, state.best, state.end_reason, state.interrupted)
        if summary is not None and group.is_main:
            status = RESUME if report.interrupted else FINISHED
            write_ended(summary, report.run, status, report.reason, report.steps, report.best)
    return report


def _check_kinds(corpus: Any, transformer: Any, training: Any) -> None:
    """Refuses arguments of the wrong class before anything is written.

    Raises:
        ValueError: An argument has the wrong class.
    """
    if not isinstance(corpus, Corpus):
        raise ValueError(
            f"corpus must be a kformer.data.Corpus. Received: a {type(corpus).__name__}. Make one by "
            "kformer.data.load_corpus(NAME), or of pairs by kformer.data.corpus_from_pairs(NAME, pairs)."
        )
    for name, value, kind in (
        ("transformer", transformer, TransformerConfig),
        ("training", training, TrainingConfig),
    ):
        if value is not None and not isinstance(value, kind):
            raise ValueError(
                f"{name} must be a kformer.{kind.__name__}. Received: {value!r}. "
                f"Make one by kformer.{kind.__name__}(FIELD=VALUE) or kformer.{kind.__name__}.of_size(SIZE)."
            )


def _check_devices(training: TrainingConfig, group: ProcessGroup) -> None:
    if training.batch_size_multiple % group.replicas:
        raise ValueError(
            f"In this run, the number of rows of a batch is a multiple of {training.batch_size_multiple}, because of "
            f"the number of devices that it began with. Received: {group.replicas} devices. Resume with a number of "
            f"devices that divides {training.batch_size_multiple}."
        )


def _describe_setup(corpus: Corpus, folder: RunFolder, setup: RunSetup, say: Callable[[str], None]) -> None:
    if setup.resumed and (note := environment_note(folder)) is not None:
        say(note)
    for part, pairs in (("train", setup.train), ("valid", setup.valid)):
        say(f"{corpus.name_of(part)} {part}: {pairs.report()}")
    if (note := unknown_labels(setup.transformer.task, corpus)) is not None:
        say(note)
    say(lengths_report(setup.transformer.task, folder.decoding_config()))
    if folder.initial.exists():
        say(vocabulary_report(setup.train, setup.tokenizers))
    for name in EMBEDDING_FILES.values():
        if name in folder.corpus():
            say(f"{name}: {folder.corpus()[name]}")


def _tell_fitted_warmup(given: TrainingConfig | None, used: TrainingConfig, say: Callable[[str], None]) -> None:
    asked = (given or TrainingConfig.of_size("small")).warmup_steps
    if used.warmup_steps < asked:
        say(
            f"The warm-up is fitted to the budget: {count(used.warmup_steps, 'update')} instead of {asked:,}, with the "
            "same peak of the learning rate. Give warmup_steps yourself, and it stays."
        )


def _build(folder: RunFolder, setup: RunSetup) -> keras.Model:
    """The compiled model, with random weights, those of the run that this one began with, or pretrained embeddings."""
    keras.utils.set_random_seed(setup.training.seed)
    model = build_model(setup.transformer, dtype=setup.training.precision)
    freeze_embeddings(folder, model, setup.training)
    compile_model(model, setup.transformer, setup.training)
    if folder.initial.exists():
        load_first_weights(folder.initial, model, setup.transformer.task, setup.tokenizers[1])
    assign_embeddings(folder, model, setup.training)
    return model


def _load_progress(folder: RunFolder, model: keras.Model, state: TrainingState, say: Callable[[str], None]) -> None:
    """Reads the last good checkpoint. A run that was killed before its first checkpoint begins again."""
    files = (folder.checkpoint_file, previous_checkpoint(folder.checkpoint_file))
    if not any(file.is_file() for file in files):
        say("There is no checkpoint yet: the run begins again.")
        return
    stored, damage = load_last_checkpoint(folder.checkpoint_file, model)
    if damage is not None:
        say(f"The last checkpoint cannot be read: {damage} Going on from the previous checkpoint.")
    say(f"Going on from update {stored.step:,}.")
    state.go_on_from(stored)


def _fit(
    run: ActiveRun,
    translations: Translations,
    user_callbacks: Sequence[keras.callbacks.Callback],
    interrupt: GracefulInterrupt,
) -> None:
    """Trains until a callback ends the run; `run.state.end_reason` then says why."""
    training, state = run.setup.training, run.state
    plan = plan_batches(run.setup.train, training, run.arrangement)
    run.console.print(describe_plan(plan, training))
    budget = budget_of(training, plan)
    if budget.max_steps is not None:
        run.console.print(describe_budget(training, plan, budget.max_steps))
    if not state.validating and (spent := budget.spent(state)) is not None:
        state.end_reason = spent.already
        return
    valid = _validation_batches(run)
    interval = batches_between_validations(training, plan)
    listed = list_callbacks(run, budget, interrupt, translations, user_callbacks)
    with _closed_at_the_end(listed), _write_errors_explained(run), contextlib.suppress(Interrupted):
        if state.epoch_batch:  # The run was stopped between two validations, or during one.
            run.model.evaluate(valid, steps=1, verbose=0)  # makes the metrics' variables, see `Checkpoint`
            if state.validating:
                _validate(run, valid, listed)
            else:
                _fit_epochs(run, plan, valid, listed, interval - state.epoch_batch, last_epoch=state.epoch + 1)
            if not state.end_reason and (spent := budget.out_of_steps(state)) is not None:
                state.end_reason = spent.now
        if not state.end_reason:
            _fit_epochs(run, plan, valid, listed, interval, last_epoch=_NO_LAST_EPOCH)


def _training_batches(run: ActiveRun, plan: BatchPlan) -> tf.data.Dataset:
    """This process's part of the batches, from the run's next batch on."""
    return make_dataset(
        plan,
        shuffle_seed=run.setup.training.seed,
        repeat=True,
        start_step=run.state.batch,
        batches_per_update=run.setup.training.gradient_accumulation_steps,
        part=(run.group.rank, run.group.world_size),
    )


def _validation_batches(run: ActiveRun) -> tf.data.Dataset:
    training = run.setup.training
    plan = BatchPlan(
        run.setup.valid,
        training.tokens_per_batch,
        row_multiple=training.batch_size_multiple,
        arrangement=run.arrangement,
    )
    return make_dataset(plan, shuffle_seed=None, repeat=False, part=(run.group.rank, run.group.world_size))


def _fit_epochs(
    run: ActiveRun,
    plan: BatchPlan,
    valid: tf.data.Dataset,
    listed: list[keras.callbacks.Callback],
    steps_per_epoch: int,
    last_epoch: int,
) -> None:
    """Trains on from the current state. One Keras "epoch" is one interval between validations."""
    run.model.fit(
        _training_batches(run, plan),
        validation_data=valid,
        steps_per_epoch=steps_per_epoch,
        initial_epoch=run.state.epoch,
        epochs=last_epoch,
        callbacks=listed,
        shuffle=False,  # the data set is in its order already
        verbose=0,
    )


def _validate(run: ActiveRun, valid: tf.data.Dataset, listed: list[keras.callbacks.Callback]) -> None:
    """Validates as `fit` does at the end of an epoch, for a run that was stopped during this validation."""
    callbacks = keras.callbacks.CallbackList(listed, model=run.model)
    run.model.stop_training = False
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(run.state.epoch)  # puts back the metrics of training
    logs = run.model.get_metrics_result()
    found = run.model.evaluate(valid, callbacks=callbacks, verbose=0, return_dict=True)
    callbacks.on_epoch_end(run.state.epoch, {**logs, **{f"val_{name}": value for name, value in found.items()}})
    callbacks.on_train_end()


@contextlib.contextmanager
def _closed_at_the_end(listed: list[keras.callbacks.Callback]) -> Iterator[None]:
    """Restores the terminal and closes the log, even if `fit` raises an error."""
    try:
        yield
    finally:
        for callback in listed:
            if isinstance(callback, ProgressBar | CSVLog | TensorBoardLog):
                callback.close()


@contextlib.contextmanager
def _write_errors_explained(run: ActiveRun) -> Iterator[None]:
    """Adds the state of the run folder to the message of a write error, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{error}. The run ended at update {run.state.step}. The files that its folder {run.folder.path} had "
            "before are undamaged: remove the cause (make room on a full disk) and go on with resume (`--resume`)."
        ) from error
