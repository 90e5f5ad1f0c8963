"""Vocabularies for a training run."""

from collections.abc import Sequence

from kformer.config import TrainingConfig
from kformer.tokenizers.base import Tokenizer
from kformer.tokenizers.sentencepiece import SentencePieceTokenizer, VocabularyTooLarge
from kformer.tokenizers.symbols import SymbolTokenizer


def train_tokenizers(pairs: Sequence[tuple[str, str]], training_config: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
    """Learns the source and target vocabularies from (source, target) pairs.

    Reads `tokenizer`, `vocab_size` (subwords only) and `shared_vocabulary` of the configuration. Texts too few for
    `vocab_size` pieces give a vocabulary of as many as they yield. With a shared
    vocabulary (section 5.1 of the paper) both are the same object.

    Raises:
        ValueError: The texts are all blank, or `vocab_size` is too small for their characters.
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
