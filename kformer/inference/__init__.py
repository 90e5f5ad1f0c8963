"""Finds a model, whether a run folder or an exported SavedModel, loads it, and translates many texts with it."""

from kformer.inference.columns import ScoredColumn, answer_column, answer_column_with_scores
from kformer.inference.model import Model

__all__ = ["Model", "ScoredColumn", "answer_column", "answer_column_with_scores"]
