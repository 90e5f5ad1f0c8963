"""The encoder of section 3.1: N layers of self-attention and a feed-forward network.

Shape letters: B batch, H heads, G heads of keys and values, K size of a head, S source length, D model size.
"""

from collections.abc import Callable

import keras
from keras import ops

from kformer.layers.cache import Cache, self_attention_step
from kformer.layers.depth import Ponder
from kformer.layers.masks import explicit_or_implicit
from kformer.layers.stack import Stack
from kformer.layers.tensors import Rotation, ScoreBias, Tensor
from kformer.layers.transformer_layer import TransformerLayer, recording


@keras.saving.register_keras_serializable(package="kformer")
class EncoderLayer(TransformerLayer):
    """Self-attention, then the feed-forward network, each in a residual connection.

    With a causal mask it is the layer of a decoder-only model. Arguments: see `TransformerLayer`.

    Examples:
        If all inputs are equal, each query attends equally to all keys that the mask allows:

        >>> layer = EncoderLayer(d_model=8, num_heads=2, d_ff=16)
        >>> layer.build((1, 3, 8))
        >>> outputs, (weights,) = layer.call_with_scores(np.ones((1, 3, 8)), attention_mask=causal_mask(3))
        >>> print(np.round(weights[0, 0], 2))
        [[1.   0.   0.  ]
         [0.5  0.5  0.  ]
         [0.33 0.33 0.33]]
    """

    def _sublayers(self, inputs: Tensor, self_attend: Callable[[Tensor], Tensor], training: bool | None) -> Tensor:
        """The layer of Figure 1. `call`, `step` and `call_with_scores` pass a function that computes its attention."""
        outputs = self.self_attention_residual(inputs, sublayer=self_attend, training=training)
        return self.feed_forward_residual(outputs, sublayer=self.feed_forward, training=training)

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Applies the layer to all positions.

        Args:
            inputs: (B, S, D) floats.
            attention_mask: Which positions each position may attend to, in the forms that `MultiHeadAttention.call`
                takes, such as `padding_mask`, (B, 1, 1, S), or `causal_mask`, (1, 1, S, S).
            score_bias, rotation: How positions act on the attention, as in `MultiHeadAttention.call`.
            mask, inputs_mask: The implicit Keras mask of `inputs`, (B, S) booleans. It is used if no `attention_mask`
                is given. Keras fills in `mask` if `inputs` is the only tensor, otherwise `inputs_mask`.
            training: Whether dropout is applied.

        Returns:
            (B, S, D) floats.
        """
        attention_mask = explicit_or_implicit(attention_mask, inputs_mask if mask is None else mask)
        return self._sublayers(
            inputs,
            lambda x: self.self_attention(
                x, attention_mask=attention_mask, score_bias=score_bias, rotation=rotation, training=training
            ),
            training,
        )

    def step(
        self,
        inputs: Tensor,
        cache: Cache,
        place: Tensor,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, Cache]:
        """Decodes the positions of a step of a decoder-only model. The result is that of `call` with a causal mask.

        Arguments and results are those of `DecoderLayer.step`.
        """

        def self_attend(x: Tensor) -> Tensor:
            nonlocal cache
            attended, cache = self_attention_step(
                self.self_attention, x, cache, place, attention_mask, score_bias, rotation
            )
            return attended

        outputs = self._sublayers(inputs, self_attend, training=False)
        return outputs, cache

    def call_with_scores(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The output of `call` without dropout, and the weights of the self-attention; arguments as in `call`.

        Returns:
            (B, S, D) floats, and a list of (B, H, S, S) floats, the weights after the softmax.
        """
        scores: list[Tensor] = []
        self_attend = recording(
            self.self_attention, scores, attention_mask=attention_mask, score_bias=score_bias, rotation=rotation
        )
        return self._sublayers(inputs, self_attend, training=False), scores


@keras.saving.register_keras_serializable(package="kformer")
class Encoder(Stack):
    """Encoder layers over embedded tokens: `Encoder([EncoderLayer(512, 8, 2048) for _ in range(6)])`.

    Arguments: see `Stack`.

    Examples:
        >>> encoder = Encoder([EncoderLayer(d_model=8, num_heads=2, d_ff=16) for _ in range(2)], PositionalEncoding(8))
        >>> encoder.build((1, 5, 8))
        >>> outputs, weights = encoder.call_with_scores(np.zeros((1, 5, 8)))
        >>> tuple(outputs.shape), [tuple(of_layer.shape) for of_layer in weights]
        ((1, 5, 8), [(1, 2, 5, 5), (1, 2, 5, 5)])
    """

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        counted: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Encodes embedded tokens; arguments as in `EncoderLayer.call`.

        The output carries `mask` as its implicit Keras mask, but not an `attention_mask`. `counted`, (B, 1, 1, S)
        booleans, are the positions that count in the ponder cost of `AdaptiveDepth`.
        """
        mask = inputs_mask if mask is None else mask
        result = self._forward(inputs, explicit_or_implicit(attention_mask, mask), training)
        return self._with_cost(result, explicit_or_implicit(counted, mask), training)

    def ponder(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Ponder | None:
        """The steps of each position, without dropout; None if positions do not halt. Arguments as in `call`."""
        return self._forward(inputs, attention_mask, training=False)[1]

    def _forward(
        self, inputs: Tensor, attention_mask: Tensor | None, training: bool | None
    ) -> tuple[Tensor, Ponder | None]:
        mask = self.reach.mask(ops.shape(inputs)[1], attention_mask)
        outputs, add_positions, positions = self._apply_positions(inputs, training, self.reach)

        def apply(step: int, x: Tensor) -> Tensor:
            return self._apply_layer(step, x, training, **positions, attention_mask=mask)

        return self._run(outputs, apply, add_positions)

    def call_with_scores(self, inputs: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """The output of `call` without dropout, and how much each position attends to each position at every step.

        Arguments as in `call`.

        Returns:
            (B, S, D) floats, and for every step the weights (B, H, S, S) of its self-attention, after the softmax. The
            steps of a plain stack are its layers.
        """
        reach = self.reach.whole()
        attention_mask = reach.mask(ops.shape(inputs)[1], attention_mask)
        outputs, add_positions, positions = self._apply_positions(inputs, training=False, reach=reach)
        scores = []

        def apply(step: int, x: Tensor) -> Tensor:
            x, (of_step,) = self.layer_at(step).call_with_scores(x, attention_mask, **positions)
            scores.append(of_step)
            return x

        return self._run(outputs, apply, add_positions)[0], scores
