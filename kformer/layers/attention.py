"""Scaled dot-product attention and multi-head attention (section 3.2).

Shape letters: B batch, T queries, S keys, H heads, K size of a head (the paper's d_k = d_v), D model size
(`d_model` = H x K). In step-by-step decoding: R rows a sentence (1, or the beams of a search), N = B x R rows,
T the positions that a cache has room for.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kformer.layers.dropout import Dropout
from kformer.layers.initializers import small_normal

Tensor = Any

# Where `keras.ops.dot_product_attention` is one fused (or flash) kernel and not the same chain of
# operations as below. In float16 JAX asks for a product that CPUs and TPUs refuse to compile.
FUSED_DTYPES = {"jax": ("float32", "bfloat16"), "torch": ("float32", "bfloat16", "float16")}


class KeysValues(NamedTuple):
    """Projected keys and values, split into heads."""

    key: Tensor  # (B, H, S, K)
    value: Tensor  # (B, H, S, K)


class RowOrder(NamedTuple):
    """How the B x R x H vectors of all heads in one position are ordered: one a row and head, or one a head and row.

    Products give the first order, attention wants the second, caches are written from the first. To gather whole
    vectors by an index made once is faster than to transpose.
    """

    sentence_and_head: Tensor  # (N x H,) int32, in the first order: number of the sentence x H + number of the head
    row: Tensor  # (N x H,) int32, in the first order: number of the row in its sentence
    by_head: Tensor  # (N x H,) int32, where the vectors of the second order stand in the first
    by_row: Tensor  # (N x H,) int32, the other way round
    rows: int  # R


def row_order(batch_size: int | Tensor, num_heads: int, rows: int) -> RowOrder:
    """The order of the vectors of B sentences with R rows and H heads each; made once a search."""
    number = ops.arange(batch_size * rows * num_heads, dtype="int32")
    sentence = number // (rows * num_heads)
    row, head = number // num_heads % rows, number % num_heads
    second_row, second_head = number % rows, number // rows % num_heads
    return RowOrder(
        sentence_and_head=sentence * num_heads + head,
        row=row,
        by_head=(sentence * rows + second_row) * num_heads + second_head,
        by_row=(sentence * num_heads + head) * rows + row,
        rows=rows,
    )


def scatter_rows(cache: Tensor, indices: Tensor, update: Tensor) -> Tensor:
    """(M, K) with the (n,) rows `indices` replaced by those of (n, K).

    A scatter, because `slice_update` would bring an XLA operation into TensorFlow graphs.
    """
    return ops.scatter_update(cache, ops.expand_dims(indices, 1), update)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)), the first factor of equation 1.

    The softmax runs in float32 whatever the inputs' dtype.

    Args:
        query: (B, H, T, K) floats.
        key: (B, H, S, K) floats.
        mask: Booleans that broadcast to (B, H, T, S), True where a query may attend.

    Returns:
        (B, H, T, S) weights in the dtype of `query`; a row sums to 1, or is all zero where the mask
        leaves nothing to attend to.
    """
    scale = 1.0 / np.sqrt(query.shape[-1])
    scores = ops.matmul(ops.multiply(query, ops.cast(scale, query.dtype)), ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")  # (B, H, T, S)
    if mask is None:
        return ops.cast(ops.softmax(scores), query.dtype)
    # A sum with the small mask broadcasts faster than a choice between two big tensors. Added to the
    # most negative float32, any realistic score is rounded away.
    allowed = ops.cast(mask, "float32")
    weights = ops.softmax(scores + (1.0 - allowed) * float(np.finfo("float32").min))
    return ops.cast(weights * ops.max(allowed, axis=-1, keepdims=True), query.dtype)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V, equation 1.

    Args:
        query: (B, H, T, K) floats.
        key: (B, H, S, K) floats.
        value: (B, H, S, K) floats.
        mask: Booleans that broadcast to (B, H, T, S), True where a query may attend.

    Returns:
        (B, H, T, K) in the dtype of `query`; zeros for a query with nothing to attend to.
    """
    fused_dtypes = FUSED_DTYPES.get(keras.backend.backend(), ())
    if keras.backend.standardize_dtype(query.dtype) not in fused_dtypes:
        return ops.matmul(attention_weights(query, key, mask), value)
    heads_last = (ops.swapaxes(tensor, 1, 2) for tensor in (query, key, value))  # (B, T or S, H, K)
    attended = ops.swapaxes(ops.dot_product_attention(*heads_last, mask=mask), 1, 2)  # (B, H, T, K)
    if mask is None:
        return attended
    # The fused kernels average all values where nothing may be attended to.
    return ops.where(ops.any(mask, axis=-1, keepdims=True), attended, ops.zeros_like(attended))


def cache_indices(order: RowOrder, position: int | Tensor, room: int | Tensor) -> Tensor:
    """Where position t of each vector lies in a cache with room for so many positions: (N x H,) int32."""
    return (order.sentence_and_head * room + position) * order.rows + order.row


@keras.saving.register_keras_serializable(package="kformer")
class MultiHeadAttention(keras.layers.Layer):
    """MultiHead(Q, K, V) of section 3.2.2, with d_k = d_v = d_model / h.

    `call` serves self-attention (`key` left out), cross-attention (`key` given) and causal attention (by
    its mask). Masks are explicit. They are called `attention_mask` here because Keras would fill an
    argument called `mask` with a tensor's implicit mask, which has another shape and meaning.

    Args:
        d_model: D, size of inputs and outputs.
        num_heads: H; must divide `d_model`.
        dropout_rate: Share of attention weights dropped in training; the paper drops none.
        use_bias: Whether the four projections have a bias.

    Raises:
        ValueError: `d_model` is not divisible by `num_heads`.
    """

    def __init__(
        self, d_model: int, num_heads: int, dropout_rate: float = 0.0, use_bias: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if d_model % num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads. Received: d_model={d_model}, num_heads={num_heads}. "
                f"Choose a d_model that is a multiple of {num_heads}, or other num_heads."
            )
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.head_dim = d_model // num_heads
        # An export puts faster ones of TensorFlow's in their place.
        self.attend_row = scaled_dot_product_attention
        self.new_cache = ops.zeros
        self.write_rows = scatter_rows
        self.query_projection = self._projection("query")
        self.key_projection = self._projection("key")
        self.value_projection = self._projection("value")
        self.output_projection = self._projection("output")
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def _projection(self, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            self.d_model,
            use_bias=self.use_bias,
            kernel_initializer=small_normal(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, query_shape: tuple, key_shape: tuple | None = None, value_shape: tuple | None = None) -> None:
        key_shape = key_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(key_shape)
        self.value_projection.build(value_shape or key_shape)
        self.output_projection.build((*query_shape[:-1], self.d_model))
        self.built = True

    def call(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Attends from every position of `query`.

        Args:
            query: (B, T, D) floats.
            key: (B, S, D) floats; `query` when left out.
            value: (B, S, D) floats; `key` when left out.
            attention_mask: Booleans that broadcast to (B, H, T, S), True where a query may attend.
            training: Whether dropout is applied.

        Returns:
            (B, T, D) floats.
        """
        return self.attend(query, self.keys_values(query if key is None else key, value), attention_mask, training)

    def keys_values(self, key: Tensor, value: Tensor | None = None) -> KeysValues:
        """Projects what is attended to; for cross-attention this is done once a sentence.

        Args:
            key: (B, S, D) floats.
            value: (B, S, D) floats; `key` when left out.
        """
        value = key if value is None else value
        return KeysValues(self._split_heads(self.key_projection(key)), self._split_heads(self.value_projection(value)))

    def attend(
        self,
        query: Tensor,
        keys_values: KeysValues,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Attends to projected keys and values; shapes as in `call` and `keys_values`."""
        query = self._split_heads(self.query_projection(query))
        if training and self.dropout_rate:
            # No fused kernel drops attention weights.
            weights = self.dropout(attention_weights(query, keys_values.key, attention_mask), training=training)
            heads = ops.matmul(weights, keys_values.value)
        else:
            heads = scaled_dot_product_attention(query, keys_values.key, keys_values.value, attention_mask)
        return self.output_projection(self._merge_heads(heads))

    def init_cache(self, batch_size: int | Tensor, max_length: int | Tensor, rows: int = 1) -> KeysValues:
        """An empty cache for `write_cache`: zeros of shape (B x H x T x R, K), in the compute dtype.

        All rows of a sentence share one list of keys, and each attends to its own by a mask. So a search that reorders
        its rows has nothing to copy but that mask.
        """
        shape = (batch_size * self.num_heads * max_length * rows, self.head_dim)
        return KeysValues(self.new_cache(shape, self.compute_dtype), self.new_cache(shape, self.compute_dtype))

    def write_cache(self, inputs: Tensor, cache: KeysValues, indices: Tensor) -> KeysValues:
        """The cache with the keys and values of one position.

        Args:
            inputs: (N, D) floats, the rows of a sentence one below the other.
            cache: From `init_cache`, or from the position before.
            indices: (N x H,) int32 from `cache_indices`.
        """
        key = ops.reshape(self.key_projection(inputs), (-1, self.head_dim))  # (N x H, K)
        value = ops.reshape(self.value_projection(inputs), (-1, self.head_dim))
        return KeysValues(self.write_rows(cache.key, indices, key), self.write_rows(cache.value, indices, value))

    def read_cache(self, cache: KeysValues, shape: tuple[Any, ...]) -> KeysValues:
        """The cache as keys and values for `step`; `shape` is (B, H, T x R, K)."""
        return KeysValues(ops.reshape(cache.key, shape), ops.reshape(cache.value, shape))

    def step(self, query: Tensor, keys_values: KeysValues, attention_mask: Tensor | None, order: RowOrder) -> Tensor:
        """Attends from one position of every row: what `call` gives there, without the other positions.

        Args:
            query: (N, D) floats, the rows of a sentence one below the other.
            keys_values: (B, H, S, K) each, from `keys_values` or `read_cache`; one set serves all rows of a sentence.
            attention_mask: Booleans that broadcast to (B, H, R, S), True where a row may attend.
            order: From `row_order`.

        Returns:
            (N, D) floats.
        """
        query = self.query_projection(query)
        if order.rows == 1:  # Both orders are the same.
            query = ops.reshape(query, (-1, self.num_heads, 1, self.head_dim))  # (B, H, 1, K)
            heads = self.attend_row(query, keys_values.key, keys_values.value, attention_mask)
        else:
            query = ops.take(ops.reshape(query, (-1, self.head_dim)), order.by_head, axis=0)  # (B x H x R, K)
            query = ops.reshape(query, (-1, self.num_heads, order.rows, self.head_dim))  # (B, H, R, K)
            heads = scaled_dot_product_attention(query, keys_values.key, keys_values.value, attention_mask)
            heads = ops.take(ops.reshape(heads, (-1, self.head_dim)), order.by_row, axis=0)  # (N x H, K)
        return self.output_projection(ops.reshape(heads, (-1, self.d_model)))  # (N, D)

    def attention_scores(
        self, query: Tensor, key: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """The attention weights of each head, arguments as in `call`.

        Returns:
            (B, H, T, S) floats; rows sum to 1, or are zero where nothing may be attended to.
        """
        keys = self._split_heads(self.key_projection(query if key is None else key))
        return attention_weights(self._split_heads(self.query_projection(query)), keys, attention_mask)

    def _split_heads(self, tensor: Tensor) -> Tensor:
        batch_size, length = ops.shape(tensor)[:2]
        heads = ops.reshape(tensor, (batch_size, length, self.num_heads, self.head_dim))  # (B, T, H, K)
        return ops.swapaxes(heads, 1, 2)  # (B, H, T, K)

    def _merge_heads(self, heads: Tensor) -> Tensor:
        heads = ops.swapaxes(heads, 1, 2)  # (B, T, H, K)
        batch_size, length = ops.shape(heads)[:2]
        return ops.reshape(heads, (batch_size, length, self.d_model))  # (B, T, D)

    def compute_output_shape(
        self, query_shape: tuple, key_shape: tuple | None = None, value_shape: tuple | None = None
    ) -> tuple:
        return (*query_shape[:-1], self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
            "use_bias": self.use_bias,
        }
