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


def over_heads(attention_mask: Tensor | None, num_queries: int | None, num_keys: int | None) -> Tensor | None:
    """The mask with an axis for the heads, as booleans that broadcast to (B, H, T, S).

    Masks of two and three dimensions mean what they mean to `keras.layers.MultiHeadAttention`.

    Args:
        attention_mask: Booleans, or the integers 1 and 0: True or 1 where a query may attend. (T, S) for all sentences
            and heads, (B, T, S) for all heads, or four dimensions that broadcast to (B, H, T, S).
        num_queries, num_keys: T and S; None if they are not known yet.

    Raises:
        ValueError: The mask holds floats or, as far as its values are known, other integers; or it does not have one of
            these shapes. In a graph, values are not known, and every integer but 0 counts as 1.
    """
    if attention_mask is None:
        return None
    mask = ops.convert_to_tensor(attention_mask)
    shape, dtype = tuple(mask.shape), keras.backend.standardize_dtype(mask.dtype)
    fits = all(
        not isinstance(size, int) or not isinstance(expected, int) or size in (1, expected)
        for size, expected in zip(shape[-2:], (num_queries, num_keys), strict=False)
    )
    strange = "" if dtype == "bool" else _strange_value(mask)
    if "float" in dtype or strange or len(shape) not in (2, 3, 4) or not fits:
        raise ValueError(
            "An attention mask holds booleans, True where a query may attend, and has the shape (queries, keys) or "
            "(batch, queries, keys), or broadcasts to (batch, heads, queries, keys). "
            f"Received: shape {shape} and dtype {dtype}{strange}, for {num_queries} queries and {num_keys} keys. "
            "For a mask of keys (batch, keys) pass mask[:, None, :]. Make numbers boolean: mask != 0 if 0 hides a key, "
            "mask == 0 if the mask is to be added to scores."
        )
    if len(shape) < 4:
        mask = mask[None, None] if len(shape) == 2 else mask[:, None]
    return mask if dtype == "bool" else ops.cast(mask, "bool")


def _strange_value(mask: Tensor) -> str:
    """Part of a message: a value that is neither 0 nor 1; "" if there is none, or if the values are not known yet."""
    try:
        values = ops.convert_to_numpy(mask)
    except (NotImplementedError, TypeError, ValueError):  # a tensor of a graph
        return ""
    strange = values[(values != 0) & (values != 1)]
    return f" with the value {strange.flat[0]}" if strange.size else ""


def explicit_or_implicit(attention_mask: Tensor | None, implicit: Tensor | None) -> Tensor | None:
    """The attention mask that was given; else the mask that follows from a Keras mask (B, S); else None.

    Keras fills a layer's argument `mask` if the layer gets exactly one tensor. If the layer gets more, Keras fills
    `<name>_mask` for each tensor, as in `query_mask`. So a layer with optional further tensors takes both arguments.
    """
    if attention_mask is not None or implicit is None:
        return attention_mask
    return key_mask(implicit)


def causal_mask(length: int | Tensor, num_keys: int | Tensor | None = None) -> Tensor:
    """The look-ahead mask of section 3.2.3: query t sees the keys 0 to t.

    Args:
        length: T, an integer or an integer scalar tensor.
        num_keys: S, as `length`; T when left out.

    Returns:
        Booleans of shape (1, 1, T, S).

    Examples:
        >>> np.asarray(causal_mask(2))[0, 0].tolist()
        [[True, False], [True, True]]
    """
    queries = ops.arange(length)
    keys = queries if num_keys is None else ops.arange(num_keys)
    return ops.expand_dims(ops.expand_dims(queries, 1) >= ops.expand_dims(keys, 0), (0, 1))


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
