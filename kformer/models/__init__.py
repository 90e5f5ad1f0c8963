"""The functional Transformer, and its step-by-step form for decoding."""

from kformer.models.stepwise import StepwiseTransformer, reorder_rows, start_decoding
from kformer.models.transformer import AttentionScores, attention_scores, build_transformer

__all__ = [
    "AttentionScores",
    "StepwiseTransformer",
    "attention_scores",
    "build_transformer",
    "reorder_rows",
    "start_decoding",
]
