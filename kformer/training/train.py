"""One training run, from a corpus to the best weights in a run folder."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import keras
import rich.console

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Corpus, references
from kformer.models import build_transformer
from kformer.runs.folder import RunFolder
from kformer.runs.weights import load_weights
from kformer.training.callbacks import TensorBoardLog
from kformer.training.checkpoints import TrainingState, load_last_checkpoint, previous_checkpoint
from kformer.training.compile import compile_transformer
from kformer.training.distributed import ProcessGroup, lost_processes_explained, process_group
from kformer.training.live_translation import ExportBest, LiveTranslator, SampleTranslations, ScoreTranslations
from kformer.training.loop import Fit
from kformer.training.run_setup import Opened, begin, check_parts, environment_note, reopen, vocabulary_report
from kformer.translation.translator import require_tensorflow

SAMPLES = 3  # translations shown where sources are translated anyway


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """How a run ended.

    Attributes:
        run: The run folder.
        steps: Optimizer updates done, those before a resume included.
        best: The best validation of what was monitored: the label-smoothed loss in nats a token, BLEU from 0 to 100, or
            the word error rate from 0 to 1; None if nothing was validated.
        reason: Why the run ended, in words.
    """

    run: RunFolder
    steps: int
    best: float | None
    reason: str


def train(
    corpus: Corpus,
    output: str | pathlib.Path,
    transformer: TransformerConfig | None = None,
    training: TrainingConfig | None = None,
    *,
    resume: bool = False,
    initialize_from: str | pathlib.Path | None = None,
    samples: Sequence[str] = (),
    export_to: str | pathlib.Path | None = None,
    console: rich.console.Console | None = None,
    devices: int | None = None,
) -> TrainingReport:
    """Trains a translator with `model.fit` and keeps everything in a run folder.

    The best weights by what `training.monitor` names are kept; the run ends at the first limit of the budget, after
    `patience` validations without better ones, or at Ctrl-C, always in good order.

    Args:
        corpus: What to learn from; its validation part decides which weights are the best.
        output: The run folder; made if missing.
        transformer: Sizes; the size `small` by default. Vocabulary sizes and special ids are taken from
            the tokenizers that are trained here.
        training: Text, batches, optimizer and budget; the size `small` by default.
        resume: Go on from the last checkpoint in `output`, bit for bit as if the run had not been stopped (on a CPU).
            The configurations are then those of the run; `transformer`, `training` and `initialize_from`, where
            given, must be alike, save for the budget.
        initialize_from: A run folder, or the name of a preset, whose weights the new run begins with. Its tokenizers
            and transformer are kept, so `transformer`, where given, must be alike; the optimizer begins anew, by
            `training`. The new run folder holds what it needs of the old one.
        samples: Source texts whose translations are shown after every validation; by default some of those that are
            scored, where any are (`training.scored_sources`).
        export_to: A base folder that gets a new version, a SavedModel, whenever a validation is the best so far
            (TensorFlow backend).
        console: Where to print; standard output by default.
        devices: How many of this machine's devices share every batch; by default all GPUs (or other devices) that
            Keras lists. In processes joined by `kformer.training.distributed.initialize` it is all devices of all of
            them; process 0 alone then prints and writes to `output`, and the others get the run from it.

    Returns:
        A report; the weights are in `report.run`.

    Raises:
        FileExistsError: `output` holds a run already and `resume` is False.
        FileNotFoundError: There is nothing to resume.
        ValueError: The corpus has no training or no validation pairs; or it, or a configuration, is not that of the
            resumed run; or the transformer is not that of `initialize_from`; or the devices cannot share the run's
            batches evenly.
        ConnectionError: Another process was lost. The last checkpoint is whole.
        FloatingPointError: The loss became NaN or infinite. The last checkpoint and the best weights are kept.
        OSError: The disk is full, for example. What the run folder held before is whole.
    """
    check_parts(corpus)
    if export_to is not None:
        require_tensorflow("The export of the best weights")
    group = process_group(devices)
    if console is None or not group.is_main:
        console = rich.console.Console(soft_wrap=True, highlight=False, quiet=not group.is_main)

    def open_main(run: RunFolder) -> Opened:
        if resume:
            return reopen(run, corpus, transformer, training, initialize_from)
        return begin(run, corpus, transformer, _shared_evenly(training, group), initialize_from)

    def open_copy(run: RunFolder) -> Opened:
        return reopen(run, corpus, None, None)

    with (
        lost_processes_explained(group, pathlib.Path(output)),
        group.broadcast_run(RunFolder(output), open_main, open_copy) as (run, opened),
        group.scope(),
    ):
        if resume and (note := environment_note(run)) is not None:
            console.print(note)
        report = _train(corpus, run, opened, group, resume, samples, export_to, console)
    return dataclasses.replace(report, run=RunFolder(output))


def _train(
    corpus: Corpus,
    run: RunFolder,
    opened: Opened,
    group: ProcessGroup,
    resume: bool,
    samples: Sequence[str],
    export_to: str | pathlib.Path | None,
    console: rich.console.Console,
) -> TrainingReport:
    """Trains what was opened; arguments as in `train`."""
    transformer, training, tokenizers, train_pairs, valid_pairs = opened
    _check_shares(training, group)
    for part, pairs in (("train", train_pairs), ("valid", valid_pairs)):
        console.print(f"{corpus.name} {part}: {pairs.report()}")
    keras.utils.set_random_seed(training.seed)
    model = build_transformer(transformer, dtype=training.precision)
    compile_transformer(model, transformer, training)
    if run.initial.exists():
        load_weights(run.initial, model)
        console.print(vocabulary_report(train_pairs, tokenizers))
    state = _last_state(run, model, console) if resume else TrainingState()
    backend = keras.backend.backend() + group.describe()
    console.print(f"{model.count_params():,} parameters, {training.precision}, {backend}")

    tensorboard = TensorBoardLog(run.tensorboard_folder, state)
    scored, shown = [], []
    if samples or training.scored_sources:
        translate = LiveTranslator(model, transformer, tokenizers)
        if training.scored_sources:
            scored.append(ScoreTranslations(translate, corpus.valid, corpus.symbols, training.scored_sources))
        samples = samples or list(references(corpus.valid))[:SAMPLES]
        shown.append(SampleTranslations(samples, translate, console, tensorboard))
    if export_to is not None:
        shown.append(ExportBest(run, export_to, state, console))
    fit = Fit(group, model, training, run, state, scored, [*shown, tensorboard], console)
    reason = fit(train_pairs, valid_pairs)
    return TrainingReport(run, state.step, state.best, reason)


def _shared_evenly(training: TrainingConfig | None, group: ProcessGroup) -> TrainingConfig:
    training = training or TrainingConfig.of_size("small")
    return training.replace(batch_size_multiple=math.lcm(training.batch_size_multiple, group.replicas))


def _check_shares(training: TrainingConfig, group: ProcessGroup) -> None:
    if training.batch_size_multiple % group.replicas:
        raise ValueError(
            f"The rows of this run's batches are multiples of {training.batch_size_multiple}, by the devices that it "
            f"began on. Received: {group.replicas} devices. Resume with a number of devices that divides it."
        )


def _last_state(run: RunFolder, model: keras.Model, console: rich.console.Console) -> TrainingState:
    """Reads the last good checkpoint into the model. A run killed before its first one begins again, just alike."""
    files = (run.checkpoint_file, previous_checkpoint(run.checkpoint_file))
    if not any(file.is_file() for file in files):
        console.print("There is no checkpoint yet: the run begins again.")
        return TrainingState()
    state, damage = load_last_checkpoint(run.checkpoint_file, model)
    if damage is not None:
        console.print(f"The last checkpoint cannot be read: {damage} Going on from the one before.")
    console.print(f"Going on from update {state.step:,}.")
    return state
