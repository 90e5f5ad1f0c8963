"""One training run, from a corpus to the best weights in a run folder."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence

import keras
import rich.console
import tensorflow as tf

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus, EncodedPairs, encode_pairs, make_dataset, references
from kformer.models import build_transformer
from kformer.opening import begin, check_parts, environment_note, reopen, vocabulary_report
from kformer.presets import load_weights
from kformer.run import RunFolder
from kformer.tokenizers import Tokenizer
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState, load_last_checkpoint, previous_checkpoint
from kformer.training.compiling import compile_transformer, compiled_by_xla
from kformer.validation import ExportBest, LiveTranslator, SampleTranslations, ScoreTranslations

# `TrainingConfig.monitor`: key in the logs, and whether lower or higher is better.
MONITORED = {
    "loss": ("val_token_loss", "min"),
    "bleu": ("val_bleu", "max"),
    "word_error_rate": ("val_word_error_rate", "min"),
}
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
) -> TrainingReport:
    """Trains a translator with `model.fit` and keeps everything in a run folder.

    The best weights by what `training.monitor` names are kept; the run ends at the first limit of the budget, after
    `patience` validations without better ones, or at Ctrl-C, always in good order.

    Args:
        corpus: What to learn from; its validation part decides which weights are the best.
        output: The run folder; made if missing.
        transformer: Sizes; the preset `small` by default. Vocabulary sizes and special ids are taken from
            the tokenizers that are trained here.
        training: Text, batches, optimizer and budget; the preset `small` by default.
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

    Returns:
        A report; the weights are in `report.run`.

    Raises:
        FileExistsError: `output` holds a run already and `resume` is False.
        FileNotFoundError: There is nothing to resume.
        ValueError: The corpus has no training or no validation pairs; or it, or a configuration, is not that of the
            resumed run; or the transformer is not that of `initialize_from`.
        FloatingPointError: The loss became NaN or infinite. The last checkpoint and the best weights are kept.
        OSError: The disk is full, for example. What the run folder held before is whole.
    """
    console = console or rich.console.Console(soft_wrap=True, highlight=False)
    run = RunFolder(output)
    check_parts(corpus)
    if resume:
        transformer, training, tokenizers = reopen(run, corpus, transformer, training, initialize_from)
        if (note := environment_note(run)) is not None:
            console.print(note)
    else:
        transformer, training, tokenizers = begin(run, corpus, transformer, training, initialize_from)
    train_pairs, valid_pairs = _encode(corpus, training, tokenizers, console)

    keras.utils.set_random_seed(training.seed)
    model = build_transformer(transformer, dtype=training.precision)
    compile_transformer(model, transformer, training)
    if run.initial.exists():
        load_weights(run.initial, model)
        console.print(vocabulary_report(train_pairs, tokenizers))
    state = _last_state(run, model, console) if resume else TrainingState()
    console.print(f"{model.count_params():,} parameters, {training.precision}, {keras.backend.backend()}")
    tensorboard = callbacks.TensorBoardLog(run.tensorboard_folder, state)
    scored, shown = [], []
    if samples or training.scored_sources:
        translate = LiveTranslator(model, transformer, tokenizers)
        if training.scored_sources:
            scored.append(ScoreTranslations(translate, corpus.valid, corpus.symbols, training.scored_sources))
        samples = samples or list(references(corpus.valid))[:SAMPLES]
        shown.append(SampleTranslations(samples, translate, console, tensorboard))
    if export_to is not None:
        shown.append(ExportBest(run, export_to, state, console))
    fit = _Fit(model, training, run, state, scored, [*shown, tensorboard], console)
    return fit(train_pairs, valid_pairs)


@dataclasses.dataclass
class _Fit:
    """`model.fit` with its callbacks."""

    model: keras.Model
    training: TrainingConfig
    run: RunFolder
    state: TrainingState
    scored: list[keras.callbacks.Callback]  # add figures of a validation to the logs
    shown: list[keras.callbacks.Callback]  # show it
    console: rich.console.Console

    def __call__(self, train_pairs: EncodedPairs, valid_pairs: EncodedPairs) -> TrainingReport:
        training = self.training
        plan = BatchPlan(train_pairs, training.tokens_per_batch, max_buckets=max_buckets())
        source_tokens, target_tokens = (count * training.gradient_accumulation_steps for count in plan.mean_tokens)
        self.console.print(
            f"An update sees {source_tokens:,.0f} source and {target_tokens:,.0f} target tokens on average; "
            f"{plan.padding_share:.1%} of all positions are padding"
        )
        total_steps = _total_steps(training, plan.steps_per_epoch)
        if total_steps is not None and self.state.step >= total_steps:
            return self._report(f"the budget of {total_steps} steps was spent already")
        interval = (training.validation_steps or 0) * training.gradient_accumulation_steps or plan.steps_per_epoch
        interrupt = callbacks.GracefulInterrupt()
        progress = callbacks.ProgressBar(self.state, total_steps, training.max_minutes, self.console)
        listed = self._callbacks(interrupt, progress, total_steps)
        valid = make_dataset(valid_pairs, tokens_per_batch=training.tokens_per_batch, shuffle_seed=None, repeat=False)
        with contextlib.closing(interrupt), contextlib.closing(progress), _explained(self.run, self.state):
            if self.state.epoch_batch:  # A killed run goes on in the middle of its epoch.
                self.model.evaluate(valid, steps=1, verbose=0)  # makes the metrics' variables, see `Checkpoint`
                left = interval - self.state.epoch_batch
                self._fit(train_pairs, valid, listed, steps_per_epoch=left, epochs=self.state.epoch + 1)
            if not (self.state.epoch_batch or self.model.stop_training):
                # The callbacks end the run.
                self._fit(train_pairs, valid, listed, steps_per_epoch=interval, epochs=2**31)
        return self._report(self._reason(interrupt.interrupted, total_steps))

    def _fit(
        self,
        train_pairs: EncodedPairs,
        valid: tf.data.Dataset,
        listed: list[keras.callbacks.Callback],
        steps_per_epoch: int,
        epochs: int,
    ) -> None:
        """Goes on from where `state` says. One Keras "epoch" is one interval between validations."""
        self.model.fit(
            make_dataset(
                train_pairs,
                tokens_per_batch=self.training.tokens_per_batch,
                shuffle_seed=self.training.seed,
                repeat=True,
                max_buckets=max_buckets(),
                start_step=self.state.batch,
                batches_per_update=self.training.gradient_accumulation_steps,
            ),
            validation_data=valid,
            steps_per_epoch=steps_per_epoch,
            initial_epoch=self.state.epoch,
            epochs=epochs,
            callbacks=listed,
            shuffle=False,  # the data set is in its order already
            verbose=0,
        )

    def _callbacks(
        self, interrupt: callbacks.GracefulInterrupt, progress: callbacks.ProgressBar, total_steps: int | None
    ) -> list[keras.callbacks.Callback]:
        """In the order that `kformer.training.callbacks` asks for."""
        training, state = self.training, self.state
        key, mode = MONITORED[training.monitor]
        validation = [
            *self.scored,
            callbacks.KeepBest(self.run.best_weights_file, state, training.patience, key, mode),
            callbacks.KeepLast(self.run.weights_folder, state, training.keep_weights),
            progress,
            *self.shown,
        ]
        if training.ema_decay:
            validation = [callbacks.UseEMA(), *validation, callbacks.UseTrained()]
        return [
            callbacks.TrackState(state),
            callbacks.StopOnNaN(state),
            callbacks.Budget(state, total_steps, training.max_minutes, started=time.monotonic()),
            interrupt,
            *validation,
            callbacks.CSVLog(self.run.log_file, state),
            callbacks.Checkpoint(self.run.path, state, training.checkpoint_minutes),
        ]

    def _reason(self, interrupted: bool, total_steps: int | None) -> str:
        if interrupted:
            return "interrupted"
        if self.state.waited >= self.training.patience:
            return f"{self.training.patience} validations brought no better {self.training.monitor}"
        if total_steps is not None and self.state.step >= total_steps:
            return f"the budget of {total_steps} steps is spent"
        return f"the budget of {self.training.max_minutes:g} minutes is spent"

    def _report(self, reason: str) -> TrainingReport:
        return TrainingReport(self.run, self.state.step, self.state.best, reason)


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


@contextlib.contextmanager
def _explained(run: RunFolder, state: TrainingState) -> Iterator[None]:
    """Says of an error in writing, such as that of a full disk, what it leaves behind."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{error}. The run ended at update {state.step}. What its folder held before is whole: make room in "
            f"{run.path} and go on with resume (`--resume`)."
        ) from error


def _encode(
    corpus: Corpus,
    training: TrainingConfig,
    tokenizers: tuple[Tokenizer, Tokenizer],
    console: rich.console.Console,
) -> tuple[EncodedPairs, EncodedPairs]:
    encoded = []
    for part in ("train", "valid"):
        encoded.append(encode_pairs(getattr(corpus, part), *tokenizers, training.max_length))
        console.print(f"{corpus.name} {part}: {encoded[-1].report()}")
    return encoded[0], encoded[1]


def max_buckets() -> int:
    """Shapes of batches: few where XLA compiles each, many where they cost little and save padding."""
    return 24 if compiled_by_xla() else 128


def _total_steps(training: TrainingConfig, batches_per_epoch: int) -> int | None:
    """The budget of steps and epochs as one number of optimizer updates; None where there is neither."""
    limits = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        limits.append(max(1, training.max_epochs * batches_per_epoch // training.gradient_accumulation_steps))
    return min(limits, default=None)
