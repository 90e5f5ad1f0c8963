"""Builds an opened run: its model with its first weights or those of the last checkpoint, and what a user is told."""

import keras
import rich.console

from kformer.config import TrainingConfig, ends_with_budget
from kformer.data import Corpus
from kformer.data.label_checks import unknown_labels
from kformer.models import GuidedAlignment, TwoPasses, WithTeacher, build_model, rematerialize_layers
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.training.checkpoints import TrainingState, load_last_checkpoint, previous_checkpoint
from kformer.training.compile import compile_model
from kformer.training.distributed import ProcessGroup
from kformer.training.first_weights import load_first_weights
from kformer.training.opened_run import OpenedRun, RunRequest
from kformer.training.plan import last_update
from kformer.training.pretrained_embeddings import EMBEDDING_FILES, assign_embeddings, freeze_embeddings
from kformer.training.resumed_run import environment_note
from kformer.training.run_callbacks import ActiveRun
from kformer.training.run_setup import RunSetup, vocabulary_report
from kformer.training.text_lengths import lengths_report
from kformer.training.word_level_teacher import load_teacher
from kformer.wording import count


def build_run(
    request: RunRequest, opened: OpenedRun, group: ProcessGroup, state: TrainingState, console: rich.console.Console
) -> ActiveRun:
    """The run with its model and its progress. It prints what the run begins or goes on with."""
    folder, setup = opened.folder, opened.setup
    _check_devices(setup.training, group)
    lines = _about_setup(request.corpus, folder, setup)
    if not setup.resumed:
        lines += _about_warmup(request.training, setup.training)
    for line in lines:
        console.print(line, markup=False)  # a path may hold brackets
    updates = _update_of_the_end(setup)
    if updates is not None:
        final = setup.training.final_learning_rate
        console.print(f"The learning rate falls to {final:g} at update {updates:,}, the last of the budget.")
    model = _build(folder, setup, updates)
    if setup.resumed:
        _load_progress(folder, model, state, console)
    backend = keras.backend.backend() + group.describe()
    console.print(f"{model.count_params():,} parameters, {setup.training.precision}, {backend}", markup=False)
    state.note_run(setup.transformer, setup.training, folder.corpus()["sha256"])
    return ActiveRun(folder, setup, group, model, state, console, opened.check_there)


def _check_devices(training: TrainingConfig, group: ProcessGroup) -> None:
    if training.batch_size_multiple % group.replicas:
        raise ValueError(
            f"In this run, the number of rows of a batch is a multiple of {training.batch_size_multiple}, because of "
            f"the number of devices that it began with. Received: {group.replicas} devices. Resume with a number of "
            f"devices that divides {training.batch_size_multiple}."
        )


def _about_setup(corpus: Corpus, folder: RunFolder, setup: RunSetup) -> list[str]:
    """Lines about the environment, the texts and the vocabulary."""
    parts = (("train", setup.train), ("valid", setup.valid))
    lines = [
        environment_note(folder) if setup.resumed else None,
        *(f"{corpus.name_of(part)} {part}: {pairs.report()}" for part, pairs in parts),
        unknown_labels(setup.transformer.task, corpus),
        lengths_report(setup.transformer.task, folder.decoding_config()),
        vocabulary_report(setup.train, setup.tokenizers) if folder.vocabulary_from() else None,
        *(f"{name}: {folder.corpus()[name]}" for name in EMBEDDING_FILES.values() if name in folder.corpus()),
    ]
    return [line for line in lines if line is not None]


def _about_warmup(given: TrainingConfig | None, used: TrainingConfig) -> list[str]:
    """A line if the warm-up was fitted to the budget."""
    asked = (given or TrainingConfig.of_size("small")).warmup_steps
    if used.warmup_steps >= asked:
        return []
    return [
        f"The warm-up is fitted to the budget: {count(used.warmup_steps, 'update')} instead of {asked:,}, with the "
        "same peak of the learning rate. Give warmup_steps yourself, and it stays."
    ]


def _update_of_the_end(setup: RunSetup) -> int | None:
    """The update at which the schedule of the rate ends; None if it does not end."""
    if not ends_with_budget(setup.training.schedule):
        return None
    arrangement = task_of(setup.transformer.task).training_arrangement(setup.tokenizers, setup.training)
    return last_update(setup.training, setup.train, arrangement)


def _build(folder: RunFolder, setup: RunSetup, updates: int | None) -> keras.Model:
    """The compiled model, with random weights, those of the run that this one began with, or pretrained embeddings."""
    keras.utils.set_random_seed(setup.training.seed)
    model = build_model(setup.transformer, dtype=setup.training.precision)
    if setup.training.r_drop:
        model = TwoPasses.of(model)
    if setup.training.guided_alignment:
        model = GuidedAlignment.of(model, setup.transformer, setup.training.guided_alignment)
    if setup.training.word_level:
        model = WithTeacher.of(model, load_teacher(folder.word_level_teacher, setup.training.precision))
    if setup.training.rematerialize:
        rematerialize_layers(model)
    freeze_embeddings(folder, model, setup.training)
    compile_model(model, setup.transformer, setup.training, updates)
    if folder.initial.exists():
        load_first_weights(folder.initial, model, setup.transformer.task, setup.tokenizers[1])
    assign_embeddings(folder, model, setup.training)
    return model


def _load_progress(folder: RunFolder, model: keras.Model, state: TrainingState, console: rich.console.Console) -> None:
    """Reads the last good checkpoint. A run that was killed before its first checkpoint begins again."""
    files = (folder.checkpoint_file, previous_checkpoint(folder.checkpoint_file))
    if not any(file.is_file() for file in files):
        console.print("There is no checkpoint yet: the run begins again.")
        return
    stored, damage = load_last_checkpoint(folder.checkpoint_file, model)
    if damage is not None:
        told = f"The last checkpoint cannot be read: {damage} Going on from the previous checkpoint."
        console.print(told, markup=False)
    console.print(f"Going on from update {stored.step:,}.")
    state.go_on_from(stored)
