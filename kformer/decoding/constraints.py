"""Which sequences a search may produce: special ids, length limits, and log probabilities under them.

Letters: N rows (B sentences, times K beams in beam search), V vocabulary, T buffer length.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

NextLogits = Callable[[Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class SearchConstraints:
    """Which sequences a search may produce.

    Args:
        start_id: fed first, never produced.
        end_id: ends a sequence.
        pad_id: fills a sequence behind its end, never produced.
        max_lengths: (B,) int, most tokens a sentence, the end token included; larger values than `buffer_length`
            count as `buffer_length`. A sequence that reaches its limit stops there, without an end token.
        buffer_length: int or () int tensor, T of the result.
        min_length: tokens before the end token may come.

    Attributes:
        limits: (B,) int32, `max_lengths` from 0 to `buffer_length`.

    Raises:
        ValueError: The ids are not three different ids from 0 up, `max_lengths` is not (B,), or a length is negative.
    """

    start_id: int
    end_id: int
    pad_id: int
    max_lengths: Any
    buffer_length: Any
    min_length: int = 0

    def __post_init__(self) -> None:
        special = (self.start_id, self.end_id, self.pad_id)
        if len(set(special)) != 3 or min(special) < 0:
            raise ValueError(
                "start_id, end_id and pad_id must be three different ids from 0 up. "
                f"Received: start_id={self.start_id}, end_id={self.end_id}, pad_id={self.pad_id}."
            )
        if self.min_length < 0:
            raise ValueError(
                f"min_length must be at least 0. Received: min_length={self.min_length}. Pass 0 for no minimum."
            )
        if isinstance(self.buffer_length, int) and self.buffer_length < 1:
            raise ValueError(
                f"buffer_length must be at least 1. Received: buffer_length={self.buffer_length}. "
                "Pass the longest of max_lengths."
            )
        max_lengths = ops.convert_to_tensor(self.max_lengths)
        if len(max_lengths.shape) != 1:
            raise ValueError(
                "max_lengths must have shape (sentences,): one limit a sentence. "
                f"Received: shape {tuple(max_lengths.shape)}. For one limit, repeat it for every sentence."
            )
        limits = ops.clip(ops.cast(max_lengths, "int32"), 0, ops.cast(self.buffer_length, "int32"))
        object.__setattr__(self, "limits", limits)

    def best_tokens(self, logits: Any, length: Any, count: int) -> tuple[Any, Any]:
        """The `count` most probable next tokens of each row, best first; the lower id where two are equal.

        What `top_k(log_probabilities(...))` gives, without writing down the log probabilities of the whole vocabulary:
        a few tokens more than asked for are picked, as many as may be forbidden, and only these are looked at.

        Args:
            logits: (N, V), any float dtype.
            length: () int32, number of tokens written so far.
            count: at most V.

        Returns:
            (N, count) float32 log probabilities, -inf for forbidden tokens, and (N, count) int32 ids.

        Raises:
            ValueError: see `log_probabilities`.
        """
        self._check_logits(logits)
        logits = ops.cast(logits, "float32")
        spare = len((self.pad_id, self.start_id, self.end_id))
        best, ids = top_k(logits, min(count + spare, logits.shape[-1]))  # (N, count + spare)
        highest = best[:, :1]
        log_probs = best - highest - ops.log(ops.sum(ops.exp(logits - highest), axis=-1, keepdims=True))
        log_probs, kept = ops.top_k(ops.where(self._forbidden(ids, length), float("-inf"), log_probs), count)
        return log_probs, ops.take_along_axis(ids, kept, axis=-1)

    def log_probabilities(self, logits: Any, length: Any) -> Any:
        """Log probabilities of the next token, -inf for those that may not come next.

        The mask comes after the log softmax: what remains is the model's own log probability, so a score
        says what the model thinks of a sequence, whatever was forbidden. Pad and start ids are always forbidden,
        the end id while fewer than `min_length` tokens are written.

        Args:
            logits: (N, V), any float dtype.
            length: () int32, number of tokens written so far.

        Returns:
            (N, V) float32.

        Raises:
            ValueError: The logits are not (N, V) with a known V that holds every special id.
        """
        self._check_logits(logits)
        log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)  # (N, V)
        ids = ops.arange(logits.shape[-1], dtype="int32")  # (V,)
        return ops.where(self._forbidden(ids, length), float("-inf"), log_probs)

    def _forbidden(self, ids: Any, length: Any) -> Any:
        """Which of `ids` may not come next."""
        too_short = ops.less(length, self.min_length)
        return ops.equal(ids, self.pad_id) | ops.equal(ids, self.start_id) | (ops.equal(ids, self.end_id) & too_short)

    def _check_logits(self, logits: Any) -> None:
        if len(logits.shape) != 2 or logits.shape[-1] is None:
            raise ValueError(
                "next_logits must return logits of shape (rows, vocabulary) with a known vocabulary size. "
                f"Received: shape {tuple(logits.shape)}. Return one row of logits for each token passed in."
            )
        special = max(self.start_id, self.end_id, self.pad_id)
        if special >= logits.shape[-1]:
            raise ValueError(
                f"start_id, end_id and pad_id must be below the vocabulary size {logits.shape[-1]} of the logits. "
                f"Received: start_id={self.start_id}, end_id={self.end_id}, pad_id={self.pad_id}. "
                "Pass the ids of the tokenizer that the model was trained with."
            )


def top_k(values: Any, count: int) -> tuple[Any, Any]:
    """`ops.top_k` of (N, V) values with a known V; the lower id where two are equal.

    Looks for the blocks of V with the largest maxima first, which takes one fast pass; only these blocks, which must
    hold the largest values, are ranked.

    Returns:
        (N, count) values, largest first, and (N, count) int32 ids.
    """
    size = _block_size(values.shape[-1], count)
    if size is None:
        best, ids = ops.top_k(values, count)
        return best, ops.cast(ids, "int32")
    blocks = ops.reshape(values, (-1, values.shape[-1] // size, size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), count)  # (N, count)
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)  # in the order of ids, which decides between equal values
    ids = ops.expand_dims(chosen * size, -1) + ops.arange(size, dtype="int32")  # (N, count, size)
    ids = ops.reshape(ids, (-1, count * size))
    best, places = ops.top_k(ops.take_along_axis(values, ids, axis=-1), count)
    return best, ops.take_along_axis(ids, ops.cast(places, "int32"), axis=-1)


def _block_size(length: int, count: int) -> int | None:
    """A divisor of `length` that leaves many more than `count` blocks, the largest up to 64; None if there is none."""
    sizes = [size for size in range(8, 65) if length % size == 0 and length // size >= 4 * count]
    return max(sizes, default=None)


def state_tensors(state: Any) -> Any:
    """The model's state with every leaf a tensor, as a loop needs it."""
    return keras.tree.map_structure(ops.convert_to_tensor, state)


def write_column(buffer: Any, column: Any, position: Any) -> Any:
    """`buffer` (..., T) with `column` (...) written at `position` () of the last axis.

    A select and not a slice update: it keeps static shapes, and XLA's update op stays out of TensorFlow graphs.
    """
    here = ops.equal(ops.arange(ops.shape(buffer)[-1], dtype="int32"), position)  # (T,)
    return ops.where(here, ops.expand_dims(column, -1), buffer)
