"""One training run, from a corpus to the best weights in a run folder."""

import contextlib
import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence

import keras
import rich.console

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus, EncodedPairs, encode_pairs, make_dataset
from kformer.hardware import has_gpu, resolve_precision
from kformer.models import build_transformer
from kformer.run import RunFolder
from kformer.tokenizers import Tokenizer, load_tokenizers, save_tokenizers, train_tokenizers
from kformer.training import callbacks, losses, metrics
from kformer.training.checkpoints import TrainingState, load_checkpoint
from kformer.training.optimizers import build_adam

# Fields that say when a run ends. They alone may change when a run is resumed.
BUDGET = ("max_epochs", "max_steps", "max_minutes", "patience")
MONITOR = "val_token_loss"


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """How a run ended.

    Attributes:
        run: The run folder.
        steps: Optimizer updates done, those before a resume included.
        best_loss: The best validation loss, label-smoothed, in nats a token; None if nothing was validated.
        reason: Why the run ended, in words.
    """

    run: RunFolder
    steps: int
    best_loss: float | None
    reason: str


def train(
    corpus: Corpus,
    output: str | pathlib.Path,
    transformer: TransformerConfig | None = None,
    training: TrainingConfig | None = None,
    *,
    resume: bool = False,
    samples: Sequence[str] = (),
    console: rich.console.Console | None = None,
) -> TrainingReport:
    """Trains a translator with `model.fit` and keeps everything in a run folder.

    The best weights by validation loss are kept; the run ends at the first limit of the budget, after
    `patience` validations without a better loss, or at Ctrl-C, always in good order.

    Args:
        corpus: What to learn from; its validation part decides which weights are the best.
        output: The run folder; made if missing.
        transformer: Sizes; the preset `small` by default. Vocabulary sizes and special ids are taken from
            the tokenizers that are trained here.
        training: Text, batches, optimizer and budget; the preset `small` by default.
        resume: Go on from the last checkpoint in `output`. The configurations are then those of the run,
            save for the budget, which is taken from `training` where that is given.
        samples: Source texts whose translations are shown after every validation (TensorFlow backend).
        console: Where to print; standard output by default.

    Returns:
        A report; the weights are in `report.run`.

    Raises:
        FileExistsError: `output` holds a run already and `resume` is False.
        FileNotFoundError: There is nothing to resume.
        ValueError: The corpus has no training or no validation pairs, or is not the one of the resumed run.
    """
    console = console or rich.console.Console(soft_wrap=True, highlight=False)
    run = RunFolder(output)
    _check_corpus(corpus)
    if resume:
        transformer, training, tokenizers = _reopen(run, corpus, training)
    else:
        transformer, training, tokenizers = _begin(run, corpus, transformer, training)
    train_pairs, valid_pairs = _encode(corpus, training, tokenizers, console)

    keras.utils.set_random_seed(training.seed)
    model = build_transformer(transformer, dtype=training.precision)
    _compile(model, transformer, training)
    state = load_checkpoint(run.checkpoint_file, model) if resume else TrainingState()
    console.print(f"{model.count_params():,} parameters, {training.precision}, {keras.backend.backend()}")
    fit = _Fit(model, transformer, training, tokenizers, run, state, console)
    return fit(train_pairs, valid_pairs, samples)


@dataclasses.dataclass
class _Fit:
    """`model.fit` with its callbacks."""

    model: keras.Model
    transformer: TransformerConfig
    training: TrainingConfig
    tokenizers: tuple[Tokenizer, Tokenizer]
    run: RunFolder
    state: TrainingState
    console: rich.console.Console

    def __call__(self, train_pairs: EncodedPairs, valid_pairs: EncodedPairs, samples: Sequence[str]) -> TrainingReport:
        training = self.training
        plan = BatchPlan(train_pairs, training.tokens_per_batch)
        total_steps = _total_steps(training, plan.steps_per_epoch)
        if total_steps is not None and self.state.step >= total_steps:
            return self._report(f"the budget of {total_steps} steps was spent already")
        interval = (training.validation_steps or 0) * training.gradient_accumulation_steps or plan.steps_per_epoch
        interrupt = callbacks.GracefulInterrupt()
        progress = callbacks.ProgressBar(self.state, total_steps, training.max_minutes, self.console)
        with contextlib.closing(interrupt), contextlib.closing(progress):
            self.model.fit(
                make_dataset(
                    train_pairs,
                    tokens_per_batch=training.tokens_per_batch,
                    shuffle_seed=training.seed,
                    repeat=True,
                    start_step=self.state.batch,
                ),
                validation_data=make_dataset(
                    valid_pairs, tokens_per_batch=training.tokens_per_batch, shuffle_seed=None, repeat=False
                ),
                steps_per_epoch=interval,
                initial_epoch=self.state.epoch,
                epochs=2**31,  # one "epoch" is one interval between validations; the callbacks end the run
                callbacks=self._callbacks(interrupt, progress, total_steps, samples),
                shuffle=False,  # the data set is in its order already
                verbose=0,
            )
        return self._report(self._reason(interrupt.interrupted, total_steps))

    def _callbacks(
        self,
        interrupt: callbacks.GracefulInterrupt,
        progress: callbacks.ProgressBar,
        total_steps: int | None,
        samples: Sequence[str],
    ) -> list[keras.callbacks.Callback]:
        """In the order that `kformer.training.callbacks` asks for."""
        listed = [
            callbacks.TrackState(self.state),
            callbacks.Budget(self.state, total_steps, self.training.max_minutes),
            interrupt,
            callbacks.KeepBest(self.run.best_weights_file, self.state, self.training.patience, MONITOR),
            callbacks.Checkpoint(self.run.path, self.state),
            progress,
            callbacks.TensorBoardLog(self.run.tensorboard_folder, self.state),
            keras.callbacks.CSVLogger(self.run.log_file, append=True),
        ]
        if samples and keras.backend.backend() == "tensorflow":
            from kformer.samples import SampleTranslations  # here: a translator exists on TensorFlow alone

            listed.append(SampleTranslations(samples, self.model, self.transformer, self.tokenizers, self.console))
        return listed

    def _reason(self, interrupted: bool, total_steps: int | None) -> str:
        if interrupted:
            return "interrupted"
        if self.state.waited >= self.training.patience:
            return f"{self.training.patience} validations brought no better loss"
        if total_steps is not None and self.state.step >= total_steps:
            return f"the budget of {total_steps} steps is spent"
        return f"the budget of {self.training.max_minutes:g} minutes is spent"

    def _report(self, reason: str) -> TrainingReport:
        return TrainingReport(self.run, self.state.step, self.state.best_loss, reason)


def _check_corpus(corpus: Corpus) -> None:
    for part in ("train", "valid"):
        if not getattr(corpus, part):
            raise ValueError(
                f"The corpus {corpus.name!r} has no {part} pairs. Training needs some to learn from (train) and "
                "some to tell the best weights by (valid)."
            )


def _begin(
    run: RunFolder, corpus: Corpus, transformer: TransformerConfig | None, training: TrainingConfig | None
) -> tuple[TransformerConfig, TrainingConfig, tuple[Tokenizer, Tokenizer]]:
    """Trains the tokenizers, completes both configurations and writes all of it into the run folder."""
    if run.exists():
        raise FileExistsError(
            f"{run.path} holds a run already. Go on with it by resume (`--resume`), or choose another folder."
        )
    training = training or TrainingConfig.from_preset("small")
    if corpus.symbols:
        training = training.replace(tokenizer="symbols")
    training = training.replace(precision=resolve_precision(training.precision))
    source, target = tokenizers = train_tokenizers(corpus.train, training)
    given = transformer or TransformerConfig.from_preset("small")
    tying = given.embedding_tying
    transformer = given.replace(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        embedding_tying="target" if tying == "all" and source is not target else tying,
        pad_id=target.pad_id,
        start_id=target.start_id,
        end_id=target.end_id,
    )
    run.path.mkdir(parents=True, exist_ok=True)
    save_tokenizers(run.tokenizer_folder, source, target)
    training.save(run.training_file)
    run.write_corpus(_describe(corpus))
    transformer.save(run.transformer_file)  # last: a folder with this file is a run
    return transformer, training, tokenizers


def _reopen(
    run: RunFolder, corpus: Corpus, training: TrainingConfig | None
) -> tuple[TransformerConfig, TrainingConfig, tuple[Tokenizer, Tokenizer]]:
    """Reads the run back; of `training` only the budget counts."""
    if not run.checkpoint_file.is_file():
        raise FileNotFoundError(
            f"{run.path} has no {run.checkpoint_file.name}, so there is nothing to resume. Start without resume."
        )
    known, given = run.corpus(), _describe(corpus)
    if known["sha256"] != given["sha256"]:
        raise ValueError(
            f"The run in {run.path} was trained on another corpus: {known['name']} with {known['train']:,} training "
            f"pairs. Received: {given['name']} with {given['train']:,}. Resume with the same text, or start a new run."
        )
    stored = run.training_config()
    if training is not None:
        stored = stored.replace(**{name: getattr(training, name) for name in BUDGET})
        stored.save(run.training_file)
    return run.transformer_config(), stored, load_tokenizers(run.tokenizer_folder)


def _describe(corpus: Corpus) -> dict:
    """Name, sizes and fingerprint of a corpus. The fingerprint covers what is trained and validated on."""
    digest = hashlib.sha256()
    for pairs in (corpus.train, corpus.valid):
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        digest.update(b"\x00")
    sizes = {part: len(getattr(corpus, part)) for part in ("train", "valid", "test")}
    return {"name": corpus.name, **sizes, "symbols": corpus.symbols, "sha256": digest.hexdigest()}


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


def _compile(model: keras.Model, transformer: TransformerConfig, training: TrainingConfig) -> None:
    pad_id = transformer.pad_id
    smoothing = {
        "epsilon": training.label_smoothing,
        "pad_id": pad_id,
        "form": training.label_smoothing_form,
    }
    optimizer = build_adam(transformer.d_model, training)
    if training.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=losses.LabelSmoothedCrossEntropy(**smoothing),
        metrics=[
            metrics.TokenLoss(**smoothing),
            metrics.TokenAccuracy(pad_id),
            metrics.Perplexity(pad_id),
            metrics.TokenCount(pad_id),
        ],
        # On a CPU, TensorFlow's own kernels (oneDNN) train faster than XLA's.
        jit_compile="auto" if has_gpu() or keras.backend.backend() != "tensorflow" else False,
    )


def _total_steps(training: TrainingConfig, batches_per_epoch: int) -> int | None:
    """The budget of steps and epochs as one number of optimizer updates; None where there is neither."""
    limits = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        limits.append(max(1, training.max_epochs * batches_per_epoch // training.gradient_accumulation_steps))
    return min(limits, default=None)
