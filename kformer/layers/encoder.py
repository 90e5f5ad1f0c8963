"""The encoder of section 3.1: a stack of N encoder layers.

Shape letters: B batch, H heads, S source length, D model size.
"""

import keras
from keras import ops

from kformer.layers.depth import Ponder
from kformer.layers.masks import explicit_or_implicit
from kformer.layers.stack import Stack
from kformer.layers.tensors import Tensor


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
