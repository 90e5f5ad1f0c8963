"""One training run, from a corpus to the best weights in a run folder: open, build, compile, fit, report."""

import dataclasses
import pathlib
import signal
from collections.abc import Sequence
from typing import Any, Literal

import keras
import rich.console

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.process.console import Console
from kformer.runs.exit_status import FINISHED, RESUME
from kformer.runs.folder import RunFolder
from kformer.runs.summary import write_ended
from kformer.runtime.paths import check_export_path
from kformer.text.model_function import require_tensorflow
from kformer.training.build_run import build_run
from kformer.training.callbacks import GracefulInterrupt, StopTogether
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import lost_processes_explained, process_group
from kformer.training.fit_run import fit_run
from kformer.training.opened_run import RunRequest, opened_run
from kformer.training.run_callbacks import translate_at_validations
from kformer.training.user_callbacks import check_callbacks


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
    decoding: DecodingConfig | None = None,
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
        decoding: The default search of a new run's model, for its translations and exports; by default the paper's, or
            that of `initialize_from`. Lengths and tags in it are those of the corpus.
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
    _check_kinds(corpus, transformer, training, decoding)
    check_callbacks(callbacks)
    _check_export(export_to)
    group = process_group(devices)
    if console is None or not group.is_main:
        console = Console(quiet=not group.is_main)
    request = RunRequest(RunFolder(output), corpus, transformer, training, resume, initialize_from, samples, decoding)
    state = TrainingState()
    together = None if group.world_size == 1 else StopTogether(state, group.all_reduce_max)
    with (
        # Signals are handled from here on. After the contexts below are closed, a received SIGTERM is raised again.
        GracefulInterrupt(state, stop_signals, together) as interrupt,
        lost_processes_explained(group, request.folder.path),
        opened_run(request, group, console) as opened,
        group.scope(),
    ):
        run = build_run(request, opened, group, state, console)
        translations = translate_at_validations(run, corpus, samples, export_to, interrupt)
        fit_run(run, translations, callbacks, interrupt)
        report = TrainingReport(request.folder, state.step, state.best, state.end_reason, state.interrupted)
        if summary is not None and group.is_main:
            _write_summary(summary, report)
    return report


def _check_kinds(corpus: Any, transformer: Any, training: Any, decoding: Any) -> None:
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
        ("decoding", decoding, DecodingConfig),
    ):
        if value is not None and not isinstance(value, kind):
            of_size = "" if kind is DecodingConfig else f" or kformer.{kind.__name__}.of_size(SIZE)"
            raise ValueError(
                f"{name} must be a kformer.{kind.__name__}. Received: {value!r}. "
                f"Make one by kformer.{kind.__name__}(FIELD=VALUE){of_size}."
            )


def _check_export(export_to: str | pathlib.Path | None) -> None:
    if export_to is not None:
        require_tensorflow("The export of the best weights")
        check_export_path(export_to)


def _write_summary(path: str | pathlib.Path, report: TrainingReport) -> None:
    status = RESUME if report.interrupted else FINISHED
    write_ended(path, report.run, status, report.reason, report.steps, report.best)
