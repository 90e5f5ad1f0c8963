"""Where the weights of Marian, M2M100, BART and mBART lie in a file of Hugging Face, to read it and to write it."""

from collections.abc import Iterator

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported_model import Source, dense, norm, same, transposed

_SHARED, _SOURCE, _TARGET = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
_SOFTMAX, BIAS = "lm_head.weight", "final_logits_bias"
# Tables of sinusoids in older files, and the number of a version.
_COMPUTED = frozenset(
    f"model.{side}.{name}"
    for side in ("encoder", "decoder")
    for name in ("embed_positions.weight", "embed_positions.weights", "embed_positions._float_tensor", "version")
)
# Tensors that repeat others, may be all zero, or are computed.
UNUSED = _COMPUTED | {BIAS, _SHARED, _SOURCE, _TARGET, _SOFTMAX}
_ROWS_BEFORE = 2  # rows of a table of positions that stand before the first position, since fairseq counts from 2
_PARTS = {"encoder": ("self_attention",), "decoder": ("self_attention", "cross_attention")}
_NAMES = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def find_weights(fields: Fields, checkpoint: Checkpoint, transformer: TransformerConfig) -> dict[str, Source]:
    """Where each weight of a BART-like model comes from."""
    return {**Ties(fields, checkpoint).weights, **_all_but_embeddings(transformer)}


def places_of_weights(transformer: TransformerConfig) -> dict[str, Source]:
    """Where each weight of a BART-like model lies in the files that transformers writes, with every tie named once."""
    tying = transformer.embedding_tying
    source = _SHARED if tying == "all" else _SOURCE
    return {**_embeddings(tying, source, _TARGET, _SOFTMAX), **_all_but_embeddings(transformer)}


class Ties:
    """Which of a model's three matrices of embeddings are one. The tensors say so, not the configuration.

    Args:
        fields: Of config.json.
        checkpoint: The tensors.

    Attributes:
        tying: The value of `TransformerConfig.embedding_tying`.
        weights: Of the embeddings.
    """

    def __init__(self, fields: Fields, checkpoint: Checkpoint) -> None:
        source, target = (name if name in checkpoint else _SHARED for name in (_SOURCE, _TARGET))
        is_tied = bool(fields.get("tie_word_embeddings", True))
        softmax = target if is_tied and _SOFTMAX not in checkpoint else _SOFTMAX
        self.tying = "none"
        if _are_one(checkpoint, target, softmax):
            self.tying = "all" if _are_one(checkpoint, source, target) else "target"
        self.weights = _embeddings(self.tying, source, target, softmax)


def _are_one(checkpoint: Checkpoint, one: str, other: str) -> bool:
    return one == other or (one in checkpoint and other in checkpoint and checkpoint.are_equal(one, other))


def _embeddings(tying: str, source: str, target: str, softmax: str) -> dict[str, Source]:
    """The weights of the embeddings, of tensors with these names."""
    if tying == "all":
        return {"shared_embedding/embeddings": same(source)}
    weights = {"source_embedding/embeddings": same(source), "target_embedding/embeddings": same(target)}
    if tying == "none":
        weights["target_embedding/reverse_embeddings"] = transposed(softmax)
    return weights


def _all_but_embeddings(transformer: TransformerConfig) -> dict[str, Source]:
    weights = {}
    if transformer.softmax_bias:
        weights["logits/bias"] = Source((BIAS,), np.ravel, lambda bias: bias[np.newaxis])
    for side, number in (("encoder", transformer.num_encoder_layers), ("decoder", transformer.num_decoder_layers)):
        weights |= _layers(side, number)
        if transformer.positional_encoding == "learned":
            name = f"model.{side}.embed_positions.weight"
            weights[f"{side}/positions/embeddings"] = Source((name,), _without_first_rows)
        if transformer.normalize_embeddings:
            weights |= norm(f"{side}/embedding_norm", f"model.{side}.layernorm_embedding")
        if transformer.norm_first:
            weights |= norm(f"{side}/final_norm", f"model.{side}.layer_norm")
    return weights


def _layers(side: str, number: int) -> dict[str, Source]:
    """The weights of all layers of an encoder or decoder.

    Args:
        side: "encoder" or "decoder".
        number: Of its layers.
    """
    return {path: source for index in range(number) for path, source in _layer(side, index)}


def _layer(side: str, index: int) -> Iterator[tuple[str, Source]]:
    path, name = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
    for part in _PARTS[side]:
        for ours, theirs in _PROJECTIONS.items():
            yield from dense(f"{path}/{part}/{ours}", f"{name}.{_NAMES[part]}.{theirs}").items()
        yield from norm(f"{path}/{part}_residual/norm", f"{name}.{_NAMES[part]}_layer_norm").items()
    yield from dense(f"{path}/feed_forward/inner", f"{name}.fc1").items()
    yield from dense(f"{path}/feed_forward/outer", f"{name}.fc2").items()
    yield from norm(f"{path}/feed_forward_residual/norm", f"{name}.final_layer_norm").items()


def _without_first_rows(table: np.ndarray) -> np.ndarray:
    return table[_ROWS_BEFORE:]
