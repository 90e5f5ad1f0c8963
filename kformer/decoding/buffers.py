"""Buffers of tokens: rows of a fixed length T, which a search fills from left to right."""

from typing import Any

from keras import ops


def buffer_of(tokens: Any, length: Any, filler: int) -> Any:
    """(B, T) int32: the tokens (B, P), filled up with `filler` to T = `length`."""
    return ops.pad(tokens, [[0, 0], [0, length - ops.shape(tokens)[1]]], constant_values=filler)


def write_column(buffer: Any, column: Any, position: Any) -> Any:
    """Writes `column` (...) into `buffer` (..., T) at `position` () of the last axis, and returns the new buffer.

    It selects between old and new values. A slice update would lose static shapes, and it would bring an operation of
    XLA into TensorFlow graphs.
    """
    here = ops.equal(ops.arange(ops.shape(buffer)[-1], dtype="int32"), position)  # (T,)
    return ops.where(here, ops.expand_dims(column, -1), buffer)
