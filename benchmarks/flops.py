"""Floating point operations of training a Transformer, counted from its sizes.

Counted are the products of matrices, 2 operations a multiplication with its addition, forward once and backward twice
(a product C = A B has two in its gradient: that of A and that of B). Not counted: what takes no product, such as
embedding, softmax, normalization, dropout and the optimizer. Attention counts as it is computed: over all positions of
a row, those behind the causal mask, too.

These are "model FLOPs" as in the PaLM paper (Chowdhery et al., 2022, appendix B): what the model asks for, whatever a
program computes a second time.
"""

from typing import NamedTuple

from kformer.config import TransformerConfig


class Multiplications(NamedTuple):
    """Multiplications of the forward pass, of one row of source length S and target length T."""

    encoder: float
    decoder: float
    logits: float


def multiplications(config: TransformerConfig, source_length: float, target_length: float) -> Multiplications:
    """Multiplications of the forward pass of one row.

    An attention has four projections of d_model x d_model: two of every query (for the query itself and for the
    output), two of every key (as key and as value). Every query meets every key twice: in the product of queries and
    keys, and in that of weights and values; each takes d_model multiplications, over all heads.

    Args:
        config: the sizes.
        source_length, target_length: S and T, positions of a row; means do for a whole corpus, nearly.
    """
    width = config.d_model
    feed_forward = 2 * width * config.d_ff

    def attention(queries: float, keys: float) -> float:
        return 2 * width**2 * (queries + keys) + 2 * width * queries * keys

    encoder_layer = attention(source_length, source_length) + feed_forward * source_length
    decoder_layer = attention(target_length, target_length) + attention(target_length, source_length)
    decoder_layer += feed_forward * target_length
    return Multiplications(
        encoder=config.num_encoder_layers * encoder_layer,
        decoder=config.num_decoder_layers * decoder_layer,
        logits=width * config.target_vocab_size * target_length,
    )


def training_flops(config: TransformerConfig, source_length: float, target_length: float) -> float:
    """Floating point operations of training on one row: forward and backward."""
    return 2 * 3 * sum(multiplications(config, source_length, target_length))
