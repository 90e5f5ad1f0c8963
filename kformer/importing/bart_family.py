"""The configuration that Marian, M2M100, BART and mBART share, read from config.json; weights: see `bart_weights`."""

import numpy as np

from kformer.config import TransformerConfig
from kformer.importing.activations import ACTIVATIONS
from kformer.importing.bart_weights import BIAS, Ties
from kformer.importing.checkpoint import Checkpoint
from kformer.importing.fields import Fields

EPSILON = 1e-5  # of PyTorch's layer norm


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
        embedding_tying=Ties(fields, checkpoint).tying,
        scale_embeddings=bool(fields.get("scale_embedding", is_scaled)),
        softmax_bias=BIAS in checkpoint and bool(np.any(checkpoint.read(BIAS))),
        pad_id=fields.id("pad_token_id"),
        start_id=fields.id("decoder_start_token_id", end_id),
        end_id=end_id,
    )
