"""The tokenizer interface.

Shapes: B batch, T tokens.
"""

import abc
import pathlib
from typing import Any, ClassVar, Self

import tensorflow as tf

PAD_ID, START_ID, END_ID, UNKNOWN_ID = range(4)
NUM_SPECIAL_IDS = 4


class Tokenizer(tf.Module, metaclass=abc.ABCMeta):
    """Text to ids and back, in graph operations that a SavedModel can hold.

    Attributes:
        vocab_size: number of ids, the special ones included.
        pad_id, start_id, end_id: the special ids; `tokenize` never gives one of them.
    """

    kind: ClassVar[str]  # the name in tokenizer.json
    vocab_size: int
    pad_id: int = PAD_ID
    start_id: int = START_ID
    end_id: int = END_ID

    @abc.abstractmethod
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Token ids of a batch of texts, without start and end ids.

        Args:
            text: (B,) string. Bytes that are not UTF-8 are read as U+FFFD.

        Returns:
            (B, None) int32 ragged tensor.
        """

    @abc.abstractmethod
    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Texts of a batch of token ids.

        Args:
            ids: (B, T) int32, dense or ragged. A row ends at its first end id; pad and start ids are dropped.

        Returns:
            (B,) string, always valid UTF-8.
        """

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """What encoding and decoding gives back: (B,) string to (B,) string."""
        return self.detokenize(self.tokenize(text))

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes `tokenizer.json` and the vocabulary beside it, all or nothing.

        Raises:
            ValueError: The directory holds something else than a tokenizer.
        """
        from kformer.tokenizers.storage import save_tokenizer  # here: storage imports every kind of tokenizer

        save_tokenizer(self, directory)

    def fallback_ids(self) -> list[int]:
        """The ids that stand for text without a piece of its own: unknown symbols, and bytes."""
        return [UNKNOWN_ID]

    @abc.abstractmethod
    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        """Writes the vocabulary into an existing directory and returns what tokenizer.json says of it."""

    @classmethod
    @abc.abstractmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        """The tokenizer that `write_files` wrote."""

    def _content(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) int32: the ids before the first end id, without pad and start ids."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(default_value=tf.cast(self.end_id, ids.dtype))  # (B, T)
        ids = tf.cast(ids, tf.int32)
        ended = tf.cumsum(tf.cast(tf.equal(ids, self.end_id), tf.int32), axis=1) > 0  # (B, T)
        keep = ~ended & tf.not_equal(ids, self.pad_id) & tf.not_equal(ids, self.start_id)
        return tf.ragged.boolean_mask(ids, keep)
