"""The keys and values of a search in an export, written in place by TensorFlow's operations, without copies.

Shape letters: B sentences, Q queries of a sentence, H heads, G heads of keys and values, K size of a head, S keys.
"""

import tensorflow as tf

from kformer.layers import Cache, HeadOrder
from kformer.layers.relative_attention import RelativeBias
from kformer.layers.tensors import KeysValues, ScoreBias


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
    def source_layout(keys_values: KeysValues) -> KeysValues:
        """Keys as (B, G, K, S), with which oneDNN multiplies in half the time; divided by sqrt(K), as queries are."""
        return KeysValues(tf.transpose(_scaled(keys_values.key), [0, 1, 3, 2]), keys_values.value)

    @staticmethod
    def mask_form(mask: tf.Tensor) -> tf.Tensor:
        """What is subtracted from the scores: floats, the largest one where a query may not attend."""
        return (1.0 - tf.cast(mask, tf.float32)) * tf.float32.max

    @classmethod
    def of_source(cls, keys_values: KeysValues, order: HeadOrder) -> "SourceCache":
        return SourceCache(*keys_values, tf.shape(keys_values.value)[2], order)

    @staticmethod
    def attention(
        query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, bias: ScoreBias | None
    ) -> tf.Tensor:
        scores = _product(_scaled(query), key, transposed=True)
        if isinstance(bias, RelativeBias):
            weights = tf.nn.softmax(_masked(scores, mask, bias(query)))
            return _product(weights, value) + bias.of_values(weights)
        return _attended(scores, value, mask, bias)


class SourceCache(InPlaceCache):
    """The keys and values of a source, in `source_layout`."""

    @staticmethod
    def attention(
        query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None
    ) -> tf.Tensor:
        return _attended(_product(query, key), value, mask, bias)


def _attended(scores: tf.Tensor, value: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None) -> tf.Tensor:
    """Values (B, G, S, K) weighted by the softmax of the scores (B, H, Q, S): (B, H, Q, K)."""
    scores = _masked(scores, mask, bias)
    if scores.shape[2] != 1:
        return _product(tf.nn.softmax(scores), value)
    powers = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
    return _product(powers, value) / tf.reduce_sum(powers, axis=-1, keepdims=True)


def _masked(scores: tf.Tensor, mask: tf.Tensor | None, bias: tf.Tensor | None) -> tf.Tensor:
    """The scores with their bias; those outside the mask, which is in `mask_form`, are as small as possible."""
    if bias is not None:
        scores -= -bias  # not added: see `attention_weights`
    return scores if mask is None else scores - mask


def _product(rows: tf.Tensor, matrix: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """(B, H, Q, N) times (B, G, N, M), or (B, G, M, N) where `transposed`: (B, H, Q, M), as in `product_by_head`.

    TensorFlow runs BatchMatMulV2 in oneDNN, which needs more time to start than to compute one row. It runs
    BatchMatMulV3 in Eigen.
    """
    heads, groups = rows.shape[1], matrix.shape[1]
    number = tf.shape(rows)[2] if rows.shape[2] is None else rows.shape[2]
    together = rows
    if heads != groups:
        together = tf.reshape(rows, [-1, groups, heads // groups * number, tf.shape(rows)[3]])
    if rows.shape[2] != 1:
        products = tf.matmul(together, matrix, transpose_b=transposed)
    else:
        products = tf.raw_ops.BatchMatMulV3(x=together, y=matrix, adj_y=transposed, Tout=tf.float32)
    return products if heads == groups else tf.reshape(products, [-1, heads, number, tf.shape(products)[3]])


def _scaled(query: tf.Tensor) -> tf.Tensor:
    """Queries or keys (..., K), divided by sqrt(K)."""
    return query * query.shape[-1] ** -0.5
