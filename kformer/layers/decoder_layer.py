"""A layer of the decoder (section 3.1): causal self-attention, cross-attention and a feed-forward network.

A whole sequence goes through `call`, some of its positions through `step`; both run the same sublayers.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), k positions of a step, M = B x R x k,
H heads, T target length, S source length, D model size.
"""

from collections.abc import Callable
from typing import Any

import keras

from kformer.layers.cache import Cache, attend_step, self_attention_step
from kformer.layers.masks import explicit_or_implicit
from kformer.layers.tensors import Rotation, ScoreBias, Tensor
from kformer.layers.transformer_layer import TransformerLayer, recording


@keras.saving.register_keras_serializable(package="kformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention and the feed-forward network, each in a residual connection.

    Arguments: see `TransformerLayer`.

    Examples:
        >>> layer = DecoderLayer(d_model=8, num_heads=2, d_ff=16)
        >>> layer.build((1, 3, 8))
        >>> outputs, weights = layer.call_with_scores(np.zeros((1, 3, 8)), encoder_output=np.zeros((1, 5, 8)))
        >>> tuple(outputs.shape), [tuple(of_attention.shape) for of_attention in weights]
        ((1, 3, 8), [(1, 2, 3, 3), (1, 2, 3, 5)])
    """

    def _make_sublayers(self) -> None:
        super()._make_sublayers()
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_residual = self._residual("cross_attention_residual")

    def build(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> None:
        super().build(inputs_shape)
        self.cross_attention.build(inputs_shape, encoder_output_shape)
        self.cross_attention_residual.build(inputs_shape)

    def _sublayers(
        self,
        inputs: Tensor,
        self_attend: Callable[[Tensor], Tensor],
        cross_attend: Callable[[Tensor], Tensor],
        training: bool | None,
    ) -> Tensor:
        """The layer of Figure 1. `call`, `step` and `call_with_scores` pass functions that compute its attentions."""
        outputs = self.self_attention_residual(inputs, sublayer=self_attend, training=training)
        outputs = self.cross_attention_residual(outputs, sublayer=cross_attend, training=training)
        return self.feed_forward_residual(outputs, sublayer=self.feed_forward, training=training)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
        inputs_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Decodes all positions at once.

        Args:
            inputs: (B, T, D) floats.
            encoder_output: (B, S, D) floats.
            attention_mask: Which positions each position may attend to, in the forms that `MultiHeadAttention.call`
                takes. When left out, it is causal: each position sees itself and those before it.
            cross_mask: Which source positions each position may attend to, such as `padding_mask` of the source.
            score_bias, rotation: How positions act on the self-attention, as in `MultiHeadAttention.call`.
            inputs_mask, encoder_output_mask: Implicit Keras masks, (B, T) and (B, S) booleans. Each is used if its
                explicit mask is not given.
            return_attention_scores: Whether the weights of the cross-attention are returned, too.
            training: Whether dropout is applied.

        Returns:
            (B, T, D) floats; with `return_attention_scores` a pair of them and the weights (B, H, T, S) after the
            softmax, without dropout.
        """
        is_causal = attention_mask is None
        attention_mask = explicit_or_implicit(attention_mask, inputs_mask)
        cross_mask = explicit_or_implicit(cross_mask, encoder_output_mask)
        scores: list[Tensor] = []
        cross = {"key": encoder_output, "attention_mask": cross_mask, "training": training}
        record = recording(self.cross_attention, scores, **cross)
        outputs = self._sublayers(
            inputs,
            lambda x: self.self_attention(
                x,
                attention_mask=attention_mask,
                use_causal_mask=is_causal,
                score_bias=score_bias,
                rotation=rotation,
                training=training,
            ),
            record if return_attention_scores else lambda x: self.cross_attention(x, **cross),
            training,
        )
        return (outputs, *scores) if return_attention_scores else outputs

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
        inputs_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """The forms of what `call` returns; of its options, only `return_attention_scores` changes them."""
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        return outputs, self.cross_attention.scores_spec(inputs.shape, encoder_output.shape)

    def step(
        self,
        inputs: Tensor,
        cache: Cache,
        place: Tensor,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
        *,
        memory: Cache,
        cross_mask: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Decodes the positions of a step. The result is that of `call` at these positions.

        Args:
            inputs: (M, D) floats, all vectors of the step, sentence by sentence and row by row.
            cache: The self-attention's cache after the previous positions, in the order of this step.
            place: Where the cache stores these positions, from `Cache.place`.
            attention_mask, score_bias: As in `Cache.attend`.
            rotation: As in `self_attention_step`.
            memory: Keys and values of the encoder output, from `Cache.of_source`.
            cross_mask: As in `call`.

        Returns:
            The output (M, D) and the new cache.
        """

        def self_attend(x: Tensor) -> Tensor:
            nonlocal cache
            attended, cache = self_attention_step(
                self.self_attention, x, cache, place, attention_mask, score_bias, rotation
            )
            return attended

        def cross_attend(x: Tensor) -> Tensor:
            return attend_step(self.cross_attention, x, memory, cross_mask)

        outputs = self._sublayers(inputs, self_attend, cross_attend, training=False)
        return outputs, cache

    def call_with_scores(
        self,
        inputs: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        cross_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The output of `call` without dropout, and the weights of both attentions; arguments as in `call`.

        Returns:
            (B, T, D) floats, and a list of the weights after the softmax: (B, H, T, T) of the self-attention and
            (B, H, T, S) of the cross-attention.
        """
        scores: list[Tensor] = []
        self_attend = recording(
            self.self_attention,
            scores,
            attention_mask=attention_mask,
            use_causal_mask=attention_mask is None,
            score_bias=score_bias,
            rotation=rotation,
        )
        cross_attend = recording(self.cross_attention, scores, key=encoder_output, attention_mask=cross_mask)
        return self._sublayers(inputs, self_attend, cross_attend, training=False), scores
