"""A vocabulary of whole symbols, for texts whose symbols are separated by blanks: phonemes, letters, words.

Shapes: B batch, T tokens.
"""

import json
import pathlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from kformer.tokenizers.base import NUM_SPECIAL_IDS, SPECIAL_TOKENS, UNKNOWN_ID, Tokenizer
from kformer.tokenizers.offsets import Spans, byte_lengths, decode, is_space
from kformer.tokenizers.ragged import join, kept, next_of, previous_of, split, sums_before
from kformer.tokenizers.text_ops import as_texts, batches_of_bytes, collapse_whitespace, replace_invalid

SYMBOLS_FILE = "symbols.json"
UNKNOWN_MARK = "⁇"


class SymbolTokenizer(Tokenizer):
    """Splits texts at white space into symbols, and gives each symbol an id. The first symbol has the id 4.

    A symbol outside the vocabulary gets the unknown id 3, which is shown as "⁇". `normalize` makes every run of white
    space one blank, and replaces unknown symbols by that mark. Symbols are compared byte by byte, without Unicode
    normalization.

    Args:
        symbols: the vocabulary, in the order of the ids.

    Raises:
        ValueError: There is no symbol, or a symbol is empty, contains white space or occurs twice.

    Examples:
        >>> tokenizer = SymbolTokenizer(["K", "AE", "T"])
        >>> tokenizer.tokenize(["K AE T", "T ZH"]).to_list()
        [[4, 5, 6], [6, 3]]
    """

    kind: ClassVar[str] = "symbols"

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(name="symbol_tokenizer")
        _check_symbols(symbols)
        self.symbols = tuple(symbols)
        self.vocab_size = NUM_SPECIAL_IDS + len(symbols)
        ids = tf.range(NUM_SPECIAL_IDS, self.vocab_size, dtype=tf.int32)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(self.symbols), ids), default_value=UNKNOWN_ID
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.symbols,)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._ids(self._split(as_texts(text)))

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """See `Tokenizer.detokenize`. The unknown id, and ids outside the vocabulary, are shown as "⁇"."""
        return join(self._shown(self._content(ids)), " ")

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        points, start = decode(text)
        end = next_of(start, byte_lengths(text))
        space = is_space(points)
        outside = tf.ones_like(space.row_starts(), tf.bool)
        is_letter = tf.logical_not(space.values)
        is_first = is_letter & previous_of(space, outside).values
        is_last = is_letter & next_of(space, outside).values
        return Spans(self.tokenize(text), kept(start, is_first), kept(end, is_last))

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        symbols = self._shown(ids)
        lengths = byte_lengths(symbols.values)
        start = sums_before(symbols.with_values(lengths + 1))  # 1 for the blank after a symbol
        return join(symbols, " "), Spans(ids, start, start.with_values(start.values + lengths))

    @staticmethod
    def _split(text: tf.Tensor) -> tf.RaggedTensor:
        """(B,) texts to (B, None) symbols, both strings."""
        return split(collapse_whitespace(replace_invalid(text)))

    def _ids(self, symbols: tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) strings to (B, None) ids."""
        return symbols.with_flat_values(self._table.lookup(symbols.flat_values))

    def _shown(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) ids to (B, None) strings."""
        shown = tf.constant((UNKNOWN_MARK, *self.symbols))
        return ids.with_flat_values(tf.gather(shown, self._numbers(ids).flat_values))

    def _numbers(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) ids to numbers of symbols, from 1 up; 0 stands for all ids without a symbol."""
        known = (ids.flat_values >= NUM_SPECIAL_IDS) & (ids.flat_values < self.vocab_size)
        return ids.with_flat_values(tf.where(known, ids.flat_values - UNKNOWN_ID, 0))

    def spellings(self) -> list[tuple[str, ...]]:
        return [()] * NUM_SPECIAL_IDS + [(symbol,) for symbol in self.symbols]

    def tokens(self) -> list[str]:
        """See `Tokenizer.tokens`.

        Raises:
            ValueError: A symbol is written as the name of a special id.
        """
        if taken := {*SPECIAL_TOKENS} & {*self.symbols}:
            raise ValueError(
                f"The symbol {', '.join(taken)} is also the name of a special id. Train with other names for symbols."
            )
        return [*SPECIAL_TOKENS, *self.symbols]

    def word_starts(self) -> np.ndarray:
        """See `Tokenizer.word_starts`. Every symbol is a word."""
        return np.arange(self.vocab_size) >= NUM_SPECIAL_IDS

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int | None = None) -> Self:
        """Takes the most frequent symbols of the texts as the vocabulary.

        The most frequent symbol comes first. Symbols with the same frequency are in the order of their code points.

        Args:
            texts: plain texts.
            vocab_size: the largest number of ids, the 4 special ids included; None: all symbols are taken.

        Raises:
            ValueError: The texts contain no symbol, or `vocab_size` has no room for one.
        """
        if vocab_size is not None and vocab_size <= NUM_SPECIAL_IDS:
            raise ValueError(
                f"vocab_size must be more than {NUM_SPECIAL_IDS}, the number of special ids. "
                f"Received: vocab_size={vocab_size}."
            )
        counts: Counter[bytes] = Counter()
        for batch in batches_of_bytes(texts, 2048):
            counts.update(cls._split(tf.constant(batch, tf.string)).flat_values.numpy().tolist())
        # UTF-8 has the order of the code points.
        frequent = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        most = None if vocab_size is None else vocab_size - NUM_SPECIAL_IDS
        return cls([symbol.decode("utf-8") for symbol in frequent[:most]])

    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        text = json.dumps(self.symbols, ensure_ascii=False, indent=0) + "\n"
        (directory / SYMBOLS_FILE).write_text(text, encoding="utf-8")
        return {}

    @classmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        return cls(json.loads((directory / SYMBOLS_FILE).read_text(encoding="utf-8")))


def _check_symbols(symbols: Sequence[str]) -> None:
    if not symbols:
        raise ValueError("A vocabulary needs at least one symbol. Received: none. Pass text that is not blank.")
    as_read = collapse_whitespace(replace_invalid(tf.constant(symbols, tf.string))).numpy()
    for symbol, read in zip(symbols, as_read, strict=True):
        if not symbol or " " in symbol or symbol.encode("utf-8") != read:
            raise ValueError(f"A symbol is a non-empty text without white space. Received: {symbol!r}. Remove it.")
    repeated = [symbol for symbol, count in Counter(symbols).items() if count > 1]
    if repeated:
        raise ValueError(
            f"A symbol must occur only once. Received more than once: {', '.join(map(repr, repeated))}. "
            "Remove the repetitions."
        )
