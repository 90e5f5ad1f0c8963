"""Finds a model, whether a run folder or an exported SavedModel, loads it, and translates many texts with it."""
