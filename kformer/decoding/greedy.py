"""Greedy search: always the most probable next token."""

from typing import Any

from keras import ops

from kformer.decoding.result import SearchResult
from kformer.decoding.rows import decode_rows
from kformer.decoding.search_space import NextLogits, make_search_space


def greedy_search(
    next_logits: NextLogits,
    state: Any,
    *,
    start_id: int,
    end_id: int,
    pad_id: int,
    max_lengths: Any,
    buffer_length: Any,
    min_length: int = 0,
) -> SearchResult:
    """The most probable token at every step; the lower id where two are equal.

    Args:
        next_logits: `(tokens (B,) int32, state) -> (logits (B, V) any float, state)`. Shapes and dtypes of the
            state's leaves stay as they are. Finished rows are fed pad ids behind their end until all are finished.
        state: nested structure of tensors; leaves of rank >= 1 have leading dimension B.
        start_id: fed first, never produced.
        end_id: ends a row.
        pad_id: fills a row behind its end, never produced.
        max_lengths: (B,) int, most tokens a row, the end token included; larger values than `buffer_length` count
            as `buffer_length`. A row that reaches its limit stops there, without an end token.
        buffer_length: int or () int tensor, T of the result.
        min_length: tokens before the end token may come.

    Returns:
        A `SearchResult` with n = 1; the score is the sum of the model's float32 log probabilities of the
        tokens, the end token included.

    Raises:
        ValueError: An argument is out of range, or the logits do not hold the special ids.
    """
    space = make_search_space(
        start_id=start_id,
        end_id=end_id,
        pad_id=pad_id,
        max_lengths=max_lengths,
        buffer_length=buffer_length,
        min_length=min_length,
    )
    return decode_rows(next_logits, state, space, lambda log_probs, step: ops.argmax(log_probs, axis=-1))
