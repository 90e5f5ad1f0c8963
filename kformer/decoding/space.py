"""The sequences that a search may produce, and the log probabilities of what may come next.

Letters: B sentences, N rows (B, or in beam search B times the number of beams), V vocabulary, T buffer length.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kformer.decoding.constraints import Constraint
from kformer.decoding.top_k import top_k
from kformer.indexing import take_columns

FORBIDDEN = float("-inf")  # log probability of a token that may not come next
States = tuple[Any, ...]  # one of each constraint


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """The sequences that a search may produce.

    Args:
        start_id: the token that the model receives first. It may be the pad id, as in Marian and T5, or the end id, as
            in BART; a search never produces it, except as the end.
        end_id: the token that ends a sequence.
        pad_id: fills up a sequence after its end; a search never produces it as a token. It differs from the end id.
        max_lengths: (B,) int, the largest number of tokens for each sentence, the end token included. Values above
            `buffer_length` count as `buffer_length`. A sequence that reaches its limit stops there, even without an
            end token.
        buffer_length: int or () int tensor, T of the result.
        constraints: what every sequence keeps beside. If two of them force a token, the first one does.
        renormalize: whether the probabilities of the tokens that may come next are divided by their sum. Otherwise a
            token keeps the probability that the model gives it.
        starts: (B,) int, what the model receives first in place of the start id, such as the language of each
            sentence. None: the start id. It is no part of the sequence: it counts for no length and no score.
        never: other ids that a search never produces, such as all those that may be in `starts`.

    Attributes:
        limits: (B,) int32, `max_lengths` clipped to values from 0 to `buffer_length`.

    Raises:
        ValueError: An id is below 0, the pad id is the end id, `max_lengths` is not (B,), or `buffer_length` is below
            1.

    Examples:
        Of four equally probable tokens, 0 (padding), 1 (start) and 2 (the end, too early) may not come first:

        >>> space = SearchSpace(1, 2, 0, np.array([3, 99]), buffer_length=10, constraints=[MinLength(1)])
        >>> np.asarray(space.limits).tolist()
        [3, 10]
        >>> states = space.start(np.zeros((2, 0), "int32"))
        >>> print(np.exp(space.log_probabilities(states, np.zeros((1, 4)))).round(2))
        [[0.   0.   0.   0.25]]
    """

    start_id: int
    end_id: int
    pad_id: int
    max_lengths: Any
    buffer_length: Any
    constraints: Sequence[Constraint] = ()
    renormalize: bool = False
    starts: Any = None
    never: Sequence[int] = ()
    limits: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if self.pad_id == self.end_id or min(self.start_id, self.end_id, self.pad_id) < 0:
            raise ValueError(
                "start_id, end_id and pad_id must be at least 0, and pad_id must differ from end_id. "
                f"Received: start_id={self.start_id}, end_id={self.end_id}, pad_id={self.pad_id}. "
                "Pass the special ids of the target tokenizer."
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

    def first_inputs(self) -> Any:
        """(B,) int32: what the model receives before the first token of each sentence.

        Examples:
            >>> space = SearchSpace(1, 2, 0, np.array([3, 9]), buffer_length=9, starts=np.array([5, 1]), never=[5])
            >>> np.asarray(space.first_inputs()).tolist()
            [5, 1]
        """
        if self.starts is None:
            return ops.full(ops.shape(self.limits), self.start_id, dtype="int32")
        return ops.cast(self.starts, "int32")

    def start(self, tokens: Any, beams: int = 1) -> States:
        """The first state of each constraint; the arguments are those of `Constraint.start`."""
        states = tuple(constraint.start(tokens, beams, self.buffer_length) for constraint in self.constraints)
        return keras.tree.map_structure(ops.convert_to_tensor, states)

    def advance(self, states: States, tokens: Any) -> States:
        """The states after `tokens`, N int32 in any shape."""
        return tuple(
            constraint.advance(state, ops.reshape(tokens, (-1,)))
            for constraint, state in zip(self.constraints, states, strict=True)
        )

    def best_tokens(self, states: States, logits: Any, count: int) -> tuple[Any, Any]:
        """Finds the `count` most probable next tokens of each row, best first; the lower id where two are equal.

        The result is that of `top_k(log_probabilities(...))`. Where no constraint has a mask of the whole vocabulary,
        log probabilities are computed only for the largest logits, to save memory traffic: for a few more than `count`,
        because some of them may be forbidden.

        Args:
            states: of the constraints.
            logits: (N, V), any float dtype.
            count: int, at most V.

        Returns:
            (N, count) float32 log probabilities, -inf for forbidden tokens, and (N, count) int32 ids.

        Raises:
            ValueError: see `log_probabilities`.
        """
        self._check_logits(logits)
        allowed = self._allowed(states, logits.shape[-1])
        if allowed is not None or self.renormalize:
            return top_k(self._masked(states, logits, allowed), count)
        logits = ops.cast(logits, "float32")
        spare = 3 + len(self.never)  # pad, start and end id may be forbidden, too
        best, ids = top_k(logits, min(count + spare, logits.shape[-1]))  # (N, count + spare)
        # The largest probability is 1 / sum(exp(logits - highest)): a softmax is faster than these three passes.
        probability_of_best = take_columns(ops.softmax(logits), ids[:, :1])  # (N, 1)
        log_probs = best - best[:, :1] + ops.log(probability_of_best)
        log_probs, kept = ops.top_k(ops.where(self._is_forbidden(states, ids), FORBIDDEN, log_probs), count)
        return log_probs, take_columns(ids, kept)

    def log_probabilities(self, states: States, logits: Any) -> Any:
        """Computes the log probabilities of the next token, -inf for tokens that may not come next.

        Tokens are forbidden after the log softmax, so the others keep the log probability that the model gives them.
        Pad and start ids and those in `never` are always forbidden, others by the constraints. If the start id is the
        end id, the rule of the end id holds.

        Args:
            states: of the constraints.
            logits: (N, V), any float dtype.

        Returns:
            (N, V) float32.

        Raises:
            ValueError: The logits are not (N, V) with a known V that holds every special id.
        """
        self._check_logits(logits)
        return self._masked(states, logits, self._allowed(states, logits.shape[-1]))

    def with_forced(self, states: States, logits: Any, log_probs: Any, ids: Any) -> tuple[Any, Any]:
        """Gives each row for which a constraint forces a token one candidate: this token.

        Args:
            states: of the constraints.
            logits: (N, V), any float dtype.
            log_probs: (N, C) float32, of the candidates for the next token.
            ids: (N, C) int32, the candidates.

        Returns:
            Log probabilities and ids of the candidates. In a row with a forced token, the first one is this token with
            the log probability that the model gives it, and all others have -inf.
        """
        if (forced := self._forced(states)) is None:
            return log_probs, ids
        tokens = ops.expand_dims(forced, 1)  # (N, 1)
        is_first = ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), 0)  # (C,)
        of_token = take_columns(ops.log_softmax(ops.cast(logits, "float32"), axis=-1), tokens)  # (N, 1)
        only = ops.where(is_first, of_token, FORBIDDEN)
        is_free = ops.equal(tokens, self.pad_id)
        return ops.where(is_free, log_probs, only), ops.where(is_free, ids, tokens)

    def _masked(self, states: States, logits: Any, allowed: Any) -> Any:
        """(N, V) float32, see `log_probabilities`; `allowed` is the mask of all constraints, or None."""
        logits = ops.cast(logits, "float32")
        ids = ops.arange(logits.shape[-1], dtype="int32")  # (V,)
        forbidden = self._is_forbidden(states, ids)
        if allowed is not None:
            forbidden = forbidden | ops.logical_not(allowed)
        among = ops.where(forbidden, FORBIDDEN, logits) if self.renormalize else logits
        return ops.where(forbidden, FORBIDDEN, ops.log_softmax(among, axis=-1))

    def _is_forbidden(self, states: States, ids: Any) -> Any:
        """True for those of `ids`, (N, C) or (C,), that are special ids and may not come next."""
        forbidden = ops.equal(ids, self.pad_id)
        if self.start_id not in (self.pad_id, self.end_id):
            forbidden = forbidden | ops.equal(ids, self.start_id)
        for never in self.never:
            forbidden = forbidden | ops.equal(ids, never)
        for constraint, state in zip(self.constraints, states, strict=True):
            if (may_end := constraint.may_end(state)) is not None:
                forbidden = forbidden | (ops.equal(ids, self.end_id) & ~ops.reshape(may_end, (-1, 1)))
        return forbidden

    def _allowed(self, states: States, vocab_size: int) -> Any:
        """(N or 1, V) bool, what all constraints allow; None if none of them has a mask."""
        together = None
        for constraint, state in zip(self.constraints, states, strict=True):
            if (allowed := constraint.allowed(state, vocab_size)) is not None:
                together = allowed if together is None else ops.logical_and(together, allowed)
        return together

    def _forced(self, states: States) -> Any:
        """(N,) int32, the token that the first of the constraints forces, else the pad id; None if none ever does."""
        chosen = None
        for constraint, state in zip(self.constraints, states, strict=True):
            if (forced := constraint.forced(state)) is not None:
                chosen = forced if chosen is None else ops.where(ops.equal(chosen, self.pad_id), forced, chosen)
        return chosen

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
