"""The start of a run: makes a new run folder with tokenizers and configurations, or reads an existing one."""

import hashlib
import pathlib
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kformer.checksums import check_file
from kformer.config import (
    MONITORS,
    TrainingConfig,
    TransformerConfig,
    check_first_weights,
    check_layers,
    check_positions,
)
from kformer.data import Corpus, EncodedPairs
from kformer.data.corpus import sample_sources
from kformer.hardware import resolve_precision
from kformer.presets import find_preset
from kformer.runs.environment import describe_environment, environment_changes
from kformer.runs.folder import RunFolder, derived_run
from kformer.tasks import task_of
from kformer.tokenizers import Tokenizer, load_tokenizers, save_tokenizers
from kformer.training.checkpoints import saved_state
from kformer.training.pretrained_embeddings import (
    describe_embeddings,
    embedding_files,
    find_embeddings,
    fit_to_vectors,
    read_embeddings,
    save_embeddings,
)

SAMPLES = 16  # validation sources that are kept, to try an export on them
SCORED_SOURCES = 500  # sources translated at each validation, if the scores of translations decide the best weights
# Fields that say when a run ends and is saved. Only these may change when a run is resumed.
BUDGET = ("max_epochs", "max_steps", "max_minutes", "patience", "keep_weights", "checkpoint_minutes")
# Fields of a TransformerConfig that the tokenizers decide.
FROM_TOKENIZERS = ("source_vocab_size", "target_vocab_size", "pad_id", "start_id", "end_id")
# Fields of a TrainingConfig that describe tokenizers.
OF_TOKENIZERS = ("tokenizer", "vocab_size", "shared_vocabulary")


class RunSetup(NamedTuple):
    """Configurations, tokenizers and data of a run, from its folder and its corpus."""

    transformer: TransformerConfig
    training: TrainingConfig
    tokenizers: tuple[Tokenizer, Tokenizer]  # of the source and of the target
    train: EncodedPairs
    valid: EncodedPairs
    resumed: bool


def check_parts(corpus: Corpus) -> None:
    """Refuses a corpus that has nothing to train or to validate on.

    Raises:
        ValueError: The training or the validation part is empty.
    """
    for part in ("train", "valid"):
        if not getattr(corpus, part):
            raise ValueError(
                f"The corpus {corpus.name!r} has no {part} pairs. Training needs pairs to learn from (train) and "
                "pairs that decide the best weights (valid)."
            )


def start_run(
    run: RunFolder,
    corpus: Corpus,
    transformer: TransformerConfig | None,
    training: TrainingConfig,
    initialize_from: str | pathlib.Path | None = None,
) -> RunSetup:
    """Writes what a new run needs into its folder: configurations, tokenizers, and an earlier run's weights, if any.

    The tokenizers are trained on the corpus. With `initialize_from`, the tokenizers and the transformer of the earlier
    run are taken instead. The corpus and the configurations are checked before anything is written.
    """
    run.check_new()
    _check_monitor(training, corpus)
    origin = None if initialize_from is None else find_preset(initialize_from)
    training = _complete_training_config(training, corpus, origin)
    description = _describe(corpus)
    task = task_of(training.task)
    pairs_to_learn = task.pairs(corpus.train)
    vectors = read_embeddings(training, has_initial_weights=origin is not None)
    if origin is None:
        sizes = transformer or TransformerConfig.of_size("small")
        check_layers(training.task, sizes)
        tokenizers = task.train_tokenizers(pairs_to_learn, training)
        sizes = task.adapt(sizes)
        transformer = fit_to_vectors(_fit_to_tokenizers(sizes, *tokenizers), vectors)
    else:
        earlier = origin.training_config().task
        check_first_weights(training.task, earlier)
        transformer = _transformer_of_weights(origin, transformer)
        tokenizers = task.keep_tokenizers(load_tokenizers(origin.tokenizer_folder), earlier, pairs_to_learn)
        transformer = _fit_to_tokenizers(task.adapt(transformer), *tokenizers)
        description |= {"symbols": origin.corpus()["symbols"], "initialize_from": str(initialize_from)}
    check_positions(transformer, training)
    pairs = _encode(corpus, training, tokenizers)
    found = find_embeddings(transformer, vectors, tokenizers)
    run.path.mkdir(parents=True, exist_ok=True)
    if origin is not None:
        _copy_initial(origin, run)
    if found:
        save_embeddings(run, found)
        description |= describe_embeddings(transformer, found, pairs[0])
    save_tokenizers(run.tokenizer_folder, *tokenizers)
    training.save(run.training_file)
    run.write_corpus(description)
    run.write_samples(sample_sources(corpus.valid, SAMPLES))
    run.write_environment(describe_environment())
    run.note_files()
    # This file is written last, because a folder with this file counts as a run.
    run.write_config(run.transformer_file, transformer)
    return RunSetup(transformer, training, tokenizers, *pairs, resumed=False)


def _copy_initial(origin: RunFolder, run: RunFolder) -> None:
    """Copies what the new run needs from `origin`, the run with its initial weights."""
    if run.initial.exists():  # left by a run that was killed at its start
        shutil.rmtree(run.initial.path)
    check_file(origin.weights_file(), origin.kept_weights_remedy())
    with derived_run(origin, run.initial.path) as initial:
        shutil.copy(origin.weights_file(), initial.path)


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
    if transformer is not None:
        transformer = task_of(stored_training.task).adapt(transformer)
        except_fields = _decided_by_data(stored_transformer, transformer, stored_training)
        _refuse_changes(run, stored_transformer, transformer, except_fields)
    if training is None:
        training = stored_training
    else:
        origin = run.initial if run.initial.exists() else None
        training = _complete_training_config(training, corpus, origin)
        # A run keeps this multiple, because it depends on the devices that the run began with.
        training = training.replace(batch_size_multiple=stored_training.batch_size_multiple)
        _refuse_changes(run, stored_training, training, except_fields=BUDGET)
        if training != stored_training:
            run.write_config(run.training_file, training)
    tokenizers = load_tokenizers(run.tokenizer_folder)
    pairs = _encode(corpus, training, tokenizers)
    return RunSetup(stored_transformer, training, tokenizers, *pairs, resumed=True)


def check_resumable(run: RunFolder) -> None:
    """Refuses a run whose files do not fit its last checkpoint. Only the process that owns the folder may call it.

    Raises:
        FileNotFoundError: The checkpoints or the best weights were removed.
        DamagedFileError: The best weights or the description of the corpus are damaged.
        ValueError: The folder holds a packed model or a mean of weights, not a trained run; a configuration was edited
            since the last checkpoint (the message says what differs); or the checkpoint is of a run on another corpus.
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
    files = ((run.transformer_file, transformer, ()), (run.training_file, training, BUDGET))
    for file, config, except_fields in files:
        changed = _changes(config, type(config).load(file), except_fields)
        if changed:
            raise ValueError(
                f"{file} was edited since the last checkpoint: {changed.replace('the run has', 'the checkpoint has')}. "
                "Put the values back, or start a new run."
            )


def _check_just_begun(run: RunFolder) -> None:
    """Refuses a run that has weights but no checkpoint: it could only begin again, and overwrite the weights."""
    if run.best_weights_file.is_file() or run.kept_weights():
        raise FileNotFoundError(
            f"{run.path} has weights, but no readable checkpoint: it was removed. Restore "
            f"{run.checkpoint_file.name} from a copy, or begin a new run with these weights by initialize_from "
            "(`--initialize-from`)."
        )


def _check_trained(run: RunFolder) -> None:
    if run.packed_weights_file.is_file():
        content = "a packed model"
    elif "mean_of" in run.corpus():
        content = "a mean of weights"
    else:
        return
    raise ValueError(
        f"{run.path} is {content}, so there is nothing to resume. Begin a new run with its weights by "
        "initialize_from (`--initialize-from`)."
    )


def _check_same_corpus(run: RunFolder, corpus: Corpus) -> None:
    stored, given = run.corpus(), _describe(corpus)
    if stored["sha256"] != given["sha256"]:
        raise ValueError(
            f"The run in {run.path} was trained on another corpus: {stored['name']} with {stored['train']:,} training "
            f"and {stored['valid']:,} validation pairs. Received: {given['name']} with {given['train']:,} and "
            f"{given['valid']:,}. Resume with the same text, or start a new run."
        )


def _check_monitor(training: TrainingConfig, corpus: Corpus) -> None:
    if not MONITORS[training.monitor].suits(corpus.symbols):
        suitable = [name for name, monitor in MONITORS.items() if monitor.suits(corpus.symbols)]
        raise ValueError(
            f"The corpus {corpus.name!r} is scored by {', '.join(suitable)}. Received: monitor={training.monitor!r}. "
            "Choose one of those."
        )


def _encode(
    corpus: Corpus, training: TrainingConfig, tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[EncodedPairs, EncodedPairs]:
    task = task_of(training.task)
    train, valid = (
        task.encode(task.pairs(pairs), tokenizers, training.max_length) for pairs in (corpus.train, corpus.valid)
    )
    return train, valid


def _complete_training_config(training: TrainingConfig, corpus: Corpus, origin: RunFolder | None) -> TrainingConfig:
    """The configuration with the fields that the corpus, the machine and the run of the initial weights determine."""
    if origin is not None:
        stored = origin.training_config()
        kept = {name: getattr(stored, name) for name in OF_TOKENIZERS}
    else:
        kept = {"tokenizer": "symbols" if corpus.symbols else training.tokenizer}
    scored_sources = training.scored_sources
    if scored_sources is None:
        scored_sources = SCORED_SOURCES if MONITORS[training.monitor].translations else 0
    return training.replace(**kept, precision=resolve_precision(training.precision), scored_sources=scored_sources)


def _fit_to_tokenizers(transformer: TransformerConfig, source: Tokenizer, target: Tokenizer) -> TransformerConfig:
    """The configuration with the sizes of the vocabularies, the special ids, and as much weight tying as possible."""
    tying = transformer.embedding_tying
    return transformer.replace(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        embedding_tying="target" if tying == "all" and source is not target else tying,
        pad_id=target.pad_id,
        start_id=target.start_id,
        end_id=target.end_id,
    )


def _decided_by_data(
    stored: TransformerConfig, given: TransformerConfig, stored_training: TrainingConfig
) -> tuple[str, ...]:
    """Fields in which the configurations may differ, because the tokenizers or the vectors of the run decided them."""
    fields: tuple[str, ...] = FROM_TOKENIZERS
    if stored.embedding_tying == "target" and given.embedding_tying == "all":  # there are two vocabularies
        fields = (*fields, "embedding_tying")
    if embedding_files(stored_training) and given.embedding_dim is None:
        fields = (*fields, "embedding_dim")
    return fields


def _transformer_of_weights(origin: RunFolder, given: TransformerConfig | None) -> TransformerConfig:
    """The configuration of the weights in `origin`; a given one that differs from it is an error."""
    stored = origin.transformer_config()
    decided = () if given is None else _decided_by_data(stored, given, origin.training_config())
    if given is not None and (changed := _changes(stored, given, decided)):
        raise ValueError(
            "A run that begins with another run's weights keeps that run's transformer. Received values that differ "
            f"from the run in {origin.path}: {changed}. Leave them out, or train a new model."
        )
    return stored


def environment_note(run: RunFolder) -> str | None:
    """A note, to show at a resume, that the run began in another environment; None if the environment is the same."""
    changes = environment_changes(run.environment())
    if not changes:
        return None
    return f"The run began with {', '.join(changes)}: its results may differ from those of a run that was not stopped."


def vocabulary_report(pairs: EncodedPairs, tokenizers: tuple[Tokenizer, Tokenizer]) -> str:
    """One line that says how well a vocabulary that was made for another corpus suits this one."""
    source, target = (
        float(np.isin(ids, tokenizer.fallback_ids()).mean())
        for ids, tokenizer in zip((pairs.source_ids, pairs.target_ids), tokenizers, strict=True)
    )
    return (
        f"The vocabulary was made for another corpus: {source:.2%} of the source tokens and {target:.2%} of the target "
        "tokens are bytes or unknown."
    )


def _refuse_changes(
    run: RunFolder,
    stored: TransformerConfig | TrainingConfig,
    given: TransformerConfig | TrainingConfig,
    except_fields: Sequence[str],
) -> None:
    changed = _changes(stored, given, except_fields)
    if changed:
        raise ValueError(
            f"A resumed run keeps its configuration. Received values that differ from the run in {run.path}: "
            f"{changed}. Leave them out, or start a new run. Only these fields may change: {', '.join(BUDGET)}."
        )


def _changes(
    stored: TransformerConfig | TrainingConfig, given: TransformerConfig | TrainingConfig, except_fields: Sequence[str]
) -> str:
    """Names and values of the fields in which `given` differs from a run, in words; "" if there are none."""
    return ", ".join(
        f"{name}={value!r} (the run has {getattr(stored, name)!r})"
        for name, value in given.to_dict().items()
        if name not in except_fields and value != getattr(stored, name)
    )


def _describe(corpus: Corpus) -> dict:
    """Name, sizes and fingerprint of a corpus. The fingerprint covers the training and validation pairs."""
    digest = hashlib.sha256()
    for pairs in (corpus.train, corpus.valid):
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        digest.update(b"\x00")
    sizes = {part: len(getattr(corpus, part)) for part in ("train", "valid", "test")}
    return {"name": corpus.name, **sizes, "symbols": corpus.symbols, "sha256": digest.hexdigest()}
