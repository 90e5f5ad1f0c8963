"""A Transformer as a `next_logits` closure, for the searches of `kformer.decoding`.

Shape letters: B sentences, R rows per sentence (the beam size of a search), N = B x R, S source length,
T target length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kformer.layers import Cache, ancestry_mask, row_order
from kformer.layers.tensors import Tensor
from kformer.models import transformer


def start_decoding(
    model: keras.Model,
    source: Tensor,
    max_length: int | Tensor,
    pad_id: int = 0,
    rows_per_source: int = 1,
    first_length: int | None = None,
    cache: type[Cache] = Cache,
) -> tuple[Callable[[Tensor, Any], tuple[Tensor, Any]], dict[str, Any]]:
    """Encodes the source once and returns what a search needs to decode it.

    Args:
        model: From `build_transformer`, or one with the same layer names.
        source: (B, S) int32 ids.
        max_length: T, number of steps the caches have room for.
        pad_id: Marks padding in `source`.
        rows_per_source: R, hypotheses per sentence; row b x R + r belongs to sentence b.
        first_length: Steps that the caches have room for at first; they double when they are full. Needs a backend
            whose shapes may change in a loop: TensorFlow without XLA. None: room for all steps from the start.
        cache: How keys and values are kept. An export has a class of its own.

    Returns:
        `next_logits(tokens, state) -> (logits, state)` and the first state. `tokens` are the (N,) int32
        ids of one position, at first the start ids; `logits` are (N, V) float32 for the next position. A search that
        reorders the rows of a sentence must reorder the state by `reorder_rows`.
    """
    target_embedding = transformer.find_embedding(model, transformer.TARGET_EMBEDDING)
    decoder = model.get_layer(transformer.DECODER)
    encoder_output, source_mask = transformer.encode_source(model, source, pad_id)
    batch_size = ops.shape(source)[0]
    order = row_order(batch_size, decoder.layers[0].num_heads, rows_per_source)
    memory = [cache.of_source(pair, order) for pair in decoder.project_memory(encoder_output)]
    table = decoder.positions.table(max_length)
    own_row = ops.arange(batch_size * rows_per_source, dtype="int32") % rows_per_source  # (N,)
    first_room = max_length if first_length is None else ops.minimum(first_length, max_length)
    empty = decoder.empty_caches(cache, first_room, order)

    def next_logits(tokens: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        position = state["position"]
        here = ops.equal(ops.arange(ops.shape(state["ancestors"])[1], dtype="int32"), position)  # (T,)
        ancestors = ops.where(here, ops.expand_dims(own_row, -1), state["ancestors"])  # (N, T)
        # A loop makes a tensor of every part of the state, but the room of caches that do not grow is known beforehand.
        room = max_length if first_length is None else state["room"]
        pairs = zip(empty, state["cache"], strict=True)
        caches = [one.with_content(tensors, room) for one, tensors in pairs]
        ancestors_in_room = ancestors
        if first_length is not None:
            caches, room = _with_room(caches, room, position, max_length)
            ancestors_in_room = ancestors[:, :room]
        self_mask = ancestry_mask(ancestors_in_room, rows_per_source)  # (B, 1, R, room x R)
        embedded = target_embedding(tokens)  # (N, D)
        output, caches = decoder.step(embedded, caches, position, self_mask, table, memory, source_mask)
        logits = ops.cast(target_embedding(output, reverse=True), "float32")  # (N, V)
        tensors = [one.tensors for one in caches]
        return logits, {"cache": tensors, "room": room, "ancestors": ancestors, "position": position + 1}

    return next_logits, {
        "cache": [one.tensors for one in empty],
        "room": first_room,
        "ancestors": ops.full((batch_size * rows_per_source, max_length), -1, dtype="int32"),
        "position": ops.convert_to_tensor(0, "int32"),
    }


def _with_room(
    caches: list[Cache], room: Tensor, position: Tensor, max_length: int | Tensor
) -> tuple[list[Cache], Tensor]:
    """The caches and their room: doubled, up to `max_length`, if they have no room for this position."""
    new_room = ops.where(position >= room, ops.minimum(2 * room, max_length), room)
    tensors = ops.cond(
        position >= room,
        lambda: [one.grow(new_room).tensors for one in caches],
        lambda: [one.tensors for one in caches],
    )
    return [one.with_content(pair, new_room) for one, pair in zip(caches, tensors, strict=True)], new_room


def reorder_rows(state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The state in which row i continues the former row `rows[i]` of the same sentence; `rows` is (N,) int32.

    The caches are not copied. Only `ancestors` is reordered, the record of which row wrote each position: copying the
    caches would cost more memory traffic than the rest of a beam search's step.
    """
    return {**state, "ancestors": ops.take(state["ancestors"], rows, axis=0)}
