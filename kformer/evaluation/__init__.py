"""Scores of translations and pronunciations: what computes them, and what translates a test set for it."""

from kformer.evaluation.metrics import bleu_and_chrf, edit_distance, phoneme_error_rate, word_error_rate

__all__ = ["bleu_and_chrf", "edit_distance", "phoneme_error_rate", "word_error_rate"]
