"""How a run begins: a new run folder with its tokenizers and configurations, or one that is read back."""

import hashlib
import pathlib
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kformer.config import MONITORS, TrainingConfig, TransformerConfig
from kformer.data import Corpus, EncodedPairs, encode_pairs
from kformer.data.corpus import sample_sources
from kformer.hardware import resolve_precision
from kformer.presets import find_preset
from kformer.runs.environment import describe_environment, environment_changes
from kformer.runs.folder import RunFolder, derived_run
from kformer.tokenizers import Tokenizer, load_tokenizers, save_tokenizers, train_tokenizers

SAMPLES = 16  # validation sources that are kept for the trial of an export
SCORED_SOURCES = 500  # translated at each validation, where translations tell the best weights
# Fields that say when a run ends and is saved. They alone may change when a run is resumed.
BUDGET = ("max_epochs", "max_steps", "max_minutes", "patience", "keep_weights", "checkpoint_minutes")
# Fields of a TransformerConfig that the tokenizers decide.
FROM_TOKENIZERS = ("source_vocab_size", "target_vocab_size", "pad_id", "start_id", "end_id")
# Fields of a TrainingConfig that describe tokenizers.
OF_TOKENIZERS = ("tokenizer", "vocab_size", "shared_vocabulary")


class Opened(NamedTuple):
    """What a run trains with."""

    transformer: TransformerConfig
    training: TrainingConfig
    tokenizers: tuple[Tokenizer, Tokenizer]  # of the source and of the target
    train: EncodedPairs
    valid: EncodedPairs


def check_parts(corpus: Corpus) -> None:
    """Refuses a corpus that has nothing to train or to validate on."""
    for part in ("train", "valid"):
        if not getattr(corpus, part):
            raise ValueError(
                f"The corpus {corpus.name!r} has no {part} pairs. Training needs some to learn from (train) and "
                "some to tell the best weights by (valid)."
            )


def begin(
    run: RunFolder,
    corpus: Corpus,
    transformer: TransformerConfig | None,
    training: TrainingConfig,
    initialize_from: str | pathlib.Path | None = None,
) -> Opened:
    """Writes what a run begins with into its folder: configurations, tokenizers, and an earlier run's weights, if any.

    The tokenizers are trained on the corpus; those of an earlier run are kept, with its transformer. What is wrong with
    the corpus or with the configurations is found before anything is written.
    """
    run.check_new()
    _check_monitor(training, corpus)
    origin = None if initialize_from is None else find_preset(initialize_from)
    training = _settled(training, corpus, origin)
    if origin is None:
        tokenizers = train_tokenizers(corpus.train, training)
        transformer = _fitted(transformer or TransformerConfig.of_size("small"), *tokenizers)
        note = {}
    else:
        tokenizers = load_tokenizers(origin.tokenizer_folder)
        transformer = _inherited(origin, transformer)
        note = {"symbols": origin.corpus()["symbols"], "initialize_from": str(initialize_from)}
    _check_positions(transformer, training)
    pairs = _encode(corpus, training, tokenizers)
    run.path.mkdir(parents=True, exist_ok=True)
    if origin is not None:
        with derived_run(origin, run.initial.path) as initial:
            shutil.copy(origin.weights_file(), initial.path)
    save_tokenizers(run.tokenizer_folder, *tokenizers)
    training.save(run.training_file)
    run.write_corpus({**_describe(corpus), **note})
    run.write_samples(sample_sources(corpus.valid, SAMPLES))
    run.write_environment(describe_environment())
    transformer.save(run.transformer_file)  # last: a folder with this file is a run
    return Opened(transformer, training, tokenizers, *pairs)


def _check_positions(transformer: TransformerConfig, training: TrainingConfig) -> None:
    if transformer.positional_encoding == "learned" and training.max_length > transformer.max_length:
        raise ValueError(
            f"The transformer has {transformer.max_length} learned positions, and training takes pairs of up to "
            f"{training.max_length} tokens. Raise the max_length of the transformer, or lower that of training."
        )


def _encode(
    corpus: Corpus, training: TrainingConfig, tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[EncodedPairs, EncodedPairs]:
    train, valid = (encode_pairs(pairs, *tokenizers, training.max_length) for pairs in (corpus.train, corpus.valid))
    return train, valid


def _settled(training: TrainingConfig, corpus: Corpus, origin: RunFolder | None = None) -> TrainingConfig:
    """With what the corpus, or the run that the weights come from, and the machine decide."""
    if origin is not None:
        stored = origin.training_config()
        kept = {name: getattr(stored, name) for name in OF_TOKENIZERS}
    else:
        kept = {"tokenizer": "symbols" if corpus.symbols else training.tokenizer}
    scored = training.scored_sources
    return training.replace(
        **kept,
        precision=resolve_precision(training.precision),
        scored_sources=SCORED_SOURCES * (training.monitor != "loss") if scored is None else scored,
    )


def _check_monitor(training: TrainingConfig, corpus: Corpus) -> None:
    refused = "bleu" if corpus.symbols else "word_error_rate"
    if training.monitor == refused:
        raise ValueError(
            f"The corpus {corpus.name!r} is scored by {', '.join(name for name in MONITORS if name != refused)}. "
            f"Received: monitor={refused!r}. Choose one of those."
        )


def _fitted(transformer: TransformerConfig, source: Tokenizer, target: Tokenizer) -> TransformerConfig:
    """With what the tokenizers decide."""
    tying = transformer.embedding_tying
    return transformer.replace(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        embedding_tying="target" if tying == "all" and source is not target else tying,
        pad_id=target.pad_id,
        start_id=target.start_id,
        end_id=target.end_id,
    )


def _from_tokenizers(stored: TransformerConfig, given: TransformerConfig) -> tuple[str, ...]:
    """Fields in which they may differ: by its tokenizers a run has what was not asked for."""
    untied = (stored.embedding_tying, given.embedding_tying) == ("target", "all")  # there are two vocabularies
    return FROM_TOKENIZERS + ("embedding_tying",) * untied


def _inherited(origin: RunFolder, given: TransformerConfig | None) -> TransformerConfig:
    """The configuration that the weights of `origin` fit."""
    stored = origin.transformer_config()
    given = given or stored
    changed = _changes(stored, given, but=_from_tokenizers(stored, given))
    if changed:
        raise ValueError(
            f"A run that begins with the weights of another keeps its transformer. Received for {origin.path}: "
            f"{changed}. Leave them out, or train a new model."
        )
    return stored


def reopen(
    run: RunFolder,
    corpus: Corpus,
    transformer: TransformerConfig | None,
    training: TrainingConfig | None,
    initialize_from: str | pathlib.Path | None = None,
) -> Opened:
    """Reads the run back, with the budget of `training`; what else differs from the run is refused."""
    run.check_begun()
    known, given = run.corpus(), _describe(corpus)
    made = "a packed model" if run.packed_weights_file.is_file() else "a mean of weights" if "mean_of" in known else ""
    if made:
        raise ValueError(
            f"{run.path} is {made}, so there is nothing to resume. Begin a new run with its weights by "
            "initialize_from (`--initialize-from`)."
        )
    if known["sha256"] != given["sha256"]:
        raise ValueError(
            f"The run in {run.path} was trained on another corpus: {known['name']} with {known['train']:,} training "
            f"pairs. Received: {given['name']} with {given['train']:,}. Resume with the same text, or start a new run."
        )
    began_with = known.get("initialize_from")
    if initialize_from is not None and str(initialize_from) != began_with:
        raise ValueError(
            f"A resumed run keeps its beginning. The run in {run.path} began with {began_with or 'new weights'}. "
            f"Received: initialize_from={str(initialize_from)!r}. Leave it out, or start a new run."
        )
    stored = run.training_config(), run.transformer_config()
    if transformer is not None:
        _refuse_changes(run, stored[1], transformer, but=_from_tokenizers(stored[1], transformer))
    if training is not None:
        # The multiple of a run stays: it depends on the devices that the run began with.
        multiple = stored[0].batch_size_multiple
        origin = run.initial if run.initial.exists() else None
        training = _settled(training, corpus, origin).replace(batch_size_multiple=multiple)
        _refuse_changes(run, stored[0], training, but=BUDGET)
        training.save(run.training_file)
    training, tokenizers = training or stored[0], load_tokenizers(run.tokenizer_folder)
    return Opened(stored[1], training, tokenizers, *_encode(corpus, training, tokenizers))


def environment_note(run: RunFolder) -> str | None:
    """What a run that goes on should say: that it began in another environment."""
    changes = environment_changes(run.environment())
    if not changes:
        return None
    return f"The run began with {', '.join(changes)}: its results may differ from those of a run that was not stopped."


def vocabulary_report(pairs: EncodedPairs, tokenizers: tuple[Tokenizer, Tokenizer]) -> str:
    """How well a vocabulary that was made for another corpus suits this one."""
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
    but: Sequence[str],
) -> None:
    changed = _changes(stored, given, but)
    if changed:
        raise ValueError(
            f"A resumed run keeps its configuration. Received for {run.path}: {changed}. "
            f"Leave them out, or start a new run. What may change: {', '.join(BUDGET)}."
        )


def _changes(
    stored: TransformerConfig | TrainingConfig, given: TransformerConfig | TrainingConfig, but: Sequence[str]
) -> str:
    """In words, what `given` has otherwise than a run; empty if nothing."""
    return ", ".join(
        f"{name}={value!r} (the run has {getattr(stored, name)!r})"
        for name, value in given.to_dict().items()
        if name not in but and value != getattr(stored, name)
    )


def _describe(corpus: Corpus) -> dict:
    """Name, sizes and fingerprint of a corpus. The fingerprint covers what is trained and validated on."""
    digest = hashlib.sha256()
    for pairs in (corpus.train, corpus.valid):
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        digest.update(b"\x00")
    sizes = {part: len(getattr(corpus, part)) for part in ("train", "valid", "test")}
    return {"name": corpus.name, **sizes, "symbols": corpus.symbols, "sha256": digest.hexdigest()}
