"""Learns the vocabularies of a training run."""

import itertools
from collections.abc import Iterable, Iterator

from kformer.config import TrainingConfig
from kformer.data.pairs import Pair
from kformer.tokenizers.base import Tokenizer, is_surely_longer
from kformer.tokenizers.existing_sentencepiece import read_sentencepiece
from kformer.tokenizers.sentencepiece import MODEL_TYPES, MOST_TEXTS, SentencePieceTokenizer, VocabularyTooLarge
from kformer.tokenizers.symbols import SymbolTokenizer
from kformer.tokenizers.words import WordTokenizer

_MANY = MOST_TEXTS + 1  # so many pairs are not counted to their end


def train_tokenizers(pairs: Iterable[Pair], training_config: TrainingConfig) -> tuple[Tokenizer, Tokenizer]:
    """Learns the source and the target vocabulary from (source, target) pairs, such as a list or a part of a corpus.

    The pairs are read several times. Of more than a million texts, SentencePiece gets a random sample.

    The settings `tokenizer`, `vocab_size` (not for symbols), `shared_vocabulary` and `user_symbols` of the
    configuration are used. If the texts are too few for `vocab_size` tokens, the vocabulary is as large as they allow.
    With a shared vocabulary (section 5.1 of the paper) both tokenizers are the same object.

    `source_tokenizer` and `target_tokenizer` are SentencePiece models of files, in place of what would be learned. With
    a shared vocabulary, one file is that of both sides; two different files are two vocabularies.

    A pair is left out if one of its texts is longer than `max_length` tokens in any case (see `is_surely_longer`),
    because the run does not train on it either.

    Raises:
        FileNotFoundError: There is no such file of a model.
        ValueError: All texts are blank, all are too long, or `vocab_size` is too small for their characters; or a file
            is no SentencePiece model.

    Examples:
        >>> config = kformer.TrainingConfig(tokenizer="symbols", shared_vocabulary=False)
        >>> source, target = train_tokenizers([("c a t", "K AE T")], config)
        >>> source.symbols, target.symbols
        (('a', 'c', 't'), ('AE', 'K', 'T'))
    """
    source, target = own_tokenizers(training_config)
    if source is not None and target is not None:
        return source, target
    longest = training_config.max_length
    number = sum(1 for _ in itertools.islice(_short(pairs, longest), _MANY))
    if not number and (left_out := sum(1 for _ in pairs)):
        raise ValueError(
            f"There is no text to learn a vocabulary from: all {left_out:,} pairs are longer than "
            f"max_length={longest} tokens. Check that line feeds end the lines, or raise max_length."
        )
    if training_config.shared_vocabulary:
        shared = _train(_Texts(pairs, (0, 1), longest, number), training_config)
        return shared, shared
    source = source or _train(_Texts(pairs, (0,), longest, number), training_config)
    target = target or _train(_Texts(pairs, (1,), longest, number), training_config)
    return source, target


def own_tokenizers(config: TrainingConfig) -> tuple[Tokenizer | None, Tokenizer | None]:
    """Those of the user's own models, of the source and of the target; None: it is learned."""
    files = (config.source_tokenizer, config.target_tokenizer)
    read = {file: read_sentencepiece(file) for file in dict.fromkeys(files) if file is not None}
    source, target = (None if file is None else read[file] for file in files)
    if config.shared_vocabulary:
        return source or target, target or source
    return source, target


class _Texts:
    """The texts of some sides of pairs, side after side. They are read anew each time, and not held.

    Args:
        pairs: The pairs.
        sides: 0 for the sources, 1 for the targets.
        longest: As in `_short`.
        number: How many pairs are not left out, or a number above that of the texts that are learned from.
    """

    def __init__(self, pairs: Iterable[Pair], sides: tuple[int, ...], longest: int, number: int) -> None:
        self.pairs = pairs
        self.sides = sides
        self.longest = longest
        self.number = number

    def __iter__(self) -> Iterator[str]:
        return (pair[side] for side in self.sides for pair in _short(self.pairs, self.longest))

    def __len__(self) -> int:
        return len(self.sides) * self.number


def _short(pairs: Iterable[Pair], longest: int) -> Iterator[Pair]:
    """The pairs without a text that is longer than `longest` tokens in any case."""
    return (pair for pair in pairs if not any(is_surely_longer(text, longest) for text in pair))


def _train(texts: _Texts, config: TrainingConfig) -> Tokenizer:
    symbols = config.user_symbols.split()
    if symbols and config.tokenizer not in MODEL_TYPES:
        raise ValueError(
            f"user_symbols are for subwords: the tokenizers {' and '.join(MODEL_TYPES)}. Received: user_symbols="
            f"{config.user_symbols!r}, tokenizer={config.tokenizer!r}. Leave out user_symbols, or choose one of these."
        )
    if config.tokenizer == "symbols":
        return SymbolTokenizer.train(texts)
    if config.tokenizer == "words":
        return WordTokenizer.train(texts, config.vocab_size)
    try:
        return SentencePieceTokenizer.train(texts, config.vocab_size, config.tokenizer, user_symbols=symbols)
    except VocabularyTooLarge as error:
        return SentencePieceTokenizer.train(texts, error.largest, config.tokenizer, user_symbols=symbols)
