"""The interface of all tokenizers.

Shapes: B batch, T tokens.
"""

import abc
import pathlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from kformer.tokenizers.offsets import Spans
from kformer.tokenizers.ragged import sums, where_true, with_lengths
from kformer.tokenizers.subword_sampling import Subwords
from kformer.tokenizers.text_ops import as_ids, string_tensor
from kformer.writing_systems import is_unspaced

PAD_ID, START_ID, END_ID, UNKNOWN_ID = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")  # their names, as in SentencePiece
NUM_SPECIAL_IDS = 4

# A piece of SentencePiece has at most 16 characters, and normalization makes one character of at most four. A word, or
# a symbol between blanks, has about ten. Only a long run of characters outside the vocabulary may be one unknown token
# of any length, but no model learns from a text of such runs.
CHARACTERS_PER_TOKEN = 1000


def is_surely_longer(text: str, tokens: int) -> bool:
    """True if a text has more than 1,000 characters for each of `tokens` tokens: no token covers so many.

    White space is not counted, because most tokenizers make one blank of a run of blanks. The text is not tokenized,
    because that takes about 100 bytes of memory for each character.
    """
    most = tokens * CHARACTERS_PER_TOKEN
    if len(text) <= most:
        return False
    found = 0
    for run in re.finditer(r"\S+", text):
        found += run.end() - run.start()
        if found > most:
            return True
    return False


def begins_word(written: str) -> bool:
    """Whether a token that is written so after another token begins a word: see `Tokenizer.word_starts`."""
    return written[:1].isspace() or is_unspaced(written[:1])


class Tokenizer(tf.Module, metaclass=abc.ABCMeta):
    """Converts texts to ids and back, in graph operations that a SavedModel can contain.

    Attributes:
        vocab_size: the number of ids, the special ids included.
        pad_id, start_id, end_id: special ids. `tokenize` never returns them.
        unknown_id: the special id of text that the vocabulary lacks.
        has_start: whether a language model reads the start id before a text. If not, a text begins with its own first
            token, as in GPT-2; only before a text without tokens stands the start id.

    Examples:
        >>> tokenizer: Tokenizer = SymbolTokenizer(["K", "AE", "T"])
        >>> tokenizer.detokenize([[1, 4, 5, 6, 2, 0]]).numpy().tolist()  # start, three symbols, end, padding
        [b'K AE T']
    """

    kind: ClassVar[str]  # the name of the class in tokenizer.json
    vocab_size: int
    pad_id: int = PAD_ID
    start_id: int = START_ID
    end_id: int = END_ID
    unknown_id: int = UNKNOWN_ID
    has_start: bool = True

    @property
    def tag_pattern(self) -> str | None:
        """A regular expression for a word before a text that is one token and says what is wanted."""
        return None

    @property
    def mask_id(self) -> int:
        """The id that hides a token from a masked language model, by default the unknown id.

        A subword tokenizer with bytes never uses the unknown id for a text.
        """
        return self.unknown_id

    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text of their own."""
        return frozenset((self.pad_id, self.start_id, self.end_id, self.unknown_id, self.mask_id))

    @property
    def closing_ids(self) -> tuple[int, ...]:
        """What follows the tokens of each source: the end id alone, except in some models of other toolkits."""
        return (self.end_id,)

    @abc.abstractmethod
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Converts a batch of texts to token ids, without start and end ids.

        Args:
            text: (B,) string. Bytes that are not UTF-8 are read as U+FFFD, the replacement character.

        Returns:
            (B, None) int32 ragged tensor.
        """

    def ids_of(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `tokenize`, outside a graph: for a corpus, whose texts are very many.

        Returns:
            The ids of all texts, (I,) int32, one text after another; and how many each text has, (B,) int64.

        Examples:
            >>> [ids.tolist() for ids in SymbolTokenizer(["K", "AE", "T"]).ids_of(["K AE", "T"])]
            [[4, 5, 6], [2, 1]]
        """
        ids = self.tokenize(string_tensor(texts))
        return ids.flat_values.numpy(), ids.row_lengths().numpy()

    @abc.abstractmethod
    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts a batch of token ids to texts.

        Args:
            ids: (B, T) int32, dense or ragged. A row ends at its first end id. Pad and start ids are dropped. If the
                start id is the end id, it is the start at the beginning of a row, and the end elsewhere.

        Returns:
            (B,) string, always valid UTF-8.
        """

    def tokenize_with_offsets(self, text: tf.Tensor) -> Spans:
        """As `tokenize`, with the offsets of each token in the given text.

        If several tokens stand for one character, one of them gets all bytes of the character, and the others get none.

        Args:
            text: (B,) string.

        Raises:
            ValueError: This kind of tokenizer cannot give the offsets.
        """
        raise ValueError(self._no_offsets())

    def detokenize_with_offsets(self, ids: tf.RaggedTensor) -> tuple[tf.Tensor, Spans]:
        """As `detokenize`, with the offsets of each token in the returned text.

        Args:
            ids: (B, None) int32, without special ids.

        Returns:
            The texts, (B,) string, and the tokens' offsets in them.

        Raises:
            ValueError: This kind of tokenizer cannot give the offsets.
        """
        raise ValueError(self._no_offsets())

    def _no_offsets(self) -> str:
        return (
            f"A tokenizer of the kind {self.kind} cannot give the offsets of its tokens in a text. Leave out the "
            "signature translate_detailed (in a training: alignments), or train with a tokenizer of kformer's own."
        )

    def begun(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """What a language model reads of texts, (B, None) int32 ids to (B, None) int32: at least one id each.

        Examples:
            >>> SymbolTokenizer(["K", "AE", "T"]).begun(tf.ragged.constant([[4, 5]])).to_list()
            [[1, 4, 5]]
        """
        needs_start = tf.ones_like(ids.row_lengths()) if self.has_start else tf.cast(ids.row_lengths() == 0, tf.int64)
        starts = tf.fill([tf.reduce_sum(needs_start)], tf.constant(self.start_id, tf.int32))
        return tf.concat([with_lengths(starts, needs_start), ids], axis=1)

    def has_ids_of(self, other: "Tokenizer") -> bool:
        """Whether both give the same ids to the same tokens, so that two texts may share a matrix of embeddings."""
        return self is other

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) string to (B,) string: the texts after conversion to ids and back."""
        return self.detokenize(self.tokenize(text))

    def fallback_ids(self) -> list[int]:
        """The ids that stand for text that is not in the vocabulary: the unknown id, and the ids of single bytes."""
        return [self.unknown_id]

    def is_mostly_unknown(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) string to (B,) bool: whether more than half of a text's tokens have `fallback_ids`.

        Examples:
            >>> SymbolTokenizer(["K", "AE", "T"]).is_mostly_unknown(["KAET", "K AE T", "K ae", ""]).numpy().tolist()
            [True, False, False, False]
        """
        ids = self.tokenize(text)
        is_fallback = np.isin(np.arange(self.vocab_size), self.fallback_ids()).astype("int64")
        unknown = sums(ids.with_values(tf.gather(tf.constant(is_fallback), ids.values)))
        return 2 * unknown > tf.cast(ids.row_lengths(), tf.int64)

    def spellings(self) -> list[tuple[str, ...]]:
        """The ways in which the text of each id may be written in a list of words, the best one first.

        The list has `vocab_size` entries. That of a special id, of a byte and of the unknown id is empty.

        Raises:
            ValueError: This kind of tokenizer cannot tell.
        """
        raise ValueError(
            f"A tokenizer of the kind {self.kind} cannot tell which words its ids stand for. "
            "Train with a tokenizer of kformer's own."
        )

    def tokens(self) -> list[str]:
        """The name of each id, for engines that take tokens by their names. No two are the same.

        Raises:
            ValueError: This kind of tokenizer has no names for its ids.
        """
        raise ValueError(
            f"A tokenizer of the kind {self.kind} has no names for its ids. Train with a tokenizer of kformer's own."
        )

    def word_starts(self) -> np.ndarray:
        """Which ids begin a word: (V,) booleans. The first token of a text begins a word with any id.

        A word is what stands between blanks, with its punctuation, or what the tokenizer itself takes for a word. In
        scripts without blanks between words, such as Chinese, Japanese and Thai, each token is taken for a word. The
        ids of single bytes begin none.

        Raises:
            ValueError: This kind of tokenizer cannot tell.
        """
        raise ValueError(
            f"A tokenizer of the kind {self.kind} cannot tell which of its tokens begin a word. Leave out "
            "mask_whole_words, or train with a tokenizer of kformer's own."
        )

    def subwords(self) -> Subwords | None:
        """What is needed to divide words anew in training; None: this kind of tokenizer divides them in one way."""
        return None

    @abc.abstractmethod
    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        """Writes the vocabulary into an existing directory, and returns the entries that tokenizer.json needs."""

    @classmethod
    @abc.abstractmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        """Reads the tokenizer that `write_files` wrote. `description` is the content of its tokenizer.json."""

    def _content(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) int32: the ids of each row before its first end id, without pad and start ids."""
        ids = as_ids(ids)
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(default_value=self.end_id)  # (B, T)
        ends = tf.equal(ids, self.end_id)  # (B, T)
        if self.start_id == self.end_id:
            ends &= tf.range(tf.shape(ids)[1]) > 0
        ended = tf.cumsum(tf.cast(ends, tf.int32), axis=1) > 0  # (B, T)
        keep = ~ended & tf.not_equal(ids, self.pad_id) & tf.not_equal(ids, self.start_id)
        return where_true(ids, keep)


def ids_of_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[int, ...]:
    """The id of each word, which must be one token of its own.

    Raises:
        ValueError: A word is divided, or is not in the vocabulary.

    Examples:
        >>> ids_of_words(kformer.tokenizers.SymbolTokenizer(["<2es>", "uno"]), ["uno", "<2es>"])
        (5, 4)
    """
    ids, counts = tokenizer.ids_of(words)
    last = ids[np.cumsum(counts) - 1]  # before it there may be a token of the blank alone
    spelled = [text.decode("utf-8") for text in tokenizer.detokenize(last[:, np.newaxis]).numpy()]
    if lost := [word for word, alone in zip(words, spelled, strict=True) if alone != word]:
        raise ValueError(
            f"The vocabulary of the targets has no token of its own for {', '.join(lost)}. Choose tags that it has, "
            "let the run learn its own vocabulary, or let the tags stand before the sources."
        )
    return tuple(map(int, last))
