"""What Marian, M2M100, BART and mBART have in common: fields of config.json, embeddings, and all other weights."""

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.activations import ACTIVATIONS
from kformer.importing.bart_family_layers import bart_layers
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.fields import Fields
from kformer.importing.imported import Source, norm, same, transposed

EPSILON = 1e-5  # of PyTorch's layer norm
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


def read_transformer(fields: Fields, checkpoint: Checkpoint, activation: str, is_scaled: bool) -> TransformerConfig:
    """The configuration of a BART-like model, but for its positions and norms.

    Args:
        fields: Of config.json.
        checkpoint: The tensors.
        activation: That of the family, where the file does not say.
        is_scaled: Whether embeddings are multiplied by sqrt(d_model), where the file does not say.

    Raises:
        ValueError: A field is missing, or asks for what kformer cannot represent.
    """
    vocab_size = fields.number("vocab_size")
    has_one_vocabulary = bool(fields.get("share_encoder_decoder_embeddings", True))
    end_id = fields.id("eos_token_id")
    return TransformerConfig(
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size if has_one_vocabulary else fields.get("decoder_vocab_size", vocab_size),
        num_encoder_layers=fields.layers("encoder_layers"),
        num_decoder_layers=fields.layers("decoder_layers"),
        d_model=fields.number("d_model"),
        d_ff=fields.same("encoder_ffn_dim", "decoder_ffn_dim"),
        num_heads=fields.same("encoder_attention_heads", "decoder_attention_heads"),
        dropout_rate=float(fields.get("dropout", 0.1)),
        attention_dropout_rate=float(fields.get("attention_dropout", 0.0)),
        activation=fields.choice("activation_function", ACTIVATIONS, activation),
        layer_norm_epsilon=EPSILON,
        embedding_tying=_Ties(fields, checkpoint).tying,
        scale_embeddings=bool(fields.get("scale_embedding", is_scaled)),
        softmax_bias=BIAS in checkpoint and bool(np.any(checkpoint.read(BIAS))),
        pad_id=fields.id("pad_token_id"),
        start_id=fields.id("decoder_start_token_id", end_id),
        end_id=end_id,
    )


def find_weights(fields: Fields, checkpoint: Checkpoint, transformer: TransformerConfig) -> dict[str, Source]:
    """Where each weight of a BART-like model comes from."""
    return {**_Ties(fields, checkpoint).weights, **_all_but_embeddings(transformer)}


def places_of_weights(transformer: TransformerConfig) -> dict[str, Source]:
    """Where each weight of a BART-like model lies in the files that transformers writes, with every tie named once."""
    tying = transformer.embedding_tying
    source = _SHARED if tying == "all" else _SOURCE
    return {**_embeddings(tying, source, _TARGET, _SOFTMAX), **_all_but_embeddings(transformer)}


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
        weights |= bart_layers(side, number)
        if transformer.positional_encoding == "learned":
            name = f"model.{side}.embed_positions.weight"
            weights[f"{side}/positions/embeddings"] = Source((name,), _without_first_rows)
        if transformer.normalize_embeddings:
            weights |= norm(f"{side}/embedding_norm", f"model.{side}.layernorm_embedding")
        if transformer.norm_first:
            weights |= norm(f"{side}/final_norm", f"model.{side}.layer_norm")
    return weights


def _without_first_rows(table: np.ndarray) -> np.ndarray:
    return table[_ROWS_BEFORE:]


class _Ties:
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
