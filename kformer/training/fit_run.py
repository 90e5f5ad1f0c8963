"""Trains a built run by `model.fit`, from its current state until a callback ends it."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from kformer.data import BatchPlan, EncodedPairs, make_dataset
from kformer.data.buckets import Bucket
from kformer.files.writing import WriteError
from kformer.training.callbacks import GracefulInterrupt, Interrupted, ProgressBar, TensorBoardLog
from kformer.training.part_metrics import PartMetrics
from kformer.training.plan import (
    batches_between_validations,
    budget_of,
    describe_budget,
    describe_mixture,
    describe_plan,
    plan_batches,
)
from kformer.training.run_callbacks import ActiveRun, Translations, list_callbacks

_NO_LAST_EPOCH = 2**31  # a callback ends the run


def fit_run(
    run: ActiveRun,
    translations: Translations,
    user_callbacks: Sequence[keras.callbacks.Callback],
    interrupt: GracefulInterrupt,
) -> None:
    """Trains until a callback ends the run; `run.state.end_reason` then says why."""
    training, state = run.setup.training, run.state
    plan = plan_batches(run.setup.train, training, run.training_arrangement)
    run.console.print(describe_plan(plan, training))
    names = run.folder.corpus().get("parts", [])
    if names:
        run.console.print(describe_mixture(plan, names), markup=False)
    budget = budget_of(training, plan)
    if budget.max_steps is not None:
        run.console.print(describe_budget(training, plan, budget.max_steps))
    if not state.validating and (spent := budget.spent(state)) is not None:
        state.end_reason = spent.already
        return
    whole = _validation_plan(run, run.setup.valid)
    valid = _validation_batches(run, whole)
    interval = batches_between_validations(training, plan)
    listed = list_callbacks(run, budget, interrupt, translations, user_callbacks, _part_metrics(run, whole, interrupt))
    with _closed_at_the_end(listed), _write_errors_explained(run), contextlib.suppress(Interrupted):
        if state.epoch_batch:  # The run was stopped between two validations, or during one.
            run.model.evaluate(valid, steps=1, verbose=0)  # makes the metrics' variables, see `Checkpoint`
            if state.validating:
                _validate(run, valid, listed)
            else:
                # At least one: on another kind of machine an epoch may have fewer batches than the run has done of it.
                left = max(1, interval - state.epoch_batch)
                _fit_epochs(run, plan, valid, listed, left, last_epoch=state.epoch + 1)
            if not state.end_reason and (spent := budget.out_of_steps(state)) is not None:
                state.end_reason = spent.now
        if not state.end_reason:
            _fit_epochs(run, plan, valid, listed, interval, last_epoch=_NO_LAST_EPOCH)
    if names:
        run.console.print(describe_mixture(plan, names, state.batch), markup=False)


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


def _validation_plan(run: ActiveRun, pairs: EncodedPairs, buckets: Sequence[Bucket] | None = None) -> BatchPlan:
    training = run.setup.training
    return BatchPlan(
        pairs,
        training.tokens_per_batch,
        buckets,
        row_multiple=training.batch_size_multiple,
        arrangement=run.arrangement,
    )


def _validation_batches(run: ActiveRun, plan: BatchPlan) -> tf.data.Dataset:
    return make_dataset(plan, shuffle_seed=None, repeat=False, part=(run.group.rank, run.group.world_size))


def _part_metrics(run: ActiveRun, whole: BatchPlan, interrupt: GracefulInterrupt) -> PartMetrics | None:
    """What measures each of several corpora, by the buckets of all together, so that nothing is compiled again.

    Corpora without validation pairs, such as synthetic ones, are left out.
    """
    description, pairs = run.folder.corpus(), whole.encoded.apart()
    names = description.get("parts", [])
    if len(names) < 2:
        return None
    plans = {}
    for name, (_, given), part in zip(names, description["part_sizes"], pairs, strict=True):
        if part.kept:
            plans[name] = _validation_plan(run, part, whole.buckets)
        elif given:
            run.console.print(
                f"{name} has no loss of its own, because each of its {given:,} validation pairs is blank or longer "
                "than max_length.",
                markup=False,
            )
    parts = {name: _validation_batches(run, plan) for name, plan in plans.items()}
    return PartMetrics(run.model, parts, interrupt.leave_validation)


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
            if isinstance(callback, ProgressBar | TensorBoardLog):
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
