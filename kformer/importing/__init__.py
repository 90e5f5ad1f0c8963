"""Brings models that other toolkits have trained."""

from kformer.importing.formats import FORMATS
from kformer.importing.run import import_model

__all__ = ["FORMATS", "import_model"]
