"""A Transformer as a `next_logits` closure, for the searches of `kformer.decoding`.

Shape letters: B sentences, R rows a sentence (the beams of a search), N = B x R, S source length,
T target length, D model size, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kformer.layers import ancestry_mask, row_order
from kformer.models import transformer

Tensor = Any
NextLogits = Callable[[Tensor, Any], tuple[Tensor, Any]]


def start_decoding(
    model: keras.Model,
    source: Tensor,
    max_length: int | Tensor,
    pad_id: int = 0,
    rows_per_source: int = 1,
    first_length: int | None = None,
) -> tuple[NextLogits, dict[str, Any]]:
    """Encodes the source once and gives what a search needs to go on from there.

    Args:
        model: From `build_transformer`, or one with the same layer names.
        source: (B, S) int32 ids.
        max_length: T, number of steps the caches have room for.
        pad_id: Marks padding in `source`.
        rows_per_source: R, hypotheses a sentence; row b x R + r belongs to sentence b.
        first_length: Steps that the caches have room for at first; they grow twofold when they are full. Needs a
            backend whose shapes may change in a loop: TensorFlow without XLA. None: room for all from the start.

    Returns:
        `next_logits(tokens, state) -> (logits, state)` and the first state. `tokens` are the (N,) int32
        ids of one position, start ids first; `logits` are (N, V) float32 for the position after. A search that
        reorders the rows of a sentence does so in the state by `reorder_rows`.
    """
    target_embedding = transformer.embedding(model, transformer.TARGET_EMBEDDING)
    decoder = model.get_layer(transformer.DECODER)
    encoder_output, source_mask = transformer.encode_source(model, source, pad_id)
    memory = decoder.project_memory(encoder_output)
    encodings = model.get_layer(transformer.TARGET_POSITIONS).encodings(max_length)  # (T, D)
    batch_size = ops.shape(source)[0]
    order = row_order(batch_size, decoder.num_heads, rows_per_source)
    own_row = ops.arange(batch_size * rows_per_source, dtype="int32") % rows_per_source  # (N,)

    def next_logits(tokens: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        position = state["position"]
        here = ops.equal(ops.arange(ops.shape(state["ancestors"])[1], dtype="int32"), position)  # (T,)
        ancestors = ops.where(here, ops.expand_dims(own_row, -1), state["ancestors"])  # (N, T)
        cache, room = state["cache"], state["room"]
        ancestors_in_room = ancestors
        if first_length is not None:
            cache, room = _with_room(cache, room, position, max_length, batch_size * decoder.num_heads)
            ancestors_in_room = ancestors[:, :room]
        self_mask = ancestry_mask(ancestors_in_room, rows_per_source)  # (B, 1, R, room x R)
        embedded = target_embedding(tokens)  # (N, D)
        embedded = embedded + ops.cast(ops.take(encodings, position, axis=0), embedded.dtype)
        output, cache = decoder.step(embedded, cache, position, memory, self_mask, source_mask, order)
        logits = ops.cast(target_embedding(output, reverse=True), "float32")  # (N, V)
        return logits, {"cache": cache, "room": room, "ancestors": ancestors, "position": position + 1}

    first_room = max_length if first_length is None else ops.minimum(first_length, max_length)
    return next_logits, {
        "cache": decoder.init_cache(batch_size, first_room, rows_per_source),
        "room": first_room,
        "ancestors": ops.full((batch_size * rows_per_source, max_length), -1, dtype="int32"),
        "position": ops.convert_to_tensor(0, "int32"),
    }


def _with_room(
    cache: list[Any], room: Tensor, position: Tensor, max_length: Tensor, heads: Tensor
) -> tuple[list[Any], Tensor]:
    """The caches, twice as long (but no longer than needed) where they have no room for this position."""
    new_room = ops.where(position >= room, ops.minimum(2 * room, max_length), room)

    def grow(tensor: Tensor) -> Tensor:  # (B x H x T x R, K)
        by_head = ops.reshape(tensor, (heads, -1, tensor.shape[-1]))  # (B x H, T x R, K)
        more = ops.shape(by_head)[1] // room * (new_room - room)
        return ops.reshape(ops.pad(by_head, [[0, 0], [0, more], [0, 0]]), (-1, tensor.shape[-1]))

    def grown() -> list[Any]:
        return keras.tree.map_structure(grow, cache)

    return ops.cond(position >= room, grown, lambda: cache), new_room


def reorder_rows(state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The state in which row i goes on from what was row `rows[i]`, of the same sentence; `rows` is (N,) int32.

    The caches stay where they are. Only the record of which row wrote which position of a row's history moves:
    a copy of the caches would cost more memory traffic than all the rest of a beam search's step.
    """
    return {**state, "ancestors": ops.take(state["ancestors"], rows, axis=0)}
