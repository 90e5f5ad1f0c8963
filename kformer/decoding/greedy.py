"""Greedy search: always the most probable next token."""

from typing import Any

from keras import ops

from kformer.decoding.constraints import NextLogits, SearchConstraints
from kformer.decoding.loop import decode_rows
from kformer.decoding.result import SearchResult


def greedy_search(next_logits: NextLogits, state: Any, constraints: SearchConstraints) -> SearchResult:
    """The most probable token at every step; the lower id where two are equal.

    Args:
        next_logits: `(tokens (B,) int32, state) -> (logits (B, V) any float, state)`. Shapes and dtypes of the
            state's leaves stay as they are. Finished rows are fed the pad id until all rows are finished.
        state: nested structure of tensors.
        constraints: what may be produced.

    Returns:
        A `SearchResult` with n = 1; the score is the sum of the model's float32 log probabilities of the
        tokens, the end token included.

    Raises:
        ValueError: The logits do not hold the special ids.
    """

    def choose(logits: Any, step: Any) -> tuple[Any, Any]:
        log_probs, ids = constraints.best_tokens(logits, step, 1)  # (B, 1)
        return ops.squeeze(ids, -1), ops.squeeze(log_probs, -1)

    return decode_rows(next_logits, state, constraints, choose)
