"""The constraints of a search (special ids, limits of length), and the log probabilities of tokens under them.

Letters: B sentences, N rows (B, or in beam search B times the number of beams), V vocabulary, T buffer length.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from kformer.indexing import take_columns, take_rows

NextLogits = Callable[[Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class SearchConstraints:
    """Says which sequences a search may produce.

    Args:
        start_id: the token that the model receives first; a search never produces it.
        end_id: the token that ends a sequence.
        pad_id: fills up a sequence after its end; a search never produces it as a token.
        max_lengths: (B,) int, the largest number of tokens for each sentence, the end token included. Values above
            `buffer_length` count as `buffer_length`. A sequence that reaches its limit stops there, even without an
            end token.
        buffer_length: int or () int tensor, T of the result.
        min_length: the least number of tokens before the end token: an int for all sentences, or (B,) int32.
        prefix: (B, F) int32, the tokens that each sentence's sequence begins with, filled up with pad ids; None for
            none. They count for length and score like all others. Tokens beyond a sentence's limit are cut off.

    Attributes:
        limits: (B,) int32, `max_lengths` clipped to values from 0 to `buffer_length`.
        prefixes: `prefix` with one more column of pad ids; () for none. It is part of a search's state.
        min_lengths: `min_length`, if it is (B,); () for an int. It is part of a search's state.

    Raises:
        ValueError: The ids are not three different ids of at least 0, `max_lengths` is not (B,), `prefix` is not
            (B, F), `min_length` is neither an int nor (B,), or a length is negative.

    Examples:
        Of four equally probable tokens, 0 (padding), 1 (start) and 2 (the end, too early) may not come first:

        >>> constraints = SearchConstraints(1, 2, 0, max_lengths=np.array([3, 99]), buffer_length=10, min_length=1)
        >>> np.asarray(constraints.limits).tolist()
        [3, 10]
        >>> print(np.exp(constraints.log_probabilities(np.zeros((1, 4)), length=0)).round(2))
        [[0.   0.   0.   0.25]]
    """

    start_id: int
    end_id: int
    pad_id: int
    max_lengths: Any
    buffer_length: Any
    min_length: Any = 0
    prefix: Any = None
    limits: Any = dataclasses.field(init=False)
    prefixes: Any = dataclasses.field(init=False, default=())
    min_lengths: Any = dataclasses.field(init=False, default=())

    def __post_init__(self) -> None:
        special = (self.start_id, self.end_id, self.pad_id)
        if len(set(special)) != 3 or min(special) < 0:
            raise ValueError(
                "start_id, end_id and pad_id must be three different ids of at least 0. "
                f"Received: start_id={self.start_id}, end_id={self.end_id}, pad_id={self.pad_id}. "
                "Pass the special ids of the target tokenizer."
            )
        if self._one_minimum and self.min_length < 0:
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
                "max_lengths must have shape (sentences,): one limit for each sentence. "
                f"Received: shape {tuple(max_lengths.shape)}. To use one limit for all sentences, repeat it."
            )
        limits = ops.clip(ops.cast(max_lengths, "int32"), 0, ops.cast(self.buffer_length, "int32"))
        object.__setattr__(self, "limits", limits)
        if self.prefix is not None:
            prefix = ops.cast(self.prefix, "int32")
            known_rows = {*prefix.shape[:1], *limits.shape[:1]} - {None}
            if len(prefix.shape) != 2 or len(known_rows) > 1:
                raise ValueError(
                    "prefix must have shape (sentences, tokens): a row for each of max_lengths. "
                    f"Received: shape {tuple(prefix.shape)}. Fill up shorter prefixes with the pad id."
                )
            object.__setattr__(self, "prefixes", ops.pad(prefix, [[0, 0], [0, 1]], constant_values=self.pad_id))

        if not self._one_minimum:
            min_lengths = ops.cast(self.min_length, "int32")
            if len(min_lengths.shape) != 1:
                raise ValueError(
                    "min_length must be an int, or have shape (sentences,): one minimum for each sentence. "
                    f"Received: shape {tuple(min_lengths.shape)}. Repeat one minimum for all sentences."
                )
            object.__setattr__(self, "min_lengths", min_lengths)

    @property
    def _one_minimum(self) -> bool:
        """Whether `min_length` is a number for all sentences."""
        return isinstance(self.min_length, int | np.integer)

    def buffer_of(self, tokens: Any) -> Any:
        """(B, T) int32: the tokens (B, P), filled up with pad ids."""
        missing = self.buffer_length - ops.shape(tokens)[1]
        return ops.pad(tokens, [[0, 0], [0, missing]], constant_values=self.pad_id)

    def best_tokens(self, logits: Any, length: Any, count: int, min_lengths: Any = ()) -> tuple[Any, Any]:
        """Finds the `count` most probable next tokens of each row, best first; the lower id where two are equal.

        The result is that of `top_k(log_probabilities(...))`. To save memory traffic, log probabilities are computed
        only for the largest logits: for a few more than `count`, because some of them may be forbidden.

        Args:
            logits: (N, V), any float dtype.
            length: () int32, number of tokens that the rows have so far.
            count: int, at most V.
            min_lengths: from the search's state, see `SearchConstraints`. N is a multiple of its number of rows.

        Returns:
            (N, count) float32 log probabilities, -inf for forbidden tokens, and (N, count) int32 ids.

        Raises:
            ValueError: see `log_probabilities`.
        """
        self._check_logits(logits)
        logits = ops.cast(logits, "float32")
        spare = 3  # pad, start and end id may be forbidden
        best, ids = top_k(logits, min(count + spare, logits.shape[-1]))  # (N, count + spare)
        # The largest probability is 1 / sum(exp(logits - highest)): a softmax is faster than these three passes.
        probability_of_best = take_columns(ops.softmax(logits), ids[:, :1])  # (N, 1)
        log_probs = best - best[:, :1] + ops.log(probability_of_best)
        forbidden = self._forbidden(ids, logits, length, min_lengths)
        log_probs, kept = ops.top_k(ops.where(forbidden, float("-inf"), log_probs), count)
        return log_probs, take_columns(ids, kept)

    def log_probabilities(self, logits: Any, length: Any, min_lengths: Any = ()) -> Any:
        """Computes the log probabilities of the next token, -inf for tokens that may not come next.

        Tokens are forbidden after the log softmax, so the others keep the log probability that the model gives them.
        Pad and start ids are always forbidden, the end id as long as a row has fewer than `min_length` tokens.

        Args:
            logits: (N, V), any float dtype.
            length: () int32, number of tokens that the rows have so far.
            min_lengths: see `best_tokens`.

        Returns:
            (N, V) float32.

        Raises:
            ValueError: The logits are not (N, V) with a known V that holds every special id.
        """
        self._check_logits(logits)
        log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)  # (N, V)
        ids = ops.arange(logits.shape[-1], dtype="int32")  # (V,)
        return ops.where(self._forbidden(ids, logits, length, min_lengths), float("-inf"), log_probs)

    def with_prefixes(self, prefixes: Any, logits: Any, length: Any, log_probs: Any, ids: Any) -> tuple[Any, Any]:
        """Gives each row that is still within its prefix one candidate: the prefix's next token.

        Args:
            prefixes: from the search's state, see `SearchConstraints`. N is a multiple of its number of rows.
            logits: (N, V), any float dtype.
            length: () int32, number of tokens that the rows have so far.
            log_probs: (N, C) float32, of the candidates for the next token.
            ids: (N, C) int32, the candidates.

        Returns:
            Log probabilities and ids of the candidates. Within a prefix, the first one is the prefix's next token with
            the log probability that the model gives it, and all others have -inf.
        """
        if self.prefix is None:
            return log_probs, ids
        tokens = prefixes[:, ops.minimum(length, ops.shape(prefixes)[1] - 1)]
        tokens = ops.repeat(tokens, ops.shape(ids)[0] // ops.shape(tokens)[0])
        tokens = ops.expand_dims(tokens, 1)  # (N, 1)
        is_first = ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), 0)  # (C,)
        of_token = take_columns(ops.log_softmax(ops.cast(logits, "float32"), axis=-1), tokens)  # (N, 1)
        only = ops.where(is_first, of_token, float("-inf"))
        is_free = ops.equal(tokens, self.pad_id)
        return ops.where(is_free, log_probs, only), ops.where(is_free, ids, tokens)

    def _forbidden(self, ids: Any, logits: Any, length: Any, min_lengths: Any) -> Any:
        """True for those of `ids`, (V,) or (N, C), that may not come next."""
        least = self.min_length
        if not self._one_minimum:
            least = ops.repeat(min_lengths, ops.shape(logits)[0] // ops.shape(min_lengths)[0])
            least = ops.expand_dims(least, 1)  # (N, 1)
        too_short = ops.less(length, least)
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
    """Computes `ops.top_k`, faster; the lower id comes first where two values are equal.

    V is divided into blocks. One fast pass finds the `count` blocks with the largest maxima. The largest values must
    be in these blocks, so only these are ranked.

    Args:
        values: (N, V) with a known V.
        count: int, at most V.

    Returns:
        (N, count) values, largest first, and (N, count) int32 ids.
    """
    size = _block_size(values.shape[-1], count)
    if size is None:
        best, ids = ops.top_k(values, count)
        return best, ops.cast(ids, "int32")
    number = values.shape[-1] // size
    blocks = ops.reshape(values, (-1, number, size))
    _, chosen = ops.top_k(ops.max(blocks, axis=-1), count)  # (N, count)
    # The blocks are sorted by their ids, because `ops.top_k` puts the first of equal values first.
    chosen = ops.sort(ops.cast(chosen, "int32"), axis=-1)
    row_starts = ops.arange(ops.shape(values)[0], dtype="int32") * number  # (N,)
    ranked = take_rows(ops.reshape(values, (-1, size)), ops.expand_dims(row_starts, 1) + chosen)  # (N, count, size)
    best, places = ops.top_k(ops.reshape(ranked, (-1, count * size)), count)
    places = ops.cast(places, "int32")
    return best, take_columns(chosen, places // size) * size + places % size


def _block_size(length: int, count: int) -> int | None:
    """The size of the blocks: the largest divisor of `length` from 8 to 64 that gives at least 4 x `count` blocks.

    None if there is no such divisor.
    """
    sizes = [size for size in range(8, 65) if length % size == 0 and length // size >= 4 * count]
    return max(sizes, default=None)


def state_tensors(state: Any) -> Any:
    """Converts every leaf of the model's state to a tensor, as a loop needs it."""
    return keras.tree.map_structure(ops.convert_to_tensor, state)


def write_column(buffer: Any, column: Any, position: Any) -> Any:
    """Writes `column` (...) into `buffer` (..., T) at `position` () of the last axis, and returns the new buffer.

    It selects between old and new values. A slice update would lose static shapes, and it would bring an operation of
    XLA into TensorFlow graphs.
    """
    here = ops.equal(ops.arange(ops.shape(buffer)[-1], dtype="int32"), position)  # (T,)
    return ops.where(here, ops.expand_dims(column, -1), buffer)
