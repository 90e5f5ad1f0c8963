"""The functional Transformer, and its step-by-step form for decoding."""

from kformer.models.stepwise import StepwiseTransformer, reorder_rows, start_decoding
from kformer.models.transformer import build_transformer, cross_attention_scores

__all__ = ["StepwiseTransformer", "build_transformer", "cross_attention_scores", "reorder_rows", "start_decoding"]
