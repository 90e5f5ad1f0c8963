"""The decoder of section 3.1: N layers of causal self-attention, cross-attention and a feed-forward network.

A whole sequence goes through `call`, one position through `step`; both run the same sublayers.

Shape letters: B batch (sentences), R rows a sentence (1, or the beams of a search), N = B x R, H heads,
K size of a head, T target length, S source length, D model size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from kformer.layers.attention import KeysValues, MultiHeadAttention, RowOrder, cache_indices
from kformer.layers.feed_forward import FeedForward
from kformer.layers.masks import causal_mask
from kformer.layers.residual import ResidualConnection
from kformer.layers.stack import SizedLayer, Stack

Tensor = Any


class CachePlace(NamedTuple):
    """Where in the caches of all layers a position lies."""

    indices: Tensor  # (N x H,) int32, rows of the cache
    shape: tuple[Any, ...]  # (B, H, T x R, K), of the cache as keys
    order: RowOrder


@keras.saving.register_keras_serializable(package="kformer")
class DecoderLayer(SizedLayer):
    """Causal self-attention, cross-attention and the feed-forward network, each in a residual connection.

    Arguments: see `SizedLayer`.
    """

    def _make_sublayers(self) -> None:
        dtype = self.dtype_policy
        attention = (self.d_model, self.num_heads, self.attention_dropout_rate)
        residual = (self.dropout_rate, self.norm_first)
        self.self_attention = MultiHeadAttention(*attention, dtype=dtype, name="self_attention")
        self.cross_attention = MultiHeadAttention(*attention, dtype=dtype, name="cross_attention")
        self.feed_forward = FeedForward(self.d_model, self.d_ff, dtype=dtype, name="feed_forward")
        self.self_attention_residual = ResidualConnection(*residual, dtype=dtype, name="self_attention_residual")
        self.cross_attention_residual = ResidualConnection(*residual, dtype=dtype, name="cross_attention_residual")
        self.feed_forward_residual = ResidualConnection(*residual, dtype=dtype, name="feed_forward_residual")

    def build(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> None:
        self.self_attention.build(inputs_shape)
        self.self_attention_residual.build(inputs_shape)
        self.cross_attention.build(inputs_shape, encoder_output_shape)
        self.cross_attention_residual.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual.build(inputs_shape)
        self.built = True

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor,
        self_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Decodes all positions at once.

        Args:
            inputs: (B, T, D) floats.
            encoder_output: (B, S, D) floats.
            self_mask: Booleans that broadcast to (B, H, T, T), as from `causal_mask`.
            cross_mask: Booleans that broadcast to (B, H, T, S), as from `padding_mask` of the source.
            training: Whether dropout is applied.

        Returns:
            (B, T, D) floats.
        """
        return self._sublayers(
            inputs,
            lambda x: self.self_attention(x, attention_mask=self_mask, training=training),
            lambda x: self.cross_attention(x, key=encoder_output, attention_mask=cross_mask, training=training),
            training,
        )

    def call_with_scores(
        self, inputs: Tensor, encoder_output: Tensor, self_mask: Tensor | None, cross_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What `call` gives without dropout, and the attention weights of its cross-attention, (B, H, T, S)."""
        scores = []

        def cross_attend(x: Tensor) -> Tensor:
            scores.append(self.cross_attention.attention_scores(x, encoder_output, cross_mask))
            return self.cross_attention(x, key=encoder_output, attention_mask=cross_mask)

        def self_attend(x: Tensor) -> Tensor:
            return self.self_attention(x, attention_mask=self_mask)

        outputs = self._sublayers(inputs, self_attend, cross_attend, training=False)
        return outputs, scores[0]

    def step(
        self,
        inputs: Tensor,
        cache: KeysValues,
        place: CachePlace,
        memory: KeysValues,
        self_mask: Tensor,
        cross_mask: Tensor | None,
    ) -> tuple[Tensor, KeysValues]:
        """Decodes one position: what `call` gives there.

        Args:
            inputs: (N, D) floats; row b x R + r belongs to sentence b.
            cache: Of the self-attention, from `MultiHeadAttention.init_cache` or the step before.
            place: Where in the cache this position lies.
            memory: Keys and values of the encoder output, once a sentence: (B, H, S, K) each.
            self_mask: From `ancestry_mask`.
            cross_mask: As in `call`.

        Returns:
            The output (N, D) and the new cache.
        """
        attention = self.self_attention
        new_cache = []

        def self_attend(x: Tensor) -> Tensor:
            new_cache.append(attention.write_cache(x, cache, place.indices))
            return attention.step(x, attention.read_cache(new_cache[0], place.shape), self_mask, place.order)

        def cross_attend(x: Tensor) -> Tensor:
            return self.cross_attention.step(x, memory, cross_mask, place.order)

        output = self._sublayers(inputs, self_attend, cross_attend, training=False)
        return output, new_cache[0]

    def _sublayers(
        self,
        inputs: Tensor,
        self_attend: Callable[[Tensor], Tensor],
        cross_attend: Callable[[Tensor], Tensor],
        training: bool | None,
    ) -> Tensor:
        outputs = self.self_attention_residual(inputs, sublayer=self_attend, training=training)
        outputs = self.cross_attention_residual(outputs, sublayer=cross_attend, training=training)
        return self.feed_forward_residual(outputs, sublayer=self.feed_forward, training=training)

    def compute_output_shape(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> tuple:
        return tuple(inputs_shape)


@keras.saving.register_keras_serializable(package="kformer")
class Decoder(Stack):
    """`num_layers` decoder layers over embedded tokens. Arguments: see `Stack`."""

    layer_class = DecoderLayer

    def build(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> None:
        super().build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor,
        cross_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Decodes all positions at once, each seeing those before it; arguments as in `DecoderLayer.call`."""
        self_mask = causal_mask(ops.shape(inputs)[1])  # (1, 1, T, T)
        outputs = self.dropout(inputs, training=training)
        for layer in self.layers:
            outputs = layer(outputs, encoder_output, self_mask=self_mask, cross_mask=cross_mask, training=training)
        return self.finish(outputs)

    def cross_attention_scores(
        self, inputs: Tensor, encoder_output: Tensor, cross_mask: Tensor | None = None
    ) -> list[Tensor]:
        """Which source positions each target position looks at: attention weights (B, H, T, S) of every layer.

        Arguments as in `call`.
        """
        self_mask = causal_mask(ops.shape(inputs)[1])  # (1, 1, T, T)
        outputs, scores = inputs, []
        for layer in self.layers:
            outputs, of_layer = layer.call_with_scores(outputs, encoder_output, self_mask, cross_mask)
            scores.append(of_layer)
        return scores

    def project_memory(self, encoder_output: Tensor) -> list[KeysValues]:
        """Keys and values of every layer's cross-attention: (B, S, D) to a pair of (B, H, S, K) a layer."""
        return [layer.cross_attention.keys_values(encoder_output) for layer in self.layers]

    def init_cache(self, batch_size: int | Tensor, max_length: int | Tensor, rows: int = 1) -> list[KeysValues]:
        """Empty caches for `step`, a pair of (B x H x T x R, K) a layer."""
        return [layer.self_attention.init_cache(batch_size, max_length, rows) for layer in self.layers]

    def step(
        self,
        inputs: Tensor,
        cache: list[KeysValues],
        position: int | Tensor,
        memory: list[KeysValues],
        self_mask: Tensor,
        cross_mask: Tensor | None,
        order: RowOrder,
    ) -> tuple[Tensor, list[KeysValues]]:
        """Decodes position number `position`; `order` is from `row_order`, the rest as in `DecoderLayer.step`."""
        batch_size, num_heads, _, head_dim = ops.shape(memory[0].key)
        keys = ops.shape(self_mask)[3]
        place = CachePlace(
            cache_indices(order, position, keys // order.rows), (batch_size, num_heads, keys, head_dim), order
        )
        outputs = inputs
        new_cache = []
        for layer, layer_cache, layer_memory in zip(self.layers, cache, memory, strict=True):
            outputs, written = layer.step(outputs, layer_cache, place, layer_memory, self_mask, cross_mask)
            new_cache.append(written)
        return self.finish(outputs), new_cache

    def compute_output_shape(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> tuple:
        return tuple(inputs_shape)
