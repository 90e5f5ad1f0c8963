"""Copies kformer's weights into the layers of Keras and KerasNLP that compute the same formulas.

Where kformer keeps one matrix (D, H x K), they keep (D, H, K).
"""

import keras
from keras import ops


def _copy_reshaped(ours: keras.layers.Layer, theirs: keras.layers.Layer) -> None:
    for name in ("kernel", "bias"):
        target = getattr(theirs, name)
        target.assign(ops.reshape(getattr(ours, name), target.shape))


def copy_attention(ours: keras.layers.Layer, theirs: keras.layers.MultiHeadAttention) -> None:
    _copy_reshaped(ours.query_projection, theirs.query_dense)
    _copy_reshaped(ours.key_projection, theirs.key_dense)
    _copy_reshaped(ours.value_projection, theirs.value_dense)
    _copy_reshaped(ours.output_projection, theirs.output_dense)


def _copy_norm(ours: keras.layers.Layer, theirs: keras.layers.LayerNormalization) -> None:
    theirs.gamma.assign(ours.norm.gamma)
    theirs.beta.assign(ours.norm.beta)


def copy_encoder_layer(ours: keras.layers.Layer, theirs: keras.layers.Layer) -> None:
    """Into a `keras_nlp.layers.TransformerEncoder`, or the same parts of a decoder."""
    copy_attention(ours.self_attention, theirs._self_attention_layer)
    _copy_norm(ours.self_attention_residual, theirs._self_attention_layer_norm)
    _copy_reshaped(ours.feed_forward.inner, theirs._feedforward_intermediate_dense)
    _copy_reshaped(ours.feed_forward.outer, theirs._feedforward_output_dense)
    _copy_norm(ours.feed_forward_residual, theirs._feedforward_layer_norm)


def copy_decoder_layer(ours: keras.layers.Layer, theirs: keras.layers.Layer) -> None:
    """Into a `keras_nlp.layers.TransformerDecoder` with cross-attention."""
    copy_encoder_layer(ours, theirs)
    copy_attention(ours.cross_attention, theirs._cross_attention_layer)
    _copy_norm(ours.cross_attention_residual, theirs._cross_attention_layer_norm)
