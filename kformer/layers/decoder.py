"""The decoder of section 3.1: N layers of causal self-attention, cross-attention and a feed-forward network.

A whole sequence goes through `call`, some of its positions through `step`; both run the same sublayers.

Shape letters: B batch (sentences), R rows per sentence (1, or the beam size), N = B x R, k positions of a step,
H heads, G heads of keys and values, K size of a head, T target length, S source length, D model size.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from kformer.layers.cache import Cache
from kformer.layers.decoder_layer import DecoderLayer
from kformer.layers.depth import Ponder
from kformer.layers.head_order import HeadOrder, query_positions
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
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Decodes all positions at once; each sees itself and those before it. Arguments as in `DecoderLayer.call`.

        `mask` and `inputs_mask` are both the implicit Keras mask of `inputs`. Keras fills `mask` if `inputs` is the
        only tensor, as in a decoder-only model, otherwise `inputs_mask`. `counted`: as in `Encoder.call`.

        With `return_attention_scores`, the result is a pair of the output (B, T, D) and the weights (B, H, T, S) of the
        cross-attention at the last step of the depth, which are those of the last layer.
        """
        visible = explicit_or_implicit(None, inputs_mask if mask is None else mask)
        source = self._source(encoder_output, explicit_or_implicit(cross_mask, encoder_output_mask))
        scores: list[Tensor] = []
        result = self._forward(inputs, source, visible, training, scores if return_attention_scores else None)
        outputs = self._with_cost(result, visible if counted is None else counted, training)
        return (outputs, *scores) if return_attention_scores else outputs

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        cross_mask: Tensor | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
        counted: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """The forms of what `call` returns; of its options, only `return_attention_scores` changes them."""
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        last = self.layers[-1]
        if not return_attention_scores or not isinstance(last, DecoderLayer) or encoder_output is None:
            return outputs
        return outputs, last.cross_attention.scores_spec(inputs.shape, encoder_output.shape)

    def ponder(
        self, inputs: Tensor, encoder_output: Tensor | None = None, cross_mask: Tensor | None = None
    ) -> Ponder | None:
        """The steps of each position, without dropout; None if positions do not halt. Arguments as in `call`."""
        return self._forward(inputs, self._source(encoder_output, cross_mask), None, training=False)[1]

    def _forward(
        self,
        inputs: Tensor,
        source: dict[str, Any],
        visible: Tensor | None,
        training: bool | None,
        scores: list[Tensor] | None = None,
    ) -> tuple[Tensor, Ponder | None]:
        """The result of `_run`; a list `scores` gets the weights of the last step's cross-attention."""
        masks = {**source, "attention_mask": self.reach.mask(ops.shape(inputs)[1], visible)}
        outputs, add_positions, positions = self._apply_positions(inputs, training, self.reach)

        def apply(step: int, x: Tensor) -> Tensor:
            if scores is None or step < self.depth.num_steps - 1:
                return self._apply_layer(step, x, training, **masks, **positions)
            x, weights = self._apply_layer(step, x, training, **masks, **positions, return_attention_scores=True)
            scores.append(weights)
            return x

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

    def empty_caches(
        self, kind: type[Cache], room: int | Tensor, order: HeadOrder, block: int | Tensor = 1
    ) -> list[Cache]:
        """An empty cache of class `kind` for every step's self-attention, to decode `room` positions.

        `block` is the largest number of positions that `step` will decode together.
        """
        attentions = [self.layer_at(step).self_attention for step in range(self.depth.num_steps)]
        room = self.reach.room(room, block)
        return [kind.empty(room, attention.head_dim, attention.compute_dtype, order) for attention in attentions]

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
        """Decodes one position of every row, or k. The result is that of `call` at these positions.

        A row may decode positions again, if it gives up some of its last k tokens. The caches are written over there.

        Args:
            inputs: (N, D) floats, the embedded tokens at one position; or (N, k, D), at k positions. Row b x R + r
                belongs to sentence b.
            caches: The self-attention caches of all steps of the depth, from `empty_caches` or the previous step.
            position: () int32, the number of the first position, from 0 up; or (N,) int32, its number for each row.
            attention_mask: Which keys of the caches each query sees: those of its row, and none of later positions.
                Booleans that broadcast to (B, 1, R x k, S), in `Cache.mask_form`.
            table: From `positions.table`, for at least as many positions as will be decoded. A search makes it once; by
                default it is made here, for as many positions as the caches have room for.
            memory: The layers' cross-attention caches, from `Cache.of_source`; empty for a decoder-only model.
            cross_mask: As in `call`, in `Cache.mask_form`.

        Returns:
            The output in the shape of `inputs`, and the new caches.
        """
        order, room = caches[0].order, caches[0].room
        block = order.of_length(ops.shape(inputs)[1]) if len(inputs.shape) == 3 else order
        at = query_positions(position, block.rows, block.length)
        vectors = inputs if block is order else ops.reshape(inputs, (-1, inputs.shape[-1]))
        outputs, add_positions, positions = self._apply_positions_step(vectors, room, at, table)
        place = caches[0].in_order(block).place(self.reach.slot(at, room))
        written = []

        def apply(step: int, x: Tensor) -> Tensor:
            number = self.depth.layer_number(step)
            source = {"memory": memory[number].in_order(block), "cross_mask": cross_mask} if memory else {}
            cache = caches[step].in_order(block)
            x, cache = self.layers[number].step(x, cache, place, attention_mask, **positions, **source)
            written.append(cache.in_order(order))
            return x

        outputs, _ = self._run(outputs, apply, add_positions)
        return outputs if block is order else ops.reshape(outputs, ops.shape(inputs)), written
