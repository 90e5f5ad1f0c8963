"""A kformer model as a specification of CTranslate2: the same weights under the names of its engine.

Shape letters: D model size, K size of a head, H heads, V vocabulary, T positions.
"""

from typing import Any

import keras
import numpy as np

from kformer.config import TransformerConfig
from kformer.layers.transformer_layer import TransformerLayer
from kformer.models.transformer import DECODER, ENCODER, LOGITS, SOURCE_EMBEDDING, TARGET_EMBEDDING, find_embedding

# The activation in CTranslate2, and whether a gate stands beside it.
_ACTIVATIONS = {
    "relu": ("RELU", False),
    "gelu": ("GELU", False),
    "gelu_tanh": ("GELUTanh", False),
    "silu": ("SWISH", False),
    "swiglu": ("SWISH", True),
    "geglu": ("GELU", True),
    "geglu_tanh": ("GELUTanh", True),
}
_ROWS = 2048  # positions that a table of sinusoids has


def check_variant(config: TransformerConfig) -> None:
    """Refuses a model with a part that CTranslate2's engine does not have.

    Raises:
        ValueError: There is one. The message names the field of the configuration.
    """
    refused = {
        "depth": config.depth != "stacked",
        "attention_window": config.attention_window is not None,
        "positional_encoding": config.positional_encoding == "alibi" and config.num_encoder_layers > 0,
    }
    for field, is_refused in refused.items():
        if is_refused:
            raise ValueError(
                f"CTranslate2 has no {field}={getattr(config, field)!r}"
                f"{' in encoders' if field == 'positional_encoding' else ''}, so this model cannot be exported to it. "
                "Export it as a SavedModel, or train one without."
            )


def translator_spec(model: keras.Model, config: TransformerConfig) -> Any:
    """The `TransformerSpec` of a translator, without vocabularies.

    Args:
        model: From `build_transformer(config)`, in float32.
        config: Its configuration, from `check_variant`.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    options = _options(config)
    encoder = TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **options)
    decoder = TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, alignment_heads=0, **options)
    source, target = (find_embedding(model, name) for name in (SOURCE_EMBEDDING, TARGET_EMBEDDING))
    _set_stack(encoder, model.get_layer(ENCODER), config)
    _set_embeddings(encoder.embeddings[0], encoder, source, config)
    _set_stack(decoder, model.get_layer(DECODER), config)
    _set_embeddings(decoder.embeddings, decoder, target, config)
    _set_projection(decoder.projection, target, model.get_layer(LOGITS))
    return TransformerSpec(encoder, decoder)


def language_model_spec(model: keras.Model, config: TransformerConfig) -> Any:
    """The `TransformerDecoderModelSpec` of a language model, without its vocabulary; arguments as above."""
    from ctranslate2.specs import TransformerDecoderModelSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec

    options = _options(config) | {"with_encoder_attention": False, "alibi": config.positional_encoding == "alibi"}
    decoder = TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, **options)
    target = find_embedding(model, TARGET_EMBEDDING)
    _set_stack(decoder, model.get_layer(DECODER), config)
    _set_embeddings(decoder.embeddings, decoder, target, config)
    _set_projection(decoder.projection, target, model.get_layer(LOGITS))
    return TransformerDecoderModelSpec(decoder)


def _options(config: TransformerConfig) -> dict[str, Any]:
    """The options that encoders and decoders have in common."""
    from ctranslate2.specs import common_spec

    activation, has_gate = _ACTIVATIONS[config.activation]
    is_rotary = config.positional_encoding == "rotary"
    return {
        "pre_norm": config.norm_first,
        "activation": common_spec.Activation[activation],
        "layernorm_embedding": config.normalize_embeddings,
        "relative_position": config.positional_encoding in ("relative", "relative_values"),
        "relative_attention_bias": config.positional_encoding == "relative_buckets",
        "ffn_glu": has_gate,
        "rms_norm": config.normalization == "rms_norm",
        "num_heads_kv": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "rotary_dim": 0 if is_rotary else None,  # 0: all features of a head
        "rotary_interleave": True,
        "rotary_base": config.max_wavelength,
    }


def _set_stack(spec: Any, stack: Any, config: TransformerConfig) -> None:
    """Everything of an encoder or decoder but its embeddings."""
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(layer_spec.self_attention, layer, "self_attention")
        if hasattr(layer, "cross_attention"):
            _set_attention(layer_spec.attention, layer, "cross_attention")
        _set_feed_forward(layer_spec.ffn, layer)
        _set_positions(layer_spec.self_attention, layer, stack.positions, config)
    if stack.final_norm is not None:
        _set_norm(spec.layer_norm, stack.final_norm)
    if stack.embedding_norm is not None:
        _set_norm(spec.layernorm_embedding, stack.embedding_norm)
    if hasattr(spec, "position_encodings") and hasattr(stack.positions, "add"):
        longest = config.longest_sequence or _ROWS
        spec.position_encodings.encodings = _array(stack.positions.table(longest))


def _set_embeddings(spec: Any, stack_spec: Any, embedding: Any, config: TransformerConfig) -> None:
    matrix = _array(embedding.embeddings)
    projection = getattr(embedding, "input_projection", None)
    spec.weight = matrix if projection is None else matrix @ _array(projection.kernel)
    stack_spec.scale_embeddings = config.scale_embeddings


def _set_projection(spec: Any, embedding: Any, logits: Any) -> None:
    """The projection to the vocabulary (V, D). A matrix that is also the embedding is stored once."""
    if not embedding.tie_weights:
        spec.weight = _array(embedding.reverse_embeddings).T.copy()
    elif (projection := getattr(embedding, "output_projection", None)) is not None:
        spec.weight = _array(embedding.embeddings) @ _array(projection.kernel).T
    else:
        spec.weight = _array(embedding.embeddings)
    if logits.use_bias:
        spec.bias = _array(logits.bias)


def _set_attention(spec: Any, layer: TransformerLayer, name: str) -> None:
    """One attention with its norm. CTranslate2 keeps projections of the same input in one matrix."""
    attention = getattr(layer, name)
    query, key, value, output = (
        getattr(attention, f"{part}_projection") for part in ("query", "key", "value", "output")
    )
    together = [[query, key, value]] if name == "self_attention" else [[query], [key, value]]
    for linear, parts in zip(spec.linear, [*together, [output]], strict=True):
        linear.weight = np.concatenate([_array(part.kernel).T for part in parts])
        if attention.use_bias:
            linear.bias = np.concatenate([_array(part.bias) for part in parts])
    _set_norm(spec.layer_norm, getattr(layer, f"{name}_residual").norm)


def _set_positions(spec: Any, layer: TransformerLayer, positions: Any, config: TransformerConfig) -> None:
    """What the positions add to the scores and values of a layer. All layers share it, but for "relative_values"."""
    if config.positional_encoding == "relative_values":
        relative: Any = layer.self_attention.relative
        spec.relative_position_keys, spec.relative_position_values = map(_array, (relative.keys, relative.values))
    if config.positional_encoding == "relative":
        spec.relative_position_keys = _array(positions.vectors)
        spec.relative_position_values = np.zeros_like(spec.relative_position_keys)
    if config.positional_encoding == "relative_buckets":
        spec.relative_attention_bias = _array(positions.biases)
        spec.relative_attention_max_distance = np.dtype("int32").type(positions.max_distance)


def _set_feed_forward(spec: Any, layer: TransformerLayer) -> None:
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    gate = getattr(layer.feed_forward, "gate", None)
    _set_linear(spec.linear_0, inner if gate is None else gate)  # the one with the activation
    if gate is not None:
        _set_linear(spec.linear_0_noact, inner)
    _set_linear(spec.linear_1, outer)
    _set_norm(spec.layer_norm, layer.feed_forward_residual.norm)


def _set_linear(spec: Any, dense: Any) -> None:
    spec.weight = _array(dense.kernel).T.copy()
    if dense.use_bias:
        spec.bias = _array(dense.bias)


def _set_norm(spec: Any, norm: Any) -> None:
    if hasattr(norm, "beta"):
        spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)
    else:
        spec.gamma = _array(norm.scale)


def _array(tensor: Any) -> np.ndarray:
    return np.array(keras.ops.convert_to_numpy(tensor), "float32")
