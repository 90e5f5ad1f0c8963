"""The resumption of a run: an existing run folder, whose files fit each other, the corpus and the arguments.

Weights, optimizer and progress are read later, by `load_last_checkpoint` in `checkpoints`.
"""

import pathlib
from collections.abc import Sequence

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.files.checksums import check_file
from kformer.runs.environment import environment_changes
from kformer.runs.folder import RunFolder
from kformer.tasks import task_of
from kformer.tokenizers import load_tokenizers
from kformer.training.checkpoints import saved_state
from kformer.training.run_setup import (
    RunSetup,
    changed_fields,
    complete_training_config,
    decided_by_data,
    describe_corpus,
    encode,
)

# Fields that say when a run ends and is saved. Only these may change when a run is resumed.
MAY_CHANGE = (
    *("max_epochs", "max_steps", "max_minutes", "patience", "least_improvement", "keep_weights", "checkpoint_minutes"),
)


def resume_run(
    run: RunFolder,
    corpus: Corpus,
    transformer: TransformerConfig | None = None,
    training: TrainingConfig | None = None,
    initialize_from: str | pathlib.Path | None = None,
) -> RunSetup:
    """Reads the run, with the budget of `training`.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: A file is damaged, or the corpus or an argument differs from that of the run.
    """
    run.check_begun()
    run.check_files()
    _check_same_corpus(run, corpus)
    began_with = run.corpus().get("initialize_from")
    if initialize_from is not None and pathlib.Path(initialize_from) != pathlib.Path(began_with or ""):
        raise ValueError(
            f"A resumed run keeps its initial weights. The run in {run.path} began with {began_with or 'new weights'}. "
            f"Received: initialize_from={str(initialize_from)!r}. Leave it out, or start a new run."
        )
    stored_transformer, stored_training = run.transformer_config(), run.training_config()
    task = task_of(stored_transformer.task)
    if transformer is not None:
        transformer = task.adapt(transformer)
        _refuse_changes(run, stored_transformer, transformer, decided_by_data(run, transformer))
    if training is None:
        training = stored_training
    else:
        if training.precision == "auto":  # which this machine might choose otherwise than that of the run's beginning
            training = training.replace(precision=stored_training.precision)
        training = complete_training_config(training, corpus, run.vocabulary_from())
        # A run keeps this multiple, because it depends on the devices that the run began with.
        training = training.replace(batch_size_multiple=stored_training.batch_size_multiple)
        if training.fit_warmup and stored_training.fit_warmup:  # the run keeps what its first budget decided
            fitted = {name: getattr(stored_training, name) for name in ("warmup_steps", "learning_rate_scale")}
            training = training.replace(**fitted, fit_warmup=True)
        _refuse_changes(run, stored_training, training, except_fields=MAY_CHANGE)
        if training != stored_training:
            run.write_config(run.training_file, training)
    tokenizers = load_tokenizers(run.tokenizer_folder)
    pairs = encode(corpus, task, training, tokenizers)
    return RunSetup(stored_transformer, training, tokenizers, *pairs, resumed=True)


def _check_same_corpus(run: RunFolder, corpus: Corpus) -> None:
    stored, given = run.corpus(), describe_corpus(corpus, corpus.facts(), run.training_config())
    if stored["sha256"] != given["sha256"]:
        raise ValueError(
            f"The run in {run.path} was trained on another corpus: {stored['name']} with {stored['train']:,} training "
            f"and {stored['valid']:,} validation pairs. Received: {given['name']} with {given['train']:,} and "
            f"{given['valid']:,}. Resume with the same text and the same alignments, or start a new run."
        )
    if stored["part_sizes"] != given["part_sizes"]:
        sizes = [", ".join(f"{train:,}" for train, _ in one["part_sizes"]) or "one corpus" for one in (stored, given)]
        raise ValueError(
            f"The run in {run.path} was trained on corpora of other sizes: {sizes[0]} training pairs. Received: "
            f"{sizes[1]}. How often a pair is seen depends on its corpus: give the same corpora in the same order."
        )


def _refuse_changes(
    run: RunFolder,
    stored: TransformerConfig | TrainingConfig,
    given: TransformerConfig | TrainingConfig,
    except_fields: Sequence[str],
) -> None:
    changed = changed_fields(stored, given, except_fields)
    if changed:
        raise ValueError(
            f"A resumed run keeps its configuration. Received values that differ from the run in {run.path}: "
            f"{changed}. Leave them out, or start a new run. Only these fields may change: {', '.join(MAY_CHANGE)}."
        )


def check_resumable(run: RunFolder) -> None:
    """Refuses a run whose files do not fit its last checkpoint. Only the process that owns the folder may call it.

    Raises:
        FileNotFoundError: The checkpoints or the best weights were removed.
        DamagedFileError: The best weights or the description of the corpus are damaged.
        ValueError: The folder holds a packed model, a mean of weights or a model from elsewhere, not a trained run; a
            configuration was edited since the last checkpoint (the message says what differs); or the checkpoint is of
            a run on another corpus.
    """
    check_file(run.corpus_file)  # it is read first
    _check_trained(run)
    saved = saved_state(run.checkpoint_file)
    if saved is None:
        _check_just_begun(run)
        return
    if saved.best is not None:
        run.check_weights()
        check_file(run.best_weights_file, run.kept_weights_remedy())
    if saved.corpus != run.corpus()["sha256"]:
        raise ValueError(
            f"{run.checkpoint_file} is of a run on another corpus. Put back the checkpoint of this run, or start a new "
            "run."
        )
    transformer, training = TransformerConfig.from_dict(saved.transformer), TrainingConfig.from_dict(saved.training)
    files = ((run.transformer_file, transformer, ()), (run.training_file, training, MAY_CHANGE))
    for file, config, except_fields in files:
        changed = changed_fields(config, type(config).load(file), except_fields, stored_in="the checkpoint")
        if changed:
            raise ValueError(
                f"{file} was edited since the last checkpoint: {changed}. Put the values back, or start a new run."
            )


def _check_just_begun(run: RunFolder) -> None:
    """Refuses a run that has weights but no checkpoint: it could only begin again, and overwrite the weights."""
    if run.best_weights_file.is_file() or run.kept_weights():
        raise FileNotFoundError(
            f"{run.path} has weights, but no readable checkpoint: it was removed or damaged. Restore "
            f"{run.checkpoint_file.name} from a copy, or begin a new run with these weights by initialize_from "
            "(`--initialize-from`)."
        )


def _check_trained(run: RunFolder) -> None:
    if run.packed_weights_file.is_file():
        content = "a packed model"
    elif "mean_of" in run.corpus():
        content = "a mean of weights"
    elif not run.training_file.is_file():
        content = "a model that was not trained here"
    else:
        return
    raise ValueError(
        f"{run.path} is {content}, so there is nothing to resume. Begin a new run with its weights by "
        "initialize_from (`--initialize-from`)."
    )


def environment_note(run: RunFolder) -> str | None:
    """A note, to show at a resume, that the run began in another environment; None if the environment is the same."""
    changes = environment_changes(run.environment())
    if not changes:
        return None
    return f"The run began with {', '.join(changes)}: its results may differ from those of a run that was not stopped."
