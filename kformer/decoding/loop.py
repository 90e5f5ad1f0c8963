"""The loop of greedy search and sampling, which both write one sequence for each sentence.

Letters: B sentences, T buffer length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from kformer.decoding.constraints import NextLogits, SearchConstraints, state_tensors, write_column
from kformer.decoding.result import SearchResult


class RowState(NamedTuple):
    """The loop's variables."""

    step: Any  # () int32; number of tokens in every unfinished row
    last_tokens: Any  # (B,) int32; pad id in finished rows
    tokens: Any  # (B, T) int32
    scores: Any  # (B,) float32; sum of log probabilities
    lengths: Any  # (B,) int32
    finished: Any  # (B,) bool; True if the row has its end token or has reached its limit
    model_state: Any  # nested tensors that only next_logits reads and changes


def decode_rows(
    next_logits: NextLogits, state: Any, constraints: SearchConstraints, choose: Callable[[Any, Any], tuple[Any, Any]]
) -> SearchResult:
    """Lets `choose` pick every token until all rows are finished.

    Args:
        next_logits: `(tokens (B,) int32, state) -> (logits (B, V), state)`.
        state: the model's state before the first token.
        constraints: which sequences may be produced.
        choose: `(logits (B, V), step () int32) -> (tokens (B,) int32, their log probabilities (B,) float32)`.

    Returns:
        A `SearchResult` with n = 1.
    """
    rows = ops.shape(constraints.limits)[0]
    first = RowState(
        step=ops.convert_to_tensor(0, "int32"),
        last_tokens=ops.full((rows,), constraints.start_id, dtype="int32"),
        tokens=ops.full((rows, constraints.buffer_length), constraints.pad_id, dtype="int32"),
        scores=ops.zeros((rows,), dtype="float32"),
        lengths=ops.zeros((rows,), dtype="int32"),
        finished=ops.less_equal(constraints.limits, 0),
        model_state=state_tensors(state),
    )

    def unfinished(*values: Any) -> Any:
        return ops.logical_not(ops.all(RowState(*values).finished))

    def step(*values: Any) -> RowState:
        now = RowState(*values)
        logits, model_state = next_logits(now.last_tokens, now.model_state)
        chosen, gain = choose(logits, now.step)  # (B,) both
        tokens = ops.where(now.finished, constraints.pad_id, chosen)
        lengths = ops.where(now.finished, now.lengths, now.step + 1)
        return RowState(
            step=now.step + 1,
            last_tokens=tokens,
            tokens=write_column(now.tokens, tokens, now.step),
            scores=ops.where(now.finished, now.scores, now.scores + gain),
            lengths=lengths,
            finished=now.finished
            | ops.equal(tokens, constraints.end_id)
            | ops.greater_equal(lengths, constraints.limits),
            model_state=model_state,
        )

    last = RowState(*ops.while_loop(unfinished, step, tuple(first)))
    return SearchResult(
        tokens=ops.expand_dims(last.tokens, 1),  # (B, 1, T)
        scores=ops.expand_dims(last.scores, 1),  # (B, 1)
        lengths=ops.expand_dims(last.lengths, 1),  # (B, 1)
    )
