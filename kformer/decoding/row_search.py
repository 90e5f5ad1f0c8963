"""The base class of greedy search and sampling: both write one row, a single sequence, for each sentence.

Letters: B sentences, T buffer length, V vocabulary.
"""

import abc
from typing import Any, NamedTuple

from keras import ops

from kformer.decoding.buffers import buffer_of, write_column
from kformer.decoding.result import SearchResult
from kformer.decoding.search import NextLogits, Search, gather_rows
from kformer.decoding.space import FORBIDDEN, States


class RowState(NamedTuple):
    """The state of a `RowSearch`."""

    step: Any  # () int32; number of tokens in every unfinished row
    last_tokens: Any  # (B,) int32; pad id in finished rows
    tokens: Any  # (B, T) int32
    scores: Any  # (B,) float32; sum of log probabilities
    lengths: Any  # (B,) int32
    limits: Any  # (B,) int32; the largest lengths
    finished: Any  # (B,) bool; True if the row has its end token or has reached its limit
    constraints: States


class RowSearch(Search):
    """A search in which `choose` gives every token, until all rows are finished."""

    @abc.abstractmethod
    def choose(self, now: RowState, logits: Any) -> tuple[Any, Any]:
        """Chooses the next token of each row.

        Args:
            now: The state so far.
            logits: (B, V) floats.

        Returns:
            The tokens' log probabilities (B, 1) float32, and the tokens (B, 1) int32.
        """

    def first_state(self) -> RowState:
        space = self.space
        rows = ops.shape(space.limits)[0]
        return RowState(
            step=ops.convert_to_tensor(0, "int32"),
            last_tokens=space.first_inputs(),
            tokens=ops.full((rows, space.buffer_length), space.pad_id, dtype="int32"),
            scores=ops.zeros((rows,), dtype="float32"),
            lengths=ops.zeros((rows,), dtype="int32"),
            limits=space.limits,
            finished=ops.less_equal(space.limits, 0),
            constraints=space.start(ops.zeros((rows, 0), dtype="int32")),
        )

    def after(self, tokens: Any, log_probs: Any) -> RowState:
        first, length = self.first_state(), ops.shape(tokens)[1] - 1
        return first._replace(
            step=ops.cast(length, "int32"),
            last_tokens=tokens[:, -1],
            tokens=buffer_of(tokens[:, 1:], self.space.buffer_length, self.space.pad_id),
            scores=log_probs,
            lengths=ops.full(ops.shape(first.lengths), length, dtype="int32"),
            finished=ops.less_equal(first.limits, length),
            constraints=self.space.start(tokens[:, 1:]),
        )

    def step(self, now: RowState, next_logits: NextLogits, model_state: Any) -> tuple[RowState, Any]:
        logits, model_state = next_logits(now.last_tokens, model_state)
        gain, chosen = self.choose(now, logits)
        chosen = ops.where(ops.equal(gain, FORBIDDEN), self.space.end_id, chosen)  # where nothing may follow
        gain, chosen = self.space.with_forced(now.constraints, logits, gain, chosen)
        chosen, gain = ops.squeeze(chosen, -1), ops.squeeze(gain, -1)  # (B,) both
        tokens = ops.where(now.finished, self.space.pad_id, chosen)
        new_length = now.step + 1
        ends = ops.equal(tokens, self.space.end_id) | ops.greater_equal(new_length, now.limits)
        new = RowState(
            step=new_length,
            last_tokens=tokens,
            tokens=write_column(now.tokens, tokens, now.step),
            scores=ops.where(now.finished, now.scores, now.scores + gain),
            lengths=ops.where(now.finished, now.lengths, new_length),
            limits=now.limits,
            finished=now.finished | ends,
            constraints=self.space.advance(now.constraints, tokens),
        )
        return new, model_state

    def keep(self, now: RowState, sentences: Any) -> RowState:
        return gather_rows(now, sentences)

    def finished(self, now: RowState) -> Any:
        return now.finished

    def result(self, now: RowState) -> SearchResult:
        return SearchResult(
            tokens=ops.expand_dims(now.tokens, 1),  # (B, 1, T)
            scores=ops.expand_dims(now.scores, 1),  # (B, 1)
            lengths=ops.expand_dims(now.lengths, 1),  # (B, 1)
        )
