"""The functional Transformer, and its step-by-step form for decoding."""

from kformer.models.stepwise import StepwiseTransformer, reorder_rows, start_decoding
from kformer.models.transformer import AttentionScores, attention_scores, build_transformer, call_with_scores

__all__ = [
    "AttentionScores",
    "StepwiseTransformer",
    "attention_scores",
    "build_transformer",
    "call_with_scores",
    "reorder_rows",
    "start_decoding",
]
