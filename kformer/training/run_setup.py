"""What the start and the resumption of a run have in common: its configurations, tokenizers and data."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from kformer.config import MONITORS, TrainingConfig, TransformerConfig
from kformer.data import Corpus, EncodedPairs
from kformer.data.corpus import part_names
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.encoded_ids import IdStore
from kformer.data.encoding import token_share
from kformer.data.pairs import MappedPairs, Pair, Pairs, pair_without_tag
from kformer.data.tags import tag_of, tagged, without_tag
from kformer.files.checksums import DamagedFileError
from kformer.process.hardware import resolve_precision
from kformer.runs.folder import RunFolder
from kformer.tasks.base import Task
from kformer.tokenizers import Tokenizer
from kformer.tokenizers.base import ids_of_words
from kformer.tokenizers.sentencepiece import MODEL_TYPES
from kformer.training.pretrained_embeddings import embedding_files

SCORED_SOURCES = 500  # sources translated at each validation, if the scores of translations decide the best weights
# Fields of a TransformerConfig that the tokenizers decide.
FROM_TOKENIZERS = ("source_vocab_size", "target_vocab_size", "pad_id", "start_id", "end_id")
# Fields of a TrainingConfig that describe tokenizers.
OWN_TOKENIZERS = ("source_tokenizer", "target_tokenizer", "user_symbols")
OF_TOKENIZERS = ("tokenizer", "vocab_size", "shared_vocabulary", *OWN_TOKENIZERS)


class RunSetup(NamedTuple):
    """Configurations, tokenizers and data of a run, from its folder and its corpus."""

    transformer: TransformerConfig
    training: TrainingConfig
    tokenizers: tuple[Tokenizer, Tokenizer]  # of the source and of the target
    train: EncodedPairs
    valid: EncodedPairs
    resumed: bool


def encode(
    corpus: Corpus, task: Task, training: TrainingConfig, tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[EncodedPairs, EncodedPairs]:
    """The training and the validation part of the corpus as ids; the first with its alignments, if they are learned.

    Tags that stand before targets are those ids with which the targets of a corpus begin in place of the start id.

    Raises:
        ValueError: No pair of a part is left, or a part cannot be read.
    """

    def encoded(part: str, store: IdStore) -> EncodedPairs:
        try:
            pairs = task.pairs(getattr(corpus, part))
            if training.tags_before == "target":
                pairs = MappedPairs(lambda pair: pair_without_tag(pair, corpus.tags), pairs)
            found = task.encode(pairs, tokenizers, training.max_length, store)
            for one, number in zip(corpus.parts, found.parts, strict=True):
                if not number and part == "train":
                    raise ValueError(f"No pair of {one.name} is left. Check the texts or raise max_length.")
            return dataclasses.replace(found, part_start_ids=starts)
        except DamagedFileError:
            raise
        except ValueError as error:
            raise ValueError(f"{corpus.name_of(part)} {part}: {error}") from error

    starts = _part_start_ids(corpus, training, tokenizers[1])
    with corpus.kept_ids(task.name, training, tokenizers) as store:
        train = encoded("train", store)
    return train, encoded("valid", corpus.held_ids("valid"))


def _part_start_ids(corpus: Corpus, training: TrainingConfig, target: Tokenizer) -> tuple[int, ...]:
    """The ids that stand before the targets of joined corpora, if these are not all the start id."""
    if training.tags_before != "target":
        return ()
    known = dict(zip(corpus.tags, ids_of_words(target, corpus.tags), strict=True))
    return tuple(known.get(part.tag, target.start_id) for part in corpus.parts)


def pairs_of_vocabulary(pairs: Pairs, corpus: Corpus, training: TrainingConfig) -> Pairs:
    """The pairs from which a vocabulary is learned: each tag stands on the side where the model reads it."""
    if training.tags_before != "target":
        return pairs

    def moved(pair: Pair) -> Pair:
        return without_tag(pair[0], corpus.tags), tagged(pair[1], tag_of(pair[0], corpus.tags))

    return MappedPairs(moved, pairs)


def complete_training_config(training: TrainingConfig, corpus: Corpus, origin: RunFolder | None) -> TrainingConfig:
    """The configuration with the fields that the corpus, the machine and the run of the initial weights determine."""
    kept: dict[str, Any] = {}
    if origin is None:
        kept = {"tokenizer": "symbols" if corpus.symbols else training.tokenizer}
        if corpus.tags and kept["tokenizer"] in MODEL_TYPES and training.source_tokenizer is None:
            symbols = dict.fromkeys((*training.user_symbols.split(), *corpus.tags))
            kept["user_symbols"] = " ".join(symbols)
    elif origin.training_file.is_file():  # otherwise its tokenizers were not made here
        stored = origin.training_config()
        kept = {name: getattr(stored, name) for name in OF_TOKENIZERS}
    scored_sources = training.scored_sources
    if scored_sources is None:
        scored_sources = SCORED_SOURCES if MONITORS[training.monitor].translations else 0
    if training.tags_before is None:
        earlier = None if origin is None else origin.decoding_config()
        kept["tags_before"] = "target" if earlier is not None and earlier.tags_start_targets else "source"
    return training.replace(**kept, precision=resolve_precision(training.precision), scored_sources=scored_sources)


def decided_by_data(run: RunFolder, given: TransformerConfig) -> tuple[str, ...]:
    """Fields in which a configuration may differ from a run's, because its tokenizers or vectors decided them."""
    stored = run.transformer_config()
    fields: tuple[str, ...] = FROM_TOKENIZERS
    if stored.embedding_tying == "target" and given.embedding_tying == "all":  # there are two vocabularies
        fields = (*fields, "embedding_tying")
    has_vectors = run.training_file.is_file() and embedding_files(run.training_config())
    if has_vectors and given.embedding_dim is None:
        fields = (*fields, "embedding_dim")
    return fields


def changed_fields(
    stored: TransformerConfig | TrainingConfig,
    given: TransformerConfig | TrainingConfig,
    except_fields: Sequence[str],
    stored_in: str = "the run",
) -> str:
    """Names and values of the fields in which `given` differs from `stored`, in words; "" if there are none."""
    return ", ".join(
        f"{name}={value!r} ({stored_in} has {getattr(stored, name)!r})"
        for name, value in given.to_dict().items()
        if name not in except_fields and value != getattr(stored, name)
    )


def describe_corpus(corpus: Corpus, facts: CorpusFacts, training: TrainingConfig) -> dict:
    """Name, sizes, forms and fingerprint of a corpus. The fingerprint covers the training and validation pairs."""
    return {
        "name": corpus.name,
        "train": facts.train,
        "valid": facts.valid,
        "test": len(corpus.test),
        "symbols": training.reads_symbols,
        "tabs_in_sources": facts.tabs_in_sources,
        "sha256": facts.sha256,
        "parts": part_names(corpus.parts),
        "part_sizes": [[part.train, part.valid] for part in corpus.parts],
    }


def vocabulary_report(pairs: EncodedPairs, tokenizers: tuple[Tokenizer, Tokenizer]) -> str:
    """One line that says how well a vocabulary that was made for another corpus suits this one."""
    source, target = (
        token_share(ids, tokenizer.fallback_ids())
        for ids, tokenizer in zip((pairs.source_ids, pairs.target_ids), tokenizers, strict=True)
    )
    return (
        f"The vocabulary was made for another corpus: {source:.2%} of the source tokens and {target:.2%} of the target "
        "tokens are bytes or unknown."
    )
