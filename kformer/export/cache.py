"""How an export keeps the keys and values of a search: in TensorFlow's own operations, without copies.

Shape letters: B sentences, H heads, K size of a head, S keys.
"""

import tensorflow as tf

from kformer.layers import Cache


class InPlaceCache(Cache):
    """A cache that is written where it lies, and read by the operations that begin soonest.

    What `keras.ops` offers instead copies the whole cache at every step, or goes through oneDNN kernels that take
    longer to begin than to compute one row.
    """

    @staticmethod
    def zeros(shape: tuple, dtype: str) -> tf.Tensor:
        """Zeros in memory of their own: graph rewrites let equal results share memory, but not this operation's."""
        return tf.raw_ops.Empty(shape=tf.stack(shape), dtype=tf.as_dtype(dtype), init=True)

    @staticmethod
    def scatter(tensor: tf.Tensor, place: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        """The rows `place` are written in the memory of `tensor`, which nobody else may hold."""
        return tf.raw_ops.InplaceUpdate(x=tensor, i=place, v=update)

    @staticmethod
    def attention(
        query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None
    ) -> tf.Tensor:
        if query.shape[2] == 1:
            return attend_one_row(query, key, value, mask, bias)
        return Cache.attention(query, key, value, mask, bias)


def attend_one_row(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None = None, bias: tf.Tensor | None = None
) -> tf.Tensor:
    """`scaled_dot_product_attention` for a single query, where oneDNN takes longer to begin than to compute.

    TensorFlow hands its BatchMatMulV3 and an unfused softmax to Eigen, not to oneDNN.

    Args:
        query: (B, H, 1, K) float32.
        key: (B, H, S, K) float32.
        value: (B, H, S, K) float32.
        mask: Booleans that broadcast to (B, H, 1, S); some key must be visible.
        bias: Floats that broadcast to (B, H, 1, S).
    """
    query *= query.shape[-1] ** -0.5
    scores = tf.raw_ops.BatchMatMulV3(x=query, y=key, adj_y=True, Tout=tf.float32)  # (B, H, 1, S)
    if bias is not None:
        scores += bias
    if mask is not None:
        scores += (1.0 - tf.cast(mask, tf.float32)) * tf.float32.min
    powers = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    sums = tf.reduce_sum(powers, axis=-1, keepdims=True)  # (B, H, 1, 1)
    return tf.raw_ops.BatchMatMulV3(x=powers, y=value, Tout=tf.float32) / sums
