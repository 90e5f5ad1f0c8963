"""The Transformer of Figure 1 as a functional Keras model.

Shape letters: B batch, S source length, T target length, D model size, H heads, V vocabulary.
"""

import pkgutil
from typing import Any, NamedTuple

import keras
from keras import ops

from kformer.config import DEPTHS, POSITIONAL_ENCODINGS, TransformerConfig
from kformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Logits,
    PositionOptions,
    Positions,
    ProjectedTokenEmbedding,
    TokenEmbedding,
    padding_mask,
)
from kformer.layers.depth import Ponder
from kformer.layers.masks import key_mask
from kformer.layers.stack import Stack
from kformer.layers.tensors import Tensor
from kformer.layers.transformer_layer import TransformerLayer

# Names by which the step-by-step decoder finds the layers again, also in a model loaded from a file.
SOURCE_EMBEDDING = "source_embedding"
TARGET_EMBEDDING = "target_embedding"
SHARED_EMBEDDING = "shared_embedding"
ENCODER = "encoder"
DECODER = "decoder"
LOGITS = "logits"

# Fields of the configuration that every layer takes as keywords.
LAYER_OPTIONS = (
    "d_model",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "d_ff",
    "dropout_rate",
    "attention_dropout_rate",
    "norm_first",
    "activation",
    "normalization",
    "layer_norm_epsilon",
    "use_bias",
)

Policy = Any  # A `keras.DTypePolicy`, the name of one, or None.


def build_transformer(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """Builds the encoder-decoder model, from source and target ids to logits.

    Logits are float32 under every dtype policy, so that loss and search compute in full precision.

    Args:
        config: Sizes and options.
        dtype: The layers' dtype policy or its name, such as "mixed_bfloat16"; None: Keras's global one.

    Returns:
        A functional `keras.Model` with inputs `{"source": (B, S) int32, "target_in": (B, T) int32}` and
        output logits (B, T, V) of the target vocabulary. `target_in` is the start id, followed by the target.
        The model's `name` is "transformer" and its layers keep the names in this module.

    Raises:
        ValueError: The encoder or the decoder has no layer.

    Examples:
        Vocabularies of nine tokens, and one layer each in encoder and decoder:

        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> tuple(model({"source": np.array([[5, 6, 2]]), "target_in": np.array([[1, 7]])}).shape)
        (1, 2, 9)
    """
    if not (config.num_encoder_layers and config.num_decoder_layers):
        raise ValueError(
            "A translator has an encoder and a decoder. "
            f"Received: num_encoder_layers={config.num_encoder_layers}, num_decoder_layers={config.num_decoder_layers}."
        )
    source = keras.Input((None,), dtype="int32", name="source")
    target_in = keras.Input((None,), dtype="int32", name="target_in")
    source_mask = padding_mask(source, config.pad_id)  # (B, 1, 1, S)
    source_embedding, target_embedding = _make_embeddings(config, dtype)
    encoder = make_stack(Encoder, EncoderLayer, config.num_encoder_layers, config, dtype, ENCODER)
    decoder = make_stack(Decoder, DecoderLayer, config.num_decoder_layers, config, dtype, DECODER)
    # With `mask`, the output carries its mask for the layers of another model, such as `GlobalAveragePooling1D`.
    encoder_output = encoder(source_embedding(source), mask=ops.not_equal(source, config.pad_id))
    decoder_output = decoder(
        target_embedding(target_in), encoder_output, cross_mask=source_mask, counted=target_mask(target_in, config)
    )
    logits = make_logits(config)(target_embedding(decoder_output, reverse=True))
    return keras.Model({"source": source, "target_in": target_in}, logits, name="transformer")


def find_embedding(model: keras.Model, name: str) -> TokenEmbedding:
    """An embedding layer of a model from `build_transformer`: the shared one, or else the one of this name."""
    layers = {layer.name: layer for layer in model.layers}
    return layers.get(SHARED_EMBEDDING) or layers[name]


def encode_source(model: keras.Model, source: Tensor, pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """The encoder's output (B, S, D) for source ids (B, S), and their padding mask (B, 1, 1, S); no dropout."""
    source_mask = padding_mask(source, pad_id)
    embedded = find_embedding(model, SOURCE_EMBEDDING)(source)
    return model.get_layer(ENCODER)(embedded, attention_mask=source_mask, training=False), source_mask


class AttentionScores(NamedTuple):
    """The attention weights of every layer, after the softmax; if layers are shared, those of every step.

    Examples:
        Vocabularies of nine tokens, and one layer each in encoder and decoder:

        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> scores = attention_scores(model, source=np.array([[5, 6, 2]]), target_in=np.array([[1, 7]]))
        >>> isinstance(scores, AttentionScores), len(scores.cross), tuple(scores.cross[0].shape)
        (True, 1, (1, 2, 2, 3))
    """

    encoder: list[Tensor]  # (B, H, S, S)
    decoder: list[Tensor]  # (B, H, T, T)
    cross: list[Tensor]  # (B, H, T, S)


def attention_scores(model: keras.Model, source: Tensor, target_in: Tensor, pad_id: int = 0) -> AttentionScores:
    """The attention weights of every layer: in the encoder, in the decoder, and from the decoder to the source.

    Args:
        model: From `build_transformer`.
        source: (B, S) int32 ids.
        target_in: (B, T) int32 ids: the start id, followed by the target.
        pad_id: Marks padding in `source`.

    Returns:
        The weights, without dropout. Row t of the decoder's weights belongs to the position that predicts token t.

    Examples:
        Vocabularies of nine tokens, and one layer each in encoder and decoder:

        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> scores = attention_scores(model, source=np.array([[5, 6, 2]]), target_in=np.array([[1, 7]]))
        >>> [tuple(of_kind[0].shape) for of_kind in (scores.encoder, scores.decoder, scores.cross)]
        [(1, 2, 3, 3), (1, 2, 2, 2), (1, 2, 2, 3)]
    """
    return call_with_scores(model, source, target_in, pad_id)[1]


def call_with_scores(
    model: keras.Model, source: Tensor, target_in: Tensor, pad_id: int = 0
) -> tuple[Tensor, AttentionScores]:
    """The logits and the attention weights of every layer, from one forward pass without dropout.

    Arguments as in `attention_scores`.

    Returns:
        (B, T, V) float32, and the weights.

    Examples:
        >>> model = build_transformer(kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2))
        >>> logits, scores = call_with_scores(model, source=np.array([[5, 6, 2]]), target_in=np.array([[1, 7]]))
        >>> tuple(logits.shape), tuple(scores.cross[0].shape)
        ((1, 2, 9), (1, 2, 2, 3))
    """
    source_mask = padding_mask(source, pad_id)
    embedding = find_embedding(model, TARGET_EMBEDDING)
    embedded = find_embedding(model, SOURCE_EMBEDDING)(source)
    encoder_output, encoder = model.get_layer(ENCODER).call_with_scores(embedded, source_mask)
    decoder_output, decoder = model.get_layer(DECODER).call_with_scores(
        embedding(target_in), encoder_output, source_mask
    )
    logits = model.get_layer(LOGITS)(embedding(decoder_output, reverse=True))
    return logits, AttentionScores(encoder, *(list(of_kind) for of_kind in zip(*decoder, strict=True)))


def ponder(model: keras.Model, source: Tensor, target_in: Tensor, pad_id: int = 0) -> tuple[Ponder, Ponder]:
    """How many steps each position takes, in a model of `TransformerConfig(depth="adaptive")`; without dropout.

    Arguments as in `attention_scores`.

    Returns:
        For the encoder, steps and remainders (B, S); for the decoder, those (B, T).

    Raises:
        ValueError: The positions of the model do not halt.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 6, 6, d_model=8, d_ff=16, num_heads=2, depth="adaptive")
        >>> of_encoder, _ = ponder(build_transformer(config), np.array([[5, 6, 2]]), np.array([[1, 7]]))
        >>> np.asarray(of_encoder.steps).tolist()
        [[2.0, 2.0, 2.0]]
    """
    encoder_output, source_mask = encode_source(model, source, pad_id)
    of_encoder = model.get_layer(ENCODER).ponder(find_embedding(model, SOURCE_EMBEDDING)(source), source_mask)
    embedded = find_embedding(model, TARGET_EMBEDDING)(target_in)
    of_decoder = model.get_layer(DECODER).ponder(embedded, encoder_output, source_mask)
    if of_encoder is None or of_decoder is None:
        raise ValueError('The positions of this model do not halt. Build it with TransformerConfig(depth="adaptive").')
    return of_encoder, of_decoder


def _make_embeddings(config: TransformerConfig, dtype: Policy) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Source and target embedding; both are the same layer for three-way weight tying (section 3.4)."""
    if config.embedding_tying == "all":
        shared = make_embedding(config, dtype, SHARED_EMBEDDING, config.target_vocab_size)
        return shared, shared
    target_tied = config.embedding_tying == "target"
    return (
        make_embedding(config, dtype, SOURCE_EMBEDDING, config.source_vocab_size, reversible=False),
        make_embedding(config, dtype, TARGET_EMBEDDING, config.target_vocab_size, target_tied),
    )


def target_mask(target_in: Tensor, config: TransformerConfig) -> Tensor:
    """(B, 1, 1, T) booleans: False for the padding of `target_in` (B, T), which begins with the start id.

    If the start id is the pad id, the first position is always taken for the start.
    """
    if config.start_id != config.pad_id:
        return padding_mask(target_in, config.pad_id)
    is_first = ops.equal(ops.cumsum(ops.ones_like(target_in), axis=1), 1)
    return key_mask(ops.logical_or(is_first, ops.not_equal(target_in, config.pad_id)))


def make_embedding(
    config: TransformerConfig,
    dtype: Policy,
    name: str,
    vocab_size: int,
    tie_weights: bool = True,
    reversible: bool = True,
) -> TokenEmbedding:
    """An embedding with vectors of the size `embedding_dim`, and with projections if that is not d_model."""
    size, scaled = config.embedding_dim, config.scale_embeddings
    options = {"tie_weights": tie_weights, "scale_embeddings": scaled, "dtype": dtype, "name": name}
    if size in (None, config.d_model):
        return TokenEmbedding(vocab_size, config.d_model, **options)
    return ProjectedTokenEmbedding(vocab_size, size, config.d_model, reversible, **options)


def make_logits(config: TransformerConfig) -> Logits:
    """The last layer. Its dtype is float32, whatever the dtype policy of the other layers is."""
    return Logits(config.softmax_bias, dtype="float32", name=LOGITS)


def make_stack(
    kind: type[Stack], layer: type[TransformerLayer], steps: int, config: TransformerConfig, dtype: Policy, name: str
) -> Stack:
    """An encoder or decoder with the options of the configuration."""
    kind_of_depth = pkgutil.resolve_name(DEPTHS[config.depth])
    depth = kind_of_depth.from_sizes(steps, config.d_model, config.halting_epsilon, config.ponder_cost, dtype)
    layers = _make_layers(layer, depth.num_layers, config, dtype)
    positions = _make_positions(config, kind.causal, dtype)
    return kind(
        layers,
        positions,
        config.dropout_rate,
        config.attention_window,
        depth,
        config.normalize_embeddings,
        dtype=dtype,
        name=name,
    )


def _make_layers(kind: type[TransformerLayer], number: int, config: TransformerConfig, dtype: Policy) -> list:
    """`number` layers of one kind, with the options of the configuration."""
    options = {name: getattr(config, name) for name in LAYER_OPTIONS}
    options["max_relative_distance"] = config.layers_relative_distance
    return [kind(**options, dtype=dtype, name=f"layer_{index}") for index in range(number)]


def _make_positions(config: TransformerConfig, causal: bool, dtype: Policy) -> Positions:
    """The positional encoding that the configuration names."""
    options = PositionOptions(
        config.d_model,
        config.num_heads,
        config.head_size,
        config.max_length,
        causal,
        config.max_wavelength,
        config.first_position,
        config.max_relative_distance,
    )
    return pkgutil.resolve_name(POSITIONAL_ENCODINGS[config.positional_encoding]).from_options(options, dtype)
