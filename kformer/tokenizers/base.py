"""The interface of all tokenizers.

Shapes: B batch, T tokens.
"""

import abc
import pathlib
from typing import Any, ClassVar, Self

import tensorflow as tf

PAD_ID, START_ID, END_ID, UNKNOWN_ID = range(4)
NUM_SPECIAL_IDS = 4


class Tokenizer(tf.Module, metaclass=abc.ABCMeta):
    """Converts texts to ids and back, in graph operations that a SavedModel can contain.

    Attributes:
        vocab_size: the number of ids, the special ids included.
        pad_id, start_id, end_id: the special ids. `tokenize` never returns them.
    """

    kind: ClassVar[str]  # the name of the class in tokenizer.json
    vocab_size: int
    pad_id: int = PAD_ID
    start_id: int = START_ID
    end_id: int = END_ID

    @abc.abstractmethod
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Converts a batch of texts to token ids, without start and end ids.

        Args:
            text: (B,) string. Bytes that are not UTF-8 are read as U+FFFD, the replacement character.

        Returns:
            (B, None) int32 ragged tensor.
        """

    @abc.abstractmethod
    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts a batch of token ids to texts.

        Args:
            ids: (B, T) int32, dense or ragged. A row ends at its first end id. Pad and start ids are dropped.

        Returns:
            (B,) string, always valid UTF-8.
        """

    def normalize(self, text: tf.Tensor) -> tf.Tensor:
        """(B,) string to (B,) string: what is left of texts that are converted to ids and back."""
        return self.detokenize(self.tokenize(text))

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes `tokenizer.json` and the vocabulary into a directory. On an error nothing is changed there.

        Raises:
            ValueError: The directory contains other files than a tokenizer's.
        """
        from kformer.tokenizers.storage import save_tokenizer  # not above: storage imports this module

        save_tokenizer(self, directory)

    def fallback_ids(self) -> list[int]:
        """The ids that stand for text that is not in the vocabulary: the unknown id, and the ids of single bytes."""
        return [UNKNOWN_ID]

    @abc.abstractmethod
    def write_files(self, directory: pathlib.Path) -> dict[str, Any]:
        """Writes the vocabulary into an existing directory, and returns the entries that tokenizer.json needs."""

    @classmethod
    @abc.abstractmethod
    def read_files(cls, directory: pathlib.Path, description: dict[str, Any]) -> Self:
        """Reads the tokenizer that `write_files` wrote. `description` is the content of its tokenizer.json."""

    def _content(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
        """(B, None) int32: the ids of each row before its first end id, without pad and start ids."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(default_value=tf.cast(self.end_id, ids.dtype))  # (B, T)
        ids = tf.cast(ids, tf.int32)
        ended = tf.cumsum(tf.cast(tf.equal(ids, self.end_id), tf.int32), axis=1) > 0  # (B, T)
        keep = ~ended & tf.not_equal(ids, self.pad_id) & tf.not_equal(ids, self.start_id)
        return tf.ragged.boolean_mask(ids, keep)
