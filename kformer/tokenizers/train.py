"""Learns the vocabularies of a training run."""

from collections.abc import Sequence

from kformer.config import TrainingConfig
from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.sentencepiece import SentencePieceTokenizer, VocabularyTooLarge
from kformer.tokenizers.symbols import SymbolTokenizer


def train_tokenizers(pairs: Sequence[tuple[str, str]], training_config: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
    """Learns the source and the target vocabulary from (source, target) pairs.

    The settings `tokenizer`, `vocab_size` (for subwords only) and `shared_vocabulary` of the configuration are used. If
    the texts are too few for `vocab_size` pieces, the vocabulary is as large as they allow. With a shared vocabulary
    (section 5.1 of the paper) both tokenizers are the same object.

    Raises:
        ValueError: All texts are blank, or `vocab_size` is too small for their characters.
    """
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    if training_config.shared_vocabulary:
        shared = _train(sources + targets, training_config)
        return shared, shared
    return _train(sources, training_config), _train(targets, training_config)


def _train(texts: list[str], config: TrainingConfig) -> Tokenizer:
    if config.tokenizer == "symbols":
        return SymbolTokenizer.train(texts)
    try:
        return SentencePieceTokenizer.train(texts, config.vocab_size, config.tokenizer)
    except VocabularyTooLarge as error:
        return SentencePieceTokenizer.train(texts, error.largest, config.tokenizer)
