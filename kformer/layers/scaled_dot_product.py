"""Scaled dot-product attention (section 3.2.1).

Shape letters: B batch, T queries, S keys, H heads, G heads of keys and values (the paper has G = H), K size of a head
(the paper's d_k = d_v).
"""

import keras
import numpy as np
from keras import ops

from kformer.layers.grouped_heads import product_by_head
from kformer.layers.masks import over_heads
from kformer.layers.relative_attention import RelativeBias
from kformer.layers.tensors import ScoreBias, Tensor

# The dtypes for which a fused kernel is used. JAX's float16 kernel needs a product that CPUs and TPUs cannot compile.
FUSED_DTYPES = {"jax": ("float32", "bfloat16"), "torch": ("float32", "bfloat16", "float16")}


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, bias: ScoreBias | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias), the first factor of equation 1; the paper has no bias.

    The softmax runs in float32 for inputs of every dtype.

    Args:
        query, key: (B, H, T, K) and (B, G, S, K) floats.
        mask: Booleans (T, S), (B, T, S) or such that broadcast to (B, H, T, S), True where a query may attend.
        bias: Floats that broadcast to (B, H, T, S), added to the scores, as some kinds of positions do; or a function
            that computes them from `query`.

    Returns:
        (B, H, T, S) weights in the dtype of `query`; a row sums to 1, or is all 0 if every key is masked.

    Raises:
        ValueError: `mask` holds floats or has another shape.
    """
    mask = over_heads(mask, query.shape[2], key.shape[2])
    if callable(bias):
        bias = bias(query)
    # The queries are scaled, not the scores: there are fewer numbers in them if S > K, and float16 products stay small.
    query = ops.multiply(query, ops.cast(1.0 / np.sqrt(query.shape[-1]), query.dtype))
    scores = ops.cast(product_by_head(query, ops.swapaxes(key, -1, -2)), "float32")  # (B, H, T, S)
    if bias is not None:
        scores = scores - ops.negative(ops.cast(bias, "float32"))  # subtracted, as the mask below
    if mask is None:
        return ops.cast(ops.softmax(scores), query.dtype)
    # The largest float32 makes any score negligible. It is subtracted, because TensorFlow puts a product and an
    # addition together into one operation of oneDNN, which takes a hundred times as long if all sentences have the
    # same mask.
    allowed = ops.cast(mask, "float32")
    weights = ops.softmax(scores - (1.0 - allowed) * float(np.finfo("float32").max))
    # If all keys are masked, all scores are equal and the softmax is uniform. The factor max(allowed) = 0 makes it 0.
    return ops.cast(weights * ops.max(allowed, axis=-1, keepdims=True, initial=0.0), query.dtype)


def weighted_values(weights: Tensor, value: Tensor, bias: ScoreBias | None) -> Tensor:
    """The values (B, G, S, K) by the weights (B, H, T, S), and what relative positions add: (B, H, T, K)."""
    heads = product_by_head(weights, value)
    return heads + bias.of_values(weights) if isinstance(bias, RelativeBias) else heads


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, bias: ScoreBias | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k) + bias) V, equation 1; the paper has no bias.

    Args:
        query, key, value: (B, H, T, K), (B, G, S, K) and (B, G, S, K) floats, where G divides H.
        mask, bias: See `attention_weights`.

    Returns:
        (B, H, T, K) in the dtype of `query`; zeros for a query whose keys are all masked.

    Raises:
        ValueError: `mask` holds floats or has another shape.

    Examples:
        All scores are equal here, so the result is the mean of the values that the mask allows:

        >>> query, key = np.zeros((1, 1, 1, 2)), np.ones((1, 1, 2, 2))
        >>> value = np.array([[[[1.0, 10.0], [3.0, 30.0]]]])
        >>> np.asarray(scaled_dot_product_attention(query, key, value)).tolist()
        [[[[2.0, 20.0]]]]
        >>> np.asarray(scaled_dot_product_attention(query, key, value, mask=np.array([[[[False, True]]]]))).tolist()
        [[[[3.0, 30.0]]]]
    """
    mask = over_heads(mask, query.shape[2], key.shape[2])
    fused_dtypes = FUSED_DTYPES.get(keras.backend.backend(), ())
    if bias is not None or keras.backend.standardize_dtype(query.dtype) not in fused_dtypes:
        return weighted_values(attention_weights(query, key, mask, bias), value, bias)
    heads_last = (ops.swapaxes(tensor, 1, 2) for tensor in (query, key, value))  # (B, T or S, H or G, K)
    if mask is None:
        return ops.swapaxes(ops.dot_product_attention(*heads_last), 1, 2)  # (B, H, T, K)
    # cuDNN's flash attention refuses a mask that has one row for all queries, as a mask of padding does.
    every_row = ops.logical_and(mask, ops.ones((query.shape[2], key.shape[2]), dtype="bool"))
    attended = ops.swapaxes(ops.dot_product_attention(*heads_last, mask=every_row), 1, 2)
    # For a query whose keys are all masked, the fused kernels return the mean of all values.
    return ops.where(ops.any(mask, axis=-1, keepdims=True), attended, ops.zeros_like(attended))
