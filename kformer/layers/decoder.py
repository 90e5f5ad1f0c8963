"""The decoder of section 3.1: N layers of causal self-attention, cross-attention and a feed-forward network.

A whole sequence goes through `call`, one position through `step`; both run the same sublayers.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), N = B x R, H heads,
G heads of keys and values, K size of a head, T target length, S source length, D model size.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kformer.layers.cache import Cache, RowOrder
from kformer.layers.decoder_layer import DecoderLayer
from kformer.layers.depth import Ponder
from kformer.layers.masks import explicit_or_implicit
from kformer.layers.stack import Stack
from kformer.layers.tensors import KeysValues, Tensor


@keras.saving.register_keras_serializable(package="kformer")
class Decoder(Stack):
    """Decoder layers over embedded tokens: `Decoder([DecoderLayer(512, 8, 2048) for _ in range(6)])`.

    With `EncoderLayer`s it is a decoder-only model: leave out `encoder_output` in `call`, and `memory` in `step`.
    Arguments: see `Stack`.

    Examples:
        The output at the first two positions does not depend on the third:

        >>> decoder = Decoder([DecoderLayer(d_model=8, num_heads=2, d_ff=16)], PositionalEncoding(d_model=8))
        >>> source, target = np.zeros((1, 5, 8)), np.linspace(0, 1, 24).reshape(1, 3, 8)
        >>> np.allclose(decoder(target, source)[:, :2], decoder(target[:, :2], source), atol=1e-5)
        True
    """

    causal = True

    def build(self, inputs_shape: tuple, encoder_output_shape: tuple | None = None) -> None:
        for layer in self.layers:
            if isinstance(layer, DecoderLayer) and not layer.built:
                layer.build(inputs_shape, encoder_output_shape)
        super().build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        cross_mask: Tensor | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        counted: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Decodes all positions at once; each sees itself and those before it. Arguments as in `DecoderLayer.call`.

        `mask` and `inputs_mask` are both the implicit Keras mask of `inputs`. Keras fills `mask` if `inputs` is the
        only tensor, as in a decoder-only model, otherwise `inputs_mask`. `counted`: as in `Encoder.call`.
        """
        visible = explicit_or_implicit(None, inputs_mask if mask is None else mask)
        source = self._source(encoder_output, explicit_or_implicit(cross_mask, encoder_output_mask))
        result = self._forward(inputs, source, visible, training)
        return self._with_cost(result, visible if counted is None else counted, training)

    def ponder(
        self, inputs: Tensor, encoder_output: Tensor | None = None, cross_mask: Tensor | None = None
    ) -> Ponder | None:
        """The steps of each position, without dropout; None if positions do not halt. Arguments as in `call`."""
        return self._forward(inputs, self._source(encoder_output, cross_mask), None, training=False)[1]

    def _forward(
        self, inputs: Tensor, source: dict[str, Any], visible: Tensor | None, training: bool | None
    ) -> tuple[Tensor, Ponder | None]:
        masks = {**source, "attention_mask": self.reach.mask(ops.shape(inputs)[1], visible)}
        outputs, add_positions, positions = self._apply_positions(inputs, training, self.reach)

        def apply(step: int, x: Tensor) -> Tensor:
            return self.layer_at(step)(x, **masks, **positions, training=training)

        return self._run(outputs, apply, add_positions)

    @staticmethod
    def _source(encoder_output: Tensor | None, cross_mask: Tensor | None) -> dict[str, Any]:
        """The arguments that only layers with cross-attention take."""
        return {} if encoder_output is None else {"encoder_output": encoder_output, "cross_mask": cross_mask}

    def call_with_scores(
        self, inputs: Tensor, encoder_output: Tensor | None = None, cross_mask: Tensor | None = None
    ) -> tuple[Tensor, list[list[Tensor]]]:
        """The output of `call` without dropout, and how much each target position attends to each position.

        Arguments as in `call`.

        Returns:
            (B, T, D) floats, and for every step of the depth a list of weights after the softmax: (B, H, T, T) of its
            self-attention, and (B, H, T, S) of its cross-attention if it has one.
        """
        reach = self.reach.whole()
        masks = {**self._source(encoder_output, cross_mask), "attention_mask": reach.mask(ops.shape(inputs)[1])}
        outputs, add_positions, positions = self._apply_positions(inputs, training=False, reach=reach)
        scores = []

        def apply(step: int, x: Tensor) -> Tensor:
            x, of_step = self.layer_at(step).call_with_scores(x, **masks, **positions)
            scores.append(of_step)
            return x

        return self._run(outputs, apply, add_positions)[0], scores

    def project_memory(self, encoder_output: Tensor) -> list[KeysValues]:
        """Keys and values (B, G, S, K) of every layer's cross-attention, for the encoder output (B, S, D)."""
        return [layer.cross_attention.keys_values(encoder_output) for layer in self.layers]

    def empty_caches(self, kind: type[Cache], room: int | Tensor, order: RowOrder) -> list[Cache]:
        """An empty cache of class `kind` for every step's self-attention, to decode `room` positions."""
        attentions = [self.layer_at(step).self_attention for step in range(self.depth.num_steps)]
        room = self.reach.room(room)
        return [kind.empty(room, attention.head_dim, attention.compute_dtype, order) for attention in attentions]

    def read(self, inputs: Tensor) -> tuple[Tensor, list[KeysValues]]:
        """Reads the first positions of texts at once, without dropout. Only for a decoder-only model.

        Args:
            inputs: (B, T, D) floats.

        Returns:
            (B, T, D) floats, those of `call`, and for every step of the depth keys and values (B, G, T, K).
        """
        mask = self.reach.mask(ops.shape(inputs)[1])
        outputs, add_positions, positions = self._apply_positions(inputs, training=False, reach=self.reach)
        kept = []

        def apply(step: int, x: Tensor) -> Tensor:
            x, of_step = self.layer_at(step).read(x, mask, **positions)
            kept.append(of_step)
            return x

        return self._run(outputs, apply, add_positions)[0], kept

    def step(
        self,
        inputs: Tensor,
        caches: Sequence[Cache],
        position: int | Tensor,
        attention_mask: Tensor | None = None,
        table: Tensor | None = None,
        memory: Sequence[Cache] = (),
        cross_mask: Tensor | None = None,
    ) -> tuple[Tensor, list[Cache]]:
        """Decodes one position of every row. The result is that of `call` at this position.

        Args:
            inputs: (N, D) floats, the embedded tokens at this position; row b x R + r belongs to sentence b.
            caches: The self-attention caches of all steps of the depth, from `empty_caches` or the previous position.
            position: Number of the position, from 0 up.
            attention_mask: From `ancestry_mask`: which keys of the caches each row sees.
            table: From `positions.table`, for at least as many positions as will be decoded. A search makes it once; by
                default it is made here, for as many positions as the caches have room for.
            memory: The layers' cross-attention caches, from `Cache.of_source`; empty for a decoder-only model.
            cross_mask: As in `call`.

        Returns:
            The output (N, D) and the new caches.
        """
        outputs, add_positions, positions = self._apply_positions_step(inputs, caches[0].room, position, table)
        place = caches[0].place(self.reach.slot(position))
        written = []

        def apply(step: int, x: Tensor) -> Tensor:
            number = self.depth.layer_number(step)
            source = {"memory": memory[number], "cross_mask": cross_mask} if memory else {}
            x, cache = self.layers[number].step(x, caches[step], place, attention_mask, **positions, **source)
            written.append(cache)
            return x

        return self._run(outputs, apply, add_positions)[0], written
