"""`model.fit` with its data and its callbacks, from where a run stands to its end."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator

import keras
import rich.console
import tensorflow as tf

from kformer.config import TrainingConfig
from kformer.data import BatchPlan, EncodedPairs, make_dataset
from kformer.data.buckets import FEW_BUCKETS, MANY_BUCKETS
from kformer.runs.folder import RunFolder
from kformer.training import callbacks
from kformer.training.checkpoints import TrainingState
from kformer.training.compile import compiled_by_xla
from kformer.training.distributed import ProcessGroup

# `TrainingConfig.monitor`: key in the logs, and whether lower or higher is better.
MONITORED = {
    "loss": ("val_token_loss", "min"),
    "bleu": ("val_bleu", "max"),
    "word_error_rate": ("val_word_error_rate", "min"),
}


@dataclasses.dataclass
class Fit:
    """Trains a compiled model until the callbacks end it.

    Args:
        group: The devices and processes that train together.
        model: Compiled, with the weights of `state`.
        training: The run's configuration.
        run: Its folder.
        state: Where it stands; brought up to date.
        scored: Callbacks that add figures of a validation to the logs, in every process.
        shown: Callbacks that show a validation, in the main process.
        console: Where to print.
    """

    group: ProcessGroup
    model: keras.Model
    training: TrainingConfig
    run: RunFolder
    state: TrainingState
    scored: list[keras.callbacks.Callback]
    shown: list[keras.callbacks.Callback]
    console: rich.console.Console

    def __call__(self, train_pairs: EncodedPairs, valid_pairs: EncodedPairs) -> str:
        """Trains; returns why the run ended, in words."""
        training, state = self.training, self.state
        plan = batch_plan(train_pairs, training)
        self._announce(plan)
        total_steps = _total_steps(training, plan.steps_per_epoch)
        if total_steps is not None and state.step >= total_steps:
            return f"the budget of {total_steps} steps was spent already"
        interval = (training.validation_steps or 0) * training.gradient_accumulation_steps or plan.steps_per_epoch
        steps = callbacks.Budget(state, total_steps)
        interrupt = callbacks.GracefulInterrupt()
        stopping = self._stopping(interrupt)
        progress = callbacks.ProgressBar(state, total_steps, training.max_minutes, self.console)
        listed = self._callbacks(steps, stopping, progress)
        valid = make_dataset(
            BatchPlan(valid_pairs, training.tokens_per_batch, row_multiple=training.batch_size_multiple),
            shuffle_seed=None,
            repeat=False,
            part=(self.group.rank, self.group.world_size),
        )
        with contextlib.closing(interrupt), contextlib.closing(progress), _explained(self.run, state):
            if state.epoch_batch:  # A killed run goes on in the middle of its epoch.
                self.model.evaluate(valid, steps=1, verbose=0)  # makes the metrics' variables, see `Checkpoint`
                left = interval - state.epoch_batch
                self._fit(plan, valid, listed, steps_per_epoch=left, epochs=state.epoch + 1)
            if not (state.epoch_batch or self.model.stop_training):
                # The callbacks end the run.
                self._fit(plan, valid, listed, steps_per_epoch=interval, epochs=2**31)
        interrupted = interrupt.interrupted or any(getattr(one, "followed", None) is interrupt for one in stopping)
        return self._reason(interrupted, steps)

    def _announce(self, plan: BatchPlan) -> None:
        source, target = (count * self.training.gradient_accumulation_steps for count in plan.mean_tokens)
        self.console.print(
            f"An update sees {source:,.0f} source and {target:,.0f} target tokens on average; "
            f"{plan.padding_share:.1%} of all positions are padding"
        )

    def _fit(
        self,
        plan: BatchPlan,
        valid: tf.data.Dataset,
        listed: list[keras.callbacks.Callback],
        steps_per_epoch: int,
        epochs: int,
    ) -> None:
        """Goes on from where `state` says. One Keras "epoch" is one interval between validations."""
        self.model.fit(
            make_dataset(
                plan,
                shuffle_seed=self.training.seed,
                repeat=True,
                start_step=self.state.batch,
                batches_per_update=self.training.gradient_accumulation_steps,
                part=(self.group.rank, self.group.world_size),
            ),
            validation_data=valid,
            steps_per_epoch=steps_per_epoch,
            initial_epoch=self.state.epoch,
            epochs=epochs,
            callbacks=listed,
            shuffle=False,  # the data set is in its order already
            verbose=0,
        )

    def _stopping(self, interrupt: callbacks.GracefulInterrupt) -> list[keras.callbacks.Callback]:
        """What ends a run by what this process alone sees."""
        stopping = [
            callbacks.StopOnNaN(self.state),
            callbacks.Budget(self.state, max_minutes=self.training.max_minutes, started=time.monotonic()),
            interrupt,
        ]
        return stopping if self.group.world_size == 1 else [callbacks.StopTogether(stopping, self.group.all_reduce_max)]

    def _callbacks(
        self, steps: callbacks.Budget, stopping: list[keras.callbacks.Callback], progress: callbacks.ProgressBar
    ) -> list[keras.callbacks.Callback]:
        """In the order that `kformer.training.callbacks` asks for."""
        training, state, is_main = self.training, self.state, self.group.is_main
        best_weights = self.run.best_weights_file if is_main else None
        keep_best = callbacks.KeepBest(best_weights, state, training.patience, *MONITORED[training.monitor])
        validation = [*self.scored, keep_best]
        if is_main:
            keep_last = callbacks.KeepLast(self.run.weights_folder, state, training.keep_weights)
            validation += [keep_last, progress, *self.shown]
        if training.ema_decay:
            validation = [callbacks.UseEMA(), *validation, callbacks.UseTrained()]
        written = [callbacks.CSVLog(self.run.log_file, state)] if is_main else []
        return [
            callbacks.TrackState(state),
            steps,
            *stopping,
            *validation,
            *written,
            callbacks.Checkpoint(self.run.path if is_main else None, state, training.checkpoint_minutes),
        ]

    def _reason(self, interrupted: bool, steps: callbacks.Budget) -> str:
        if interrupted:
            return "interrupted"
        if self.state.waited >= self.training.patience:
            return f"{self.training.patience} validations brought no better {self.training.monitor}"
        if steps.spent:
            return f"the budget of {steps.max_steps} steps is spent"
        return f"the budget of {self.training.max_minutes:g} minutes is spent"


def batch_plan(train_pairs: EncodedPairs, training: TrainingConfig) -> BatchPlan:
    """The batches of a run, in as many shapes as are good for the backend."""
    return BatchPlan(
        train_pairs,
        training.tokens_per_batch,
        row_multiple=training.batch_size_multiple,
        max_buckets=FEW_BUCKETS if compiled_by_xla() else MANY_BUCKETS,
    )


@contextlib.contextmanager
def _explained(run: RunFolder, state: TrainingState) -> Iterator[None]:
    """Says of an error in writing, such as that of a full disk, what it leaves behind."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{error}. The run ended at update {state.step}. What its folder {run.path} held before is whole: mend the "
            "cause (make room on a full disk) and go on with resume (`--resume`)."
        ) from error


def _total_steps(training: TrainingConfig, batches_per_epoch: int) -> int | None:
    """The budget of steps and epochs as one number of optimizer updates; None where there is neither."""
    limits = []
    if training.max_steps is not None:
        limits.append(training.max_steps)
    if training.max_epochs is not None:
        limits.append(max(1, training.max_epochs * batches_per_epoch // training.gradient_accumulation_steps))
    return min(limits, default=None)
