"""The base class of greedy search and sampling: both write one sequence for each sentence.

Letters: B sentences, T buffer length, V vocabulary.
"""

import abc
from typing import Any, NamedTuple

from keras import ops

from kformer.decoding.constraints import NextLogits, write_column
from kformer.decoding.result import SearchResult
from kformer.decoding.search import Search


class RowState(NamedTuple):
    """The state of a `RowSearch`."""

    step: Any  # () int32; number of tokens in every unfinished row
    last_tokens: Any  # (B,) int32; pad id in finished rows
    tokens: Any  # (B, T) int32
    scores: Any  # (B,) float32; sum of log probabilities
    lengths: Any  # (B,) int32
    limits: Any  # (B,) int32; the largest lengths
    finished: Any  # (B,) bool; True if the row has its end token or has reached its limit
    prefixes: Any  # (B, F + 1) int32, see `SearchConstraints`; () for none
    min_lengths: Any  # (B,) int32, see `SearchConstraints`; () for one minimum of all


class RowSearch(Search):
    """A search in which `choose` gives every token, until all rows are finished."""

    @abc.abstractmethod
    def choose(self, logits: Any, now: RowState) -> tuple[Any, Any]:
        """Chooses the next token of each row.

        Args:
            logits: (B, V) floats.
            now: the state so far.

        Returns:
            The tokens' log probabilities (B, 1) float32, and the tokens (B, 1) int32.
        """

    def first_state(self) -> RowState:
        constraints = self.constraints
        rows = ops.shape(constraints.limits)[0]
        return RowState(
            step=ops.convert_to_tensor(0, "int32"),
            last_tokens=ops.full((rows,), constraints.start_id, dtype="int32"),
            tokens=ops.full((rows, constraints.buffer_length), constraints.pad_id, dtype="int32"),
            scores=ops.zeros((rows,), dtype="float32"),
            lengths=ops.zeros((rows,), dtype="int32"),
            limits=constraints.limits,
            finished=ops.less_equal(constraints.limits, 0),
            prefixes=constraints.prefixes,
            min_lengths=constraints.min_lengths,
        )

    def after(self, tokens: Any, log_probs: Any) -> RowState:
        first, length = self.first_state(), ops.shape(tokens)[1] - 1
        return first._replace(
            step=ops.cast(length, "int32"),
            last_tokens=tokens[:, -1],
            tokens=self.constraints.buffer_of(tokens[:, 1:]),
            scores=log_probs,
            lengths=ops.full(ops.shape(first.lengths), length, dtype="int32"),
            finished=ops.less_equal(first.limits, length),
        )

    def step(self, now: RowState, next_logits: NextLogits, model_state: Any) -> tuple[RowState, Any]:
        logits, model_state = next_logits(now.last_tokens, model_state)
        gain, chosen = self.choose(logits, now)
        gain, chosen = self.constraints.with_prefixes(now.prefixes, logits, now.step, gain, chosen)
        chosen, gain = ops.squeeze(chosen, -1), ops.squeeze(gain, -1)  # (B,) both
        tokens = ops.where(now.finished, self.constraints.pad_id, chosen)
        new_length = now.step + 1
        ends = ops.equal(tokens, self.constraints.end_id) | ops.greater_equal(new_length, now.limits)
        new = now._replace(
            step=new_length,
            last_tokens=tokens,
            tokens=write_column(now.tokens, tokens, now.step),
            scores=ops.where(now.finished, now.scores, now.scores + gain),
            lengths=ops.where(now.finished, now.lengths, new_length),
            finished=now.finished | ends,
        )
        return new, model_state

    def finished(self, now: RowState) -> Any:
        return now.finished

    def result(self, now: RowState) -> SearchResult:
        return SearchResult(
            tokens=ops.expand_dims(now.tokens, 1),  # (B, 1, T)
            scores=ops.expand_dims(now.scores, 1),  # (B, 1)
            lengths=ops.expand_dims(now.lengths, 1),  # (B, 1)
        )
