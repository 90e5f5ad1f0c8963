"""Finds a model, whether a run folder or an exported SavedModel, loads it, and translates many texts with it."""

from kformer.inference.model import Model

__all__ = ["Model"]
