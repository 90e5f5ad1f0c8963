"""A Transformer as a `next_logits` closure, for the searches of `kformer.decoding`.

Shape letters: B sentences, R rows a sentence (the beams of a search), N = B x R, S source length,
V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kformer.layers import padding_mask
from kformer.models import transformer

Tensor = Any
NextLogits = Callable[[Tensor, Any], tuple[Tensor, Any]]


def start_decoding(
    model: keras.Model,
    source: Tensor,
    max_length: int | Tensor,
    pad_id: int = 0,
    rows_per_source: int = 1,
) -> tuple[NextLogits, Any]:
    """Encodes the source once and gives what a search needs to go on from there.

    Args:
        model: From `build_transformer`, or one with the same layer names.
        source: (B, S) int32 ids.
        max_length: Number of steps the caches have room for.
        pad_id: Marks padding in `source`.
        rows_per_source: R, hypotheses a sentence; row b x R + r belongs to sentence b.

    Returns:
        `next_logits(tokens, state) -> (logits, state)` and the first state. `tokens` are the (N,) int32
        ids of one position, start ids first; `logits` are (N, V) float32 for the position after. In
        `state` every leaf of rank above 0 has N rows that a search may reorder within a sentence.
    """
    layers = {layer.name: layer for layer in model.layers}
    shared = layers.get(transformer.SHARED_EMBEDDING)
    source_embedding = shared or layers[transformer.SOURCE_EMBEDDING]
    target_embedding = shared or layers[transformer.TARGET_EMBEDDING]
    target_positions = layers[transformer.TARGET_POSITIONS]
    decoder = layers[transformer.DECODER]

    source_mask = padding_mask(source, pad_id)  # (B, 1, 1, S)
    embedded = layers[transformer.SOURCE_POSITIONS](source_embedding(source))
    memory = decoder.project_memory(layers[transformer.ENCODER](embedded, attention_mask=source_mask, training=False))
    num_rows = ops.shape(source)[0] * rows_per_source

    def next_logits(tokens: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        position = state["position"]
        embedded = target_positions(target_embedding(ops.expand_dims(tokens, 1)), offset=position)  # (N, 1, D)
        output, cache = decoder.step(embedded, state["cache"], position, memory, source_mask)
        logits = ops.cast(target_embedding(output, reverse=True), "float32")  # (N, 1, V)
        return ops.squeeze(logits, 1), {"cache": cache, "position": position + 1}

    return next_logits, {
        "cache": decoder.init_cache(num_rows, max_length),
        "position": ops.convert_to_tensor(0, "int32"),
    }
