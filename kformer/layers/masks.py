"""Attention masks: boolean, True where a query may attend to a key. Nothing else makes masks.

Shapes broadcast against attention scores (B, H, T, S): B batch, H heads, T queries, S keys.
Combine masks with `keras.ops.logical_and` (or `&` on tensors).
"""

from typing import Any

from keras import ops

Tensor = Any  # a tensor of whichever backend Keras runs on


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """True where a key is no padding.

    Args:
        ids: Token ids, integers of shape (B, S).
        pad_id: The id that fills rows up to a common length.

    Returns:
        Booleans of shape (B, 1, 1, S).
    """
    return ops.expand_dims(ops.not_equal(ids, pad_id), (1, 2))


def causal_mask(length: int | Tensor) -> Tensor:
    """The look-ahead mask of section 3.2.3: query t sees the keys 0 to t.

    Args:
        length: T, an integer or an integer scalar tensor.

    Returns:
        Booleans of shape (1, 1, T, T).
    """
    positions = ops.arange(length)
    return ops.expand_dims(ops.expand_dims(positions, 1) >= ops.expand_dims(positions, 0), (0, 1))


def ancestry_mask(ancestors: Tensor, rows: int) -> Tensor:
    """What each row of a search sees in a cache that all rows of its sentence share.

    Args:
        ancestors: (B x R, T) integers: which row of the sentence wrote position t of this row's history; -1 where
            nothing is written yet.
        rows: R.

    Returns:
        Booleans of shape (B, 1, R, T x R), for a cache with position t of row r at t x R + r.
    """
    length = ops.shape(ancestors)[1]
    own = ops.expand_dims(ops.cast(ancestors, "int32"), -1) == ops.arange(rows, dtype="int32")  # (B x R, T, R)
    return ops.reshape(own, (-1, 1, rows, length * rows))
