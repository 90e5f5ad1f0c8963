"""The functional models: encoder-decoder, encoder-only, decoder-only; and their step-by-step form for decoding."""

from kformer.models.building import build_model, rematerialize_layers
from kformer.models.decoder_only import StepwiseLanguageModel, build_language_model
from kformer.models.encoder_only import build_classifier, build_masked_language_model, build_tagger
from kformer.models.guided_alignment import GuidedAlignment, call_with_alignment
from kformer.models.stepwise import StepwiseTransformer, reorder_rows, start_decoding
from kformer.models.transformer import (
    AttentionScores,
    attention_scores,
    build_transformer,
    call_with_scores,
    ponder,
)
from kformer.models.two_passes import TwoPasses
from kformer.models.with_teacher import WithTeacher

__all__ = [
    "AttentionScores",
    "GuidedAlignment",
    "StepwiseLanguageModel",
    "StepwiseTransformer",
    "TwoPasses",
    "WithTeacher",
    "attention_scores",
    "build_classifier",
    "build_language_model",
    "build_masked_language_model",
    "build_model",
    "build_tagger",
    "build_transformer",
    "call_with_alignment",
    "call_with_scores",
    "ponder",
    "rematerialize_layers",
    "reorder_rows",
    "start_decoding",
]
