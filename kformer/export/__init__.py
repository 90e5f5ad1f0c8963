"""A translator as a SavedModel, for TensorFlow Serving or anything else that loads SavedModels."""

from kformer.export.saved_model import export_saved_model

__all__ = ["export_saved_model"]
