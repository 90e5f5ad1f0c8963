"""Keras layers of the Transformer, from masks up to whole encoder and decoder stacks."""

from kformer.layers.adaptive_depth import AdaptiveDepth
from kformer.layers.attention import MultiHeadAttention
from kformer.layers.cache import Cache
from kformer.layers.decoder import Decoder
from kformer.layers.decoder_layer import DecoderLayer
from kformer.layers.depth import Depth, SharedDepth, StackedDepth
from kformer.layers.embedding import ProjectedTokenEmbedding, TokenEmbedding
from kformer.layers.encoder import Encoder
from kformer.layers.encoder_layer import EncoderLayer
from kformer.layers.feed_forward import FeedForward, GatedFeedForward
from kformer.layers.head_order import HeadOrder, head_order
from kformer.layers.logits import Logits
from kformer.layers.masks import causal_mask, padding_mask, window_mask
from kformer.layers.position_bias import BucketedBias, LinearBias
from kformer.layers.positional_encoding import (
    HalvedPositionalEncoding,
    LearnedPositionalEncoding,
    PositionalEncoding,
    PositionOptions,
    Positions,
)
from kformer.layers.relative_attention import RelativeVectors
from kformer.layers.relative_positions import RelativeDistances, RelativePositions
from kformer.layers.residual import ResidualConnection
from kformer.layers.rotary_positions import RotaryPositions
from kformer.layers.scaled_dot_product import scaled_dot_product_attention
from kformer.layers.segments import SegmentEmbedding
from kformer.layers.stack import Stack
from kformer.layers.transformer_layer import TransformerLayer
from kformer.layers.windowed_attention import Band

__all__ = [
    "AdaptiveDepth",
    "Band",
    "BucketedBias",
    "Cache",
    "Decoder",
    "DecoderLayer",
    "Depth",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GatedFeedForward",
    "HalvedPositionalEncoding",
    "HeadOrder",
    "LearnedPositionalEncoding",
    "LinearBias",
    "Logits",
    "MultiHeadAttention",
    "PositionOptions",
    "PositionalEncoding",
    "Positions",
    "ProjectedTokenEmbedding",
    "RelativeDistances",
    "RelativePositions",
    "RelativeVectors",
    "ResidualConnection",
    "RotaryPositions",
    "SegmentEmbedding",
    "SharedDepth",
    "Stack",
    "StackedDepth",
    "TokenEmbedding",
    "TransformerLayer",
    "causal_mask",
    "head_order",
    "padding_mask",
    "scaled_dot_product_attention",
    "window_mask",
]
