"""Multi-head attention (section 3.2.2).

Shape letters: B batch, T queries, S keys, H heads, G heads of keys and values (the paper has G = H), K size of a head
(the paper's d_k = d_v), D model size (H x K, unless the size of a head is chosen).
"""

import dataclasses
import functools
from typing import Any

import keras
from keras import ops

from kformer.layers.dense import Dense, project_together
from kformer.layers.dropout import Dropout
from kformer.layers.masks import causal_mask, explicit_or_implicit, over_heads
from kformer.layers.relative_attention import Distances, RelativeVectors, own_bias
from kformer.layers.scaled_dot_product import attention_weights, scaled_dot_product_attention, weighted_values
from kformer.layers.tensors import KeysValues, Rotation, ScoreBias, Tensor
from kformer.layers.windowed_attention import Band


@keras.saving.register_keras_serializable(package="kformer")
class MultiHeadAttention(keras.layers.Layer):
    """MultiHead(Q, K, V) of section 3.2.2, with d_k = d_v.

    `call` computes self-attention (without `key`), cross-attention (with `key`) and causal attention (with
    `use_causal_mask`). Without an `attention_mask`, the implicit Keras mask of the keys hides their padding. For
    example, `keras.layers.Embedding` with `mask_zero=True` makes such a mask.

    Args:
        d_model: D, size of inputs and outputs.
        num_heads: H; must divide `d_model`, unless `head_dim` is given.
        dropout_rate: Share of attention weights dropped in training; the paper drops none.
        use_bias: Whether the four projections have a bias.
        num_key_value_heads: G, heads of keys and values, each for H / G heads of queries; None: H. With 1 it is
            multi-query attention (Shazeer 2019), between 1 and H grouped-query attention (Ainslie et al. 2023, section
            2.2).
        head_dim: K; None: D / H, as in the paper. T5 and Gemma have models with other sizes.
        max_relative_distance: Self-attention adds vectors of its own to keys and values, see `RelativeVectors`. The
            `score_bias` are then `Distances`, as from `RelativeDistances`. None: it has no such vectors.

    Raises:
        ValueError: `d_model` is not divisible by `num_heads` and there is no `head_dim`; or `num_heads` is not
            divisible by `num_key_value_heads`.

    Examples:
        >>> attention = MultiHeadAttention(d_model=8, num_heads=2)
        >>> target, source = np.zeros((1, 3, 8)), np.zeros((1, 5, 8))
        >>> tuple(attention(target, source).shape), tuple(attention.attention_scores(target, source).shape)
        ((1, 3, 8), (1, 2, 3, 5))
        >>> tuple(MultiHeadAttention(d_model=8, num_heads=4, num_key_value_heads=2).keys_values(source).key.shape)
        (1, 2, 5, 2)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        max_relative_distance: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if head_dim is None and d_model % num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads. Received: d_model={d_model}, num_heads={num_heads}. "
                f"Choose a d_model that is a multiple of {num_heads}, or another value of num_heads, or a head_dim."
            )
        self.key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        if num_heads % self.key_value_heads:
            raise ValueError(
                "num_heads must be divisible by num_key_value_heads. "
                f"Received: num_heads={num_heads}, num_key_value_heads={num_key_value_heads}. "
                f"Choose a divisor of {num_heads}: 1 for multi-query attention, None for as many as num_heads."
            )
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.use_bias = use_bias
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        wide, narrow = num_heads * self.head_dim, self.key_value_heads * self.head_dim
        (self.query_projection, self.key_projection, self.value_projection, self.output_projection) = (
            Dense(width, use_bias=use_bias, dtype=self.dtype_policy, name=name)
            for name, width in (("query", wide), ("key", narrow), ("value", narrow), ("output", d_model))
        )
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.max_relative_distance = max_relative_distance
        self.relative: RelativeVectors | None = None
        if max_relative_distance is not None:
            self.relative = RelativeVectors(
                self.head_dim, max_relative_distance, dtype=self.dtype_policy, name="relative"
            )

    def build(self, query_shape: tuple, key_shape: tuple | None = None, value_shape: tuple | None = None) -> None:
        key_shape = key_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(key_shape)
        self.value_projection.build(value_shape or key_shape)
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.head_dim))
        if self.relative is not None:
            self.relative.build(query_shape)
        self.built = True

    def call(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | Distances | None = None,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends from every position of `query`.

        Args:
            query: (B, T, D) floats.
            key: (B, S, D) floats; when left out `value`, or without that `query`.
            value: (B, S, D) floats; `key` when left out. It is passed by name, because the second and third tensors of
                `keras.layers.MultiHeadAttention` are the value and the key.
            attention_mask: Booleans, True where a query may attend, of the shape (B, T, S) or (T, S), or such that
                broadcast to (B, H, T, S); or a `Band`, with which the scores outside a window are not computed.
            score_bias: Floats that broadcast to (B, H, T, S), added to the scores before the softmax; or a function
                that computes them from the queries (B, H, T, K); or, with `max_relative_distance`, `Distances`.
            rotation: Applied to the heads of queries and keys, for rotary positions.
            mask, query_mask, key_mask, value_mask: Implicit Keras masks of `query`, (B, T), or of `key` and `value`,
                (B, S). Keras fills them in.
            use_causal_mask: Whether query t sees the keys 0 to t alone, of those that the other masks allow.
            return_attention_scores: Whether the weights after the softmax, without dropout, are returned, too.
            training: Whether dropout is applied.

        Returns:
            (B, T, D) floats; with `return_attention_scores` a pair of them and the weights (B, H, T, S).

        Raises:
            ValueError: `attention_mask` holds floats or has another shape; or there are `Distances`, and no vectors.
        """
        score_bias = own_bias(score_bias, self.relative)
        if key is None and value is None:
            # Keras fills `mask` if `query` is the only tensor, otherwise the others.
            key_mask = query_mask if mask is None else mask
        elif key_mask is None:
            key_mask = value_mask
        key = value if key is None else key
        attention_mask = explicit_or_implicit(attention_mask, key_mask)
        if use_causal_mask:
            attention_mask = _causal(attention_mask, query, query if key is None else key)
        projected = self._queries_keys_values(query, key, value, rotation)
        outputs = self._output(projected, attention_mask, score_bias, training)
        if not return_attention_scores:
            return outputs
        if isinstance(attention_mask, Band):
            attention_mask = attention_mask.whole(ops.shape(query)[1])
        return outputs, attention_weights(*projected[:2], attention_mask, score_bias)

    def _output(
        self,
        projected: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | Band | None,
        bias: ScoreBias | None,
        training: bool | None,
    ) -> Tensor:
        """(B, T, D) floats; `projected` is from `_queries_keys_values`."""
        attend = functools.partial(self._attend, training=training)
        heads = mask.attend(attend, *projected, bias) if isinstance(mask, Band) else attend(*projected, mask, bias)
        return self.output_projection(self._merge_heads(heads))

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: ScoreBias | None,
        training: bool | None,
    ) -> Tensor:
        """`scaled_dot_product_attention`, with dropout of the weights in training."""
        if training and self.dropout_rate:  # No fused kernel drops attention weights.
            weights = self.dropout(attention_weights(query, key, mask, bias), training=training)
            return weighted_values(weights, value, bias)
        return scaled_dot_product_attention(query, key, value, mask, bias)

    def project(self, inputs: Tensor) -> list[Tensor]:
        """Queries (..., H x K), keys and values (..., G x K) of self-attention, not yet split into heads."""
        return project_together([self.query_projection, self.key_projection, self.value_projection], inputs)

    def keys_values(self, key: Tensor, value: Tensor | None = None, rotation: Rotation | None = None) -> KeysValues:
        """Projects keys and values, (B, S, D) each to (B, G, S, K); arguments as in `call`."""
        if value is None:
            keys, values = project_together([self.key_projection, self.value_projection], key)
        else:
            keys, values = self.key_projection(key), self.value_projection(value)
        return KeysValues(self._split_heads(keys, rotation), self._split_heads(values))

    def attention_scores(
        self,
        query: Tensor,
        key: Tensor | None = None,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """The weights (B, H, T, S) of each head after the softmax, without dropout; arguments as in `call`."""
        options = {"attention_mask": attention_mask, "score_bias": score_bias, "rotation": rotation}
        return self(query, key, **options, return_attention_scores=True, training=False)[1]

    def _queries_keys_values(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, T, K), (B, G, S, K) and (B, G, S, K); for self-attention, all three are projected together."""
        if key is None and value is None:
            queries, keys, values = (self._split_heads(one) for one in self.project(query))
            queries, keys = (one if rotation is None else rotation(one) for one in (queries, keys))
            return queries, keys, values
        queries = self._split_heads(self.query_projection(query), rotation)
        return queries, *self.keys_values(query if key is None else key, value, rotation)

    def _split_heads(self, tensor: Tensor, rotation: Rotation | None = None) -> Tensor:
        batch_size, length, width = ops.shape(tensor)
        heads = ops.reshape(tensor, (batch_size, length, width // self.head_dim, self.head_dim))  # (B, T, H or G, K)
        heads = ops.swapaxes(heads, 1, 2)  # (B, H or G, T, K)
        return heads if rotation is None else rotation(heads)

    def _merge_heads(self, heads: Tensor) -> Tensor:
        heads = ops.swapaxes(heads, 1, 2)  # (B, T, H, K)
        batch_size, length = ops.shape(heads)[:2]
        return ops.reshape(heads, (batch_size, length, self.num_heads * self.head_dim))  # (B, T, H x K)

    def compute_output_shape(
        self, query_shape: tuple, key_shape: tuple | None = None, value_shape: tuple | None = None
    ) -> tuple:
        return (*query_shape[:-1], self.d_model)

    def compute_output_spec(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """The forms of what `call` returns; of its options, only `return_attention_scores` changes them."""
        outputs = keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype)
        if not return_attention_scores:
            return outputs
        keys = next(tensor for tensor in (key, value, query) if tensor is not None)
        return outputs, self.scores_spec(query.shape, keys.shape)

    def scores_spec(self, query_shape: tuple, keys_shape: tuple) -> keras.KerasTensor:
        """The form (B, H, T, S) of the weights for queries (B, T, ...) and keys (B, S, ...)."""
        return keras.KerasTensor((query_shape[0], self.num_heads, query_shape[1], keys_shape[1]), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
            "use_bias": self.use_bias,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_relative_distance": self.max_relative_distance,
        }


def _causal(mask: Tensor | Band | None, query: Tensor, key: Tensor) -> Tensor | Band:
    """The mask without the keys after each query; `query` and `key` are (B, T, D) and (B, S, D)."""
    if isinstance(mask, Band):
        return dataclasses.replace(mask, causal=True)
    causal = causal_mask(ops.shape(query)[1], ops.shape(key)[1])
    return causal if mask is None else causal & over_heads(mask, query.shape[1], key.shape[1])
