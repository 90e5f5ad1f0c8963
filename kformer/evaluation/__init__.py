"""Scores of translations and pronunciations: the metrics, and the translation of a test set."""

from kformer.evaluation.comparison import Comparison
from kformer.evaluation.metrics import (
    bleu_and_chrf,
    edit_distance,
    label_scores,
    phoneme_error_rate,
    translation_edit_rate,
    word_error_rate,
)

__all__ = [
    "Comparison",
    "bleu_and_chrf",
    "edit_distance",
    "label_scores",
    "phoneme_error_rate",
    "translation_edit_rate",
    "word_error_rate",
]
