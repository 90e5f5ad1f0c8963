"""The encoder of section 3.1: N layers of self-attention and a feed-forward network.

Shape letters: B batch, H heads, S source length, D model size.
"""

from typing import Any

import keras

from kformer.layers.attention import MultiHeadAttention
from kformer.layers.feed_forward import FeedForward
from kformer.layers.residual import ResidualConnection
from kformer.layers.stack import SizedLayer, Stack

Tensor = Any


@keras.saving.register_keras_serializable(package="kformer")
class EncoderLayer(SizedLayer):
    """Self-attention, then the feed-forward network, each in a residual connection.

    Arguments: see `SizedLayer`.
    """

    def _make_sublayers(self) -> None:
        dtype = self.dtype_policy
        residual = (self.dropout_rate, self.norm_first)
        self.self_attention = MultiHeadAttention(
            self.d_model, self.num_heads, self.attention_dropout_rate, dtype=dtype, name="self_attention"
        )
        self.feed_forward = FeedForward(self.d_model, self.d_ff, dtype=dtype, name="feed_forward")
        self.self_attention_residual = ResidualConnection(*residual, dtype=dtype, name="self_attention_residual")
        self.feed_forward_residual = ResidualConnection(*residual, dtype=dtype, name="feed_forward_residual")

    def build(self, inputs_shape: tuple) -> None:
        self.self_attention.build(inputs_shape)
        self.self_attention_residual.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual.build(inputs_shape)
        self.built = True

    def call(self, inputs: Tensor, attention_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Encodes once.

        Args:
            inputs: (B, S, D) floats.
            attention_mask: Booleans that broadcast to (B, H, S, S), as from `padding_mask`.
            training: Whether dropout is applied.

        Returns:
            (B, S, D) floats.
        """
        attended = self.self_attention_residual(
            inputs,
            sublayer=lambda x: self.self_attention(x, attention_mask=attention_mask, training=training),
            training=training,
        )
        return self.feed_forward_residual(attended, sublayer=self.feed_forward, training=training)


@keras.saving.register_keras_serializable(package="kformer")
class Encoder(Stack):
    """`num_layers` encoder layers over embedded tokens. Arguments: see `Stack`."""

    layer_class = EncoderLayer

    def call(self, inputs: Tensor, attention_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Encodes embedded tokens; shapes as in `EncoderLayer.call`."""
        outputs = self.dropout(inputs, training=training)
        for layer in self.layers:
            outputs = layer(outputs, attention_mask=attention_mask, training=training)
        return self.finish(outputs)
