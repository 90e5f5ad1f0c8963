"""Learns the vocabularies of a training run."""

from collections.abc import Sequence

from kformer.config import TrainingConfig
from kformer.tokenizers.base import Tokenizer, is_surely_longer
from kformer.tokenizers.sentencepiece import SentencePieceTokenizer, VocabularyTooLarge
from kformer.tokenizers.symbols import SymbolTokenizer
from kformer.tokenizers.words import WordTokenizer


def train_tokenizers(pairs: Sequence[tuple[str, str]], training_config: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
    """Learns the source and the target vocabulary from (source, target) pairs.

    The settings `tokenizer`, `vocab_size` (not for symbols) and `shared_vocabulary` of the configuration are used. If
    the texts are too few for `vocab_size` tokens, the vocabulary is as large as they allow. With a shared vocabulary
    (section 5.1 of the paper) both tokenizers are the same object.

    A pair is left out if one of its texts is longer than `max_length` tokens in any case (see `is_surely_longer`),
    because the run does not train on it either.

    Raises:
        ValueError: All texts are blank, all are too long, or `vocab_size` is too small for their characters.

    Examples:
        >>> config = kformer.TrainingConfig(tokenizer="symbols", shared_vocabulary=False)
        >>> source, target = train_tokenizers([("c a t", "K AE T")], config)
        >>> source.symbols, target.symbols
        (('a', 'c', 't'), ('AE', 'K', 'T'))
    """
    longest = training_config.max_length
    short = [pair for pair in pairs if not any(is_surely_longer(text, longest) for text in pair)]
    if pairs and not short:
        raise ValueError(
            f"There is no text to learn a vocabulary from: all {len(pairs):,} pairs are longer than "
            f"max_length={longest} tokens. Check that line feeds end the lines, or raise max_length."
        )
    sources = [source for source, _ in short]
    targets = [target for _, target in short]
    if training_config.shared_vocabulary:
        shared = _train(sources + targets, training_config)
        return shared, shared
    return _train(sources, training_config), _train(targets, training_config)


def _train(texts: list[str], config: TrainingConfig) -> Tokenizer:
    if config.tokenizer == "symbols":
        return SymbolTokenizer.train(texts)
    if config.tokenizer == "words":
        return WordTokenizer.train(texts, config.vocab_size)
    try:
        return SentencePieceTokenizer.train(texts, config.vocab_size, config.tokenizer)
    except VocabularyTooLarge as error:
        return SentencePieceTokenizer.train(texts, error.largest, config.tokenizer)
