"""Encoder-only models (Devlin et al. 2019): one encoder with a head for each task.

All of them read one text, `[start] text [end]`, or two texts, `[start] text [end] text [end]`. The start token stands
for the whole input, as BERT's [CLS] does. All of them refuse a start id that is also the end or pad id: the model
would take the start for the end of the first text, or for padding.

Shape letters: B batch, S source length, D model size, V vocabulary of what is predicted.
"""

from typing import NamedTuple

import keras
from keras import ops

from kformer.config import TransformerConfig, check_special_ids
from kformer.layers import Encoder, EncoderLayer, Logits, SegmentEmbedding, TokenEmbedding
from kformer.layers.dense import Dense, KeptDense
from kformer.layers.dropout import Dropout
from kformer.layers.feed_forward import gelu_tanh
from kformer.layers.normalization import make_norm
from kformer.layers.tensors import Tensor
from kformer.models.transformer import (
    ENCODER,
    LOGITS,
    SOURCE_EMBEDDING,
    Policy,
    make_embedding,
    make_logits,
    make_stack,
)

SEGMENTS = "segments"
POOLER = "pooler"
CLASSES = "classes"
TRANSFORM = "transform"
TRANSFORM_NORM = "transform_norm"


class _Encoded(NamedTuple):
    """A source, its embedding layer, and the encoder's output."""

    source: keras.KerasTensor  # (B, S) int32
    embedding: TokenEmbedding
    output: Tensor  # (B, S, D)


def build_classifier(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """A model that gives one label to a text, or to a pair of texts.

    The encoder's output at the start token goes through a dense layer with tanh, dropout and a projection to the
    labels, as in BERT (Devlin et al. 2019, section 3).

    Args:
        config: Sizes and options; `target_vocab_size` is the number of labels, the special ids included.
        dtype: As in `build_transformer`.

    Returns:
        A functional `keras.Model` with the input `{"source": (B, S) int32}` and logits (B, 1, V) float32.

    Examples:
        >>> config = kformer.TransformerConfig(9, 6, 1, 0, d_model=8, d_ff=16, num_heads=2, embedding_tying="none")
        >>> tuple(build_classifier(config)({"source": np.array([[1, 5, 6, 2]])}).shape)
        (1, 1, 6)
    """
    encoded = _encode(config, dtype)
    pooled = Dense(config.d_model, activation="tanh", dtype=dtype, name=POOLER)(encoded.output[:, :1])  # (B, 1, D)
    return _predict(encoded, pooled, config, dtype, "classifier")


def build_tagger(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """A model that gives a label to every token.

    Args:
        config: Sizes and options; `target_vocab_size` is the number of tags, the special ids included.
        dtype: As in `build_transformer`.

    Returns:
        A functional `keras.Model` with the input `{"source": (B, S) int32}` and logits (B, S, V) float32.

    Examples:
        >>> config = kformer.TransformerConfig(9, 6, 1, 0, d_model=8, d_ff=16, num_heads=2, embedding_tying="none")
        >>> tuple(build_tagger(config)({"source": np.array([[1, 5, 6, 2]])}).shape)
        (1, 4, 6)
    """
    encoded = _encode(config, dtype)
    return _predict(encoded, encoded.output, config, dtype, "tagger")


def build_masked_language_model(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """A model that predicts the tokens at masked positions (Devlin et al. 2019, section 3.1, task 1).

    The encoder's output goes through a dense layer, GELU (in the form of `activation`) and a norm. Then the embedding
    matrix projects it to the vocabulary; BERT adds a bias (`softmax_bias`). With `keep_pooler` the model holds the
    dense layer of `build_classifier`, and does not use it.

    Args:
        config: Sizes and options.
        dtype: As in `build_transformer`.

    Returns:
        A functional `keras.Model` with the input `{"source": (B, S) int32}` and logits (B, S, V) float32.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 1, 0, d_model=8, d_ff=16, num_heads=2)
        >>> tuple(build_masked_language_model(config)({"source": np.array([[1, 3, 6, 2]])}).shape)
        (1, 4, 9)
    """
    encoded = _encode(config, dtype, reversible=True)
    output = encoded.output
    if config.keep_pooler:
        output = KeptDense(config.d_model, dtype=dtype, name=POOLER)(output)
    activation = gelu_tanh if config.activation == "gelu_tanh" else "gelu"
    transformed = Dense(config.d_model, activation=activation, dtype=dtype, name=TRANSFORM)(output)
    norm = make_norm(config.normalization, config.layer_norm_epsilon, dtype=dtype, name=TRANSFORM_NORM)
    logits = make_logits(config)(encoded.embedding(norm(transformed), reverse=True))
    return keras.Model({"source": encoded.source}, logits, name="masked_language_model")


def _encode(config: TransformerConfig, dtype: Policy, reversible: bool = False) -> _Encoded:
    """Embeds a source with its segments and encodes it."""
    check_special_ids(config)
    source = keras.Input((None,), dtype="int32", name="source")
    embedding = make_embedding(config, dtype, SOURCE_EMBEDDING, config.source_vocab_size, reversible=reversible)
    segments = SegmentEmbedding(config.d_model, config.end_id, dtype=dtype, name=SEGMENTS)
    encoder = make_stack(Encoder, EncoderLayer, config.num_encoder_layers, config, dtype, ENCODER)
    embedded = segments(embedding(source), ids=source)
    return _Encoded(source, embedding, encoder(embedded, mask=ops.not_equal(source, config.pad_id)))


def _predict(encoded: _Encoded, features: Tensor, config: TransformerConfig, dtype: Policy, name: str) -> keras.Model:
    """A model that projects `features` (B, T, D), after dropout, to labels."""
    dropped = Dropout(config.dropout_rate, dtype=dtype, name="head_dropout")(features)
    scores = Dense(config.target_vocab_size, dtype=dtype, name=CLASSES)(dropped)  # with a bias of its own
    logits = Logits(dtype="float32", name=LOGITS)(scores)
    return keras.Model({"source": encoded.source}, logits, name=name)
