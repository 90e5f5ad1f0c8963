"""Floating point operations of training a Transformer, counted from its sizes.

Only products of matrices are counted: 2 operations for a multiplication with its addition. A product C = A B counts
three times: once in the forward pass, and twice in the backward pass, for the gradients of A and B. Embedding, softmax,
normalization, dropout and the optimizer are not counted. Attention counts as it is computed: over all positions of a
row, with those that the causal mask hides; with a window, over the blocks that it divides a row into.

These are "model FLOPs" as in the PaLM paper (Chowdhery et al., 2022, appendix B): the operations that the model needs,
without those that a program computes a second time.
"""

import math
from typing import NamedTuple

from kformer.config import TransformerConfig


class Multiplications(NamedTuple):
    """Multiplications of the forward pass, of one row of source length S and target length T."""

    encoder: float
    decoder: float
    logits: float


def multiplications(config: TransformerConfig, source_length: float, target_length: float) -> Multiplications:
    """Multiplications of the forward pass of one row.

    An attention has four projections: two of every query, between d_model and all heads (for the query itself and for
    the output), and two of every key, to the heads of keys and of values. Every query meets every key twice: in the
    product of queries and keys, and in that of weights and values; each takes the size of a head, in all heads.

    Args:
        config: the sizes.
        source_length, target_length: S and T, positions of a row; for a whole corpus, their means are nearly right.
    """
    width = config.d_model
    feed_forward = 2 * width * config.d_ff

    query_width = config.head_size * config.num_heads
    key_width = config.head_size * (config.num_key_value_heads or config.num_heads)

    def attention(queries: float, keys: float, pairs: float) -> float:
        return 2 * width * (query_width * queries + key_width * keys) + 2 * query_width * pairs

    def self_attention(length: float, blocks_met: int) -> float:
        block = min(config.attention_window or length, length)
        pairs = length**2
        if config.attention_window:
            pairs = math.ceil(length / block) * block * blocks_met * block
        return attention(length, length, pairs)

    encoder_layer = self_attention(source_length, blocks_met=3) + feed_forward * source_length
    decoder_layer = self_attention(target_length, blocks_met=2)
    decoder_layer += attention(target_length, source_length, target_length * source_length)
    decoder_layer += feed_forward * target_length
    return Multiplications(
        encoder=config.num_encoder_layers * encoder_layer,
        decoder=config.num_decoder_layers * decoder_layer,
        logits=width * config.target_vocab_size * target_length,
    )


def training_flops(config: TransformerConfig, source_length: float, target_length: float) -> float:
    """Floating point operations of training on one row: forward and backward."""
    return 2 * 3 * sum(multiplications(config, source_length, target_length))
