"""How a run begins: a new run folder with its tokenizers and configurations, or one that is read back."""

import hashlib
from collections.abc import Sequence

from kformer.config import MONITORS, TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.hardware import resolve_precision
from kformer.run import RunFolder
from kformer.tokenizers import Tokenizer, load_tokenizers, save_tokenizers, train_tokenizers

SCORED_SOURCES = 500  # translated at each validation, where translations tell the best weights
# Fields that say when a run ends and is saved. They alone may change when a run is resumed.
BUDGET = ("max_epochs", "max_steps", "max_minutes", "patience", "keep_weights", "checkpoint_minutes")
# Fields of a TransformerConfig that the tokenizers decide.
FROM_TOKENIZERS = ("source_vocab_size", "target_vocab_size", "embedding_tying", "pad_id", "start_id", "end_id")


def check_parts(corpus: Corpus) -> None:
    """Refuses a corpus that has nothing to train or to validate on."""
    for part in ("train", "valid"):
        if not getattr(corpus, part):
            raise ValueError(
                f"The corpus {corpus.name!r} has no {part} pairs. Training needs some to learn from (train) and "
                "some to tell the best weights by (valid)."
            )


def begin(
    run: RunFolder, corpus: Corpus, transformer: TransformerConfig | None, training: TrainingConfig | None
) -> tuple[TransformerConfig, TrainingConfig, tuple[Tokenizer, Tokenizer]]:
    """Trains the tokenizers, completes both configurations and writes all of it into the run folder."""
    if run.exists():
        raise FileExistsError(
            f"{run.path} holds a run already. Go on with it by resume (`--resume`), or choose another folder."
        )
    training = _settled(training or TrainingConfig.from_preset("small"), corpus)
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


def _settled(training: TrainingConfig, corpus: Corpus) -> TrainingConfig:
    """With what corpus and machine decide."""
    refused = "bleu" if corpus.symbols else "word_error_rate"
    if training.monitor == refused:
        raise ValueError(
            f"The corpus {corpus.name!r} is scored by {', '.join(name for name in MONITORS if name != refused)}. "
            f"Received: monitor={refused!r}. Choose one of those."
        )
    scored = training.scored_sources
    return training.replace(
        tokenizer="symbols" if corpus.symbols else training.tokenizer,
        precision=resolve_precision(training.precision),
        scored_sources=SCORED_SOURCES * (training.monitor != "loss") if scored is None else scored,
    )


def reopen(
    run: RunFolder, corpus: Corpus, transformer: TransformerConfig | None, training: TrainingConfig | None
) -> tuple[TransformerConfig, TrainingConfig, tuple[Tokenizer, Tokenizer]]:
    """Reads the run back, with the budget of `training`; what else differs from the run is refused."""
    if not run.exists():
        raise FileNotFoundError(f"{run.path} holds no run, so there is nothing to resume. Start without resume.")
    known, given = run.corpus(), _describe(corpus)
    if known["sha256"] != given["sha256"]:
        raise ValueError(
            f"The run in {run.path} was trained on another corpus: {known['name']} with {known['train']:,} training "
            f"pairs. Received: {given['name']} with {given['train']:,}. Resume with the same text, or start a new run."
        )
    stored = run.training_config(), run.transformer_config()
    if transformer is not None:
        _refuse_changes(run, stored[1], transformer, but=FROM_TOKENIZERS)
    if training is not None:
        training = _settled(training, corpus)
        _refuse_changes(run, stored[0], training, but=BUDGET)
        training.save(run.training_file)
    return stored[1], training or stored[0], load_tokenizers(run.tokenizer_folder)


def _refuse_changes(
    run: RunFolder,
    stored: TransformerConfig | TrainingConfig,
    given: TransformerConfig | TrainingConfig,
    but: Sequence[str],
) -> None:
    changed = [
        f"{name}={value!r} (the run has {getattr(stored, name)!r})"
        for name, value in given.to_dict().items()
        if name not in but and value != getattr(stored, name)
    ]
    if changed:
        raise ValueError(
            f"A resumed run keeps its configuration. Received for {run.path}: {', '.join(changed)}. "
            f"Leave them out, or start a new run. What may change: {', '.join(BUDGET)}."
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
