"""Attention masks: boolean, True where a query may attend to a key. Only this module makes masks.

Shapes broadcast against attention scores (B, H, T, S): B batch, H heads, T queries, S keys.
Combine masks with `keras.ops.logical_and` (or `&` on tensors).
"""

import keras
from keras import ops

from kformer.layers.tensors import Tensor


def padding_mask(ids: Tensor, pad_id: int = 0) -> Tensor:
    """True where a key is not padding.

    Args:
        ids: Token ids, integers of shape (B, S).
        pad_id: The id that fills rows up to a common length.

    Returns:
        Booleans of shape (B, 1, 1, S).

    Examples:
        >>> np.asarray(padding_mask(np.array([[7, 5, 0]]), pad_id=0)).tolist()
        [[[[True, True, False]]]]
    """
    return key_mask(ops.not_equal(ids, pad_id))


def key_mask(visible: Tensor) -> Tensor:
    """The attention mask for a Keras mask: every query sees the same keys.

    Args:
        visible: Booleans of shape (B, S), such as the implicit mask of `keras.layers.Embedding(mask_zero=True)`.

    Returns:
        Booleans of shape (B, 1, 1, S).
    """
    return ops.expand_dims(ops.cast(visible, "bool"), (1, 2))


def check_mask(attention_mask: Tensor | None) -> None:
    """Refuses masks that attention could misread: a mask (B, T, S) would be read as (H, T, S) if B = H.

    Raises:
        ValueError: The mask is not boolean, or has fewer or more than four dimensions.
    """
    if attention_mask is None:
        return
    shape, dtype = tuple(attention_mask.shape), keras.backend.standardize_dtype(attention_mask.dtype)
    if len(shape) != 4 or dtype != "bool":
        raise ValueError(
            "An attention mask holds booleans and broadcasts to (batch, heads, queries, keys). "
            f"Received: shape {shape} and dtype {dtype}. For a mask of keys (batch, keys) pass "
            "mask[:, None, None, :], for a mask (batch, queries, keys) mask[:, None], and make numbers boolean by "
            "mask != 0."
        )


def explicit_or_implicit(attention_mask: Tensor | None, implicit: Tensor | None) -> Tensor | None:
    """The attention mask that was given; else the mask that follows from a Keras mask (B, S); else None.

    Keras fills a layer's argument `mask` if the layer gets exactly one tensor. If the layer gets more, Keras fills
    `<name>_mask` for each tensor, as in `query_mask`. So a layer with optional further tensors takes both arguments.
    """
    if attention_mask is not None or implicit is None:
        return attention_mask
    return key_mask(implicit)


def causal_mask(length: int | Tensor) -> Tensor:
    """The look-ahead mask of section 3.2.3: query t sees the keys 0 to t.

    Args:
        length: T, an integer or an integer scalar tensor.

    Returns:
        Booleans of shape (1, 1, T, T).

    Examples:
        >>> np.asarray(causal_mask(2))[0, 0].tolist()
        [[True, False], [True, True]]
    """
    positions = ops.arange(length)
    return ops.expand_dims(ops.expand_dims(positions, 1) >= ops.expand_dims(positions, 0), (0, 1))


def window_mask(queries: Tensor, keys: Tensor, window: int, causal: bool = False) -> Tensor:
    """True where a key is less than `window` positions away from the query, and not after it if `causal`.

    Args:
        queries, keys: (T,) and (S,) integers, the positions.
        window: r. A query in the middle sees 2 r - 1 keys, or r if `causal`.
        causal: Whether keys after the query are hidden.

    Returns:
        Booleans of shape (1, 1, T, S).

    Examples:
        >>> positions = np.arange(4)
        >>> np.asarray(window_mask(positions, positions, window=2, causal=True))[0, 0].astype(int).tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    back = ops.expand_dims(queries, 1) - ops.expand_dims(keys, 0)  # (T, S): how many positions a key is before a query
    near = (back >= 0) & (back < window) if causal else ops.abs(back) < window
    return ops.expand_dims(near, (0, 1))


def ancestry_mask(ancestors: Tensor, rows: int) -> Tensor:
    """The keys that each row of a search may attend to, in a cache that all rows of its sentence share.

    Args:
        ancestors: (B x R, T) integers: which row of the sentence wrote position t of this row's history; -1 where
            nothing is written yet.
        rows: R.

    Returns:
        Booleans of shape (B, 1, R, T x R), for a cache with position t of row r at t x R + r.

    Examples:
        Two of three positions are written. Row 0 wrote the first one for both rows, and each row its own second one:

        >>> mask = ancestry_mask(np.array([[0, 0, -1], [0, 1, -1]]), rows=2)
        >>> np.asarray(mask)[0, 0].astype(int).tolist()
        [[1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]]
    """
    length = ops.shape(ancestors)[1]
    own = ops.expand_dims(ops.cast(ancestors, "int32"), -1) == ops.arange(rows, dtype="int32")  # (B x R, T, R)
    return ops.reshape(own, (-1, 1, rows, length * rows))
