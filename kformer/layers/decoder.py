"""The decoder of section 3.1: N layers of causal self-attention, cross-attention and a feed-forward network.

A whole sequence goes through `call`, one position through `step`; both run the same sublayers.

Shape letters: B batch (sentences), R rows a sentence (1, or the beams of a search), N = B x R, H heads,
K size of a head, T target length, S source length, D model size.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kformer.layers.attention import KeysValues, MultiHeadAttention
from kformer.layers.base import SizedLayer, Stack
from kformer.layers.feed_forward import FeedForward
from kformer.layers.masks import causal_mask, step_mask
from kformer.layers.residual import ResidualConnection

Tensor = Any


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

    def step(
        self,
        inputs: Tensor,
        cache: KeysValues,
        position: int | Tensor,
        memory: KeysValues,
        self_mask: Tensor,
        cross_mask: Tensor | None,
    ) -> tuple[Tensor, KeysValues]:
        """Decodes one position: what `call` gives there.

        Args:
            inputs: (N, 1, D) floats; row b x R + r belongs to sentence b.
            cache: Of the self-attention, from `MultiHeadAttention.init_cache` or the step before.
            position: Index of this step.
            memory: Keys and values of the encoder output, once a sentence: (B, H, S, K) each.
            self_mask: `step_mask(position, T)`.
            cross_mask: As in `call`.

        Returns:
            The output (N, 1, D) and the new cache.
        """
        new_cache = []

        def self_attend(x: Tensor) -> Tensor:
            output, written = self.self_attention.step(x, cache, position, self_mask)
            new_cache.append(written)
            return output

        def cross_attend(x: Tensor) -> Tensor:
            # The rows of a sentence stand side by side as its queries, so no beam copies the memory.
            by_sentence = ops.reshape(x, (ops.shape(memory.key)[0], -1, self.d_model))  # (B, R, D)
            return ops.reshape(self.cross_attention.attend(by_sentence, memory, cross_mask), ops.shape(x))

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

    def project_memory(self, encoder_output: Tensor) -> list[KeysValues]:
        """Keys and values of every layer's cross-attention: (B, S, D) to a pair of (B, H, S, K) a layer."""
        return [layer.cross_attention.keys_values(encoder_output) for layer in self.layers]

    def init_cache(self, num_rows: int | Tensor, max_length: int | Tensor) -> list[KeysValues]:
        """Empty caches of N rows for `step`, a pair of (N, H, max_length, K) a layer."""
        return [layer.self_attention.init_cache(num_rows, max_length) for layer in self.layers]

    def step(
        self,
        inputs: Tensor,
        cache: list[KeysValues],
        position: int | Tensor,
        memory: list[KeysValues],
        cross_mask: Tensor | None,
    ) -> tuple[Tensor, list[KeysValues]]:
        """Decodes one position through all layers; arguments as in `DecoderLayer.step`, a list entry a layer."""
        self_mask = step_mask(position, ops.shape(cache[0].key)[2])
        outputs = inputs
        new_cache = []
        for layer, layer_cache, layer_memory in zip(self.layers, cache, memory, strict=True):
            outputs, written = layer.step(outputs, layer_cache, position, layer_memory, self_mask, cross_mask)
            new_cache.append(written)
        return self.finish(outputs), new_cache

    def compute_output_shape(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> tuple:
        return tuple(inputs_shape)
