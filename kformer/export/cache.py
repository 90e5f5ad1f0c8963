"""How an export keeps the keys and values of a search: in TensorFlow's own operations, without copies.

Shape letters: B sentences, H heads, K size of a head, S keys.
"""

import tensorflow as tf

from kformer.layers import Cache


class InPlaceCache(Cache):
    """A cache that is written in place, and read by the operations that start fastest.

    The operations of `keras.ops` copy the whole cache at every step, or use oneDNN kernels that need more time to start
    than to compute one row.
    """

    @staticmethod
    def zeros(shape: tuple, dtype: str) -> tf.Tensor:
        """Zeros in separate memory. Graph rewrites let equal results share memory, but not those of this operation."""
        return tf.raw_ops.Empty(shape=tf.stack(shape), dtype=tf.as_dtype(dtype), init=True)

    @staticmethod
    def scatter(tensor: tf.Tensor, place: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        """Writes the rows `place` into the memory of `tensor`, which nothing else may use."""
        return tf.raw_ops.InplaceUpdate(x=tensor, i=place, v=update)

    @staticmethod
    def attention(
        query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None
    ) -> tf.Tensor:
        attend = attend_one_row if query.shape[2] == 1 else attend_rows
        return attend(query, key, value, mask, bias)


def attend_one_row(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None = None, bias: tf.Tensor | None = None
) -> tf.Tensor:
    """`scaled_dot_product_attention` for a single query, for which oneDNN needs more time to start than to compute.

    TensorFlow runs BatchMatMulV3 and an unfused softmax in Eigen, not in oneDNN.

    Args:
        query: (B, H, 1, K) float32.
        key: (B, H, S, K) float32.
        value: (B, H, S, K) float32.
        mask: Booleans that broadcast to (B, H, 1, S); at least one key must be visible.
        bias: Floats that broadcast to (B, H, 1, S).
    """
    scores = tf.raw_ops.BatchMatMulV3(x=_scaled(query), y=key, adj_y=True, Tout=tf.float32)  # (B, H, 1, S)
    scores = _masked(scores, mask, bias)
    powers = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    sums = tf.reduce_sum(powers, axis=-1, keepdims=True)  # (B, H, 1, 1)
    return tf.raw_ops.BatchMatMulV3(x=powers, y=value, Tout=tf.float32) / sums


def attend_rows(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None = None, bias: tf.Tensor | None = None
) -> tf.Tensor:
    """The same for several queries (B, H, R, K), in oneDNN, which is faster there."""
    scores = _masked(tf.matmul(_scaled(query), key, transpose_b=True), mask, bias)  # (B, H, R, S)
    return tf.matmul(tf.nn.softmax(scores), value)


def _scaled(query: tf.Tensor) -> tf.Tensor:
    return query * query.shape[-1] ** -0.5


def _masked(scores: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None) -> tf.Tensor:
    if bias is not None:
        scores += bias
    return scores if mask is None else scores + (1.0 - tf.cast(mask, tf.float32)) * tf.float32.min
