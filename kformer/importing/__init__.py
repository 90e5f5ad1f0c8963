"""Brings models that other toolkits have trained."""

from kformer.importing.formats import IMPORT_FORMATS, ImportFormat
from kformer.importing.languages import Languages

__all__ = ["IMPORT_FORMATS", "ImportFormat", "Languages", "import_model"]


def __getattr__(name: str) -> object:
    if name != "import_model":  # the only name that needs TensorFlow
        raise AttributeError(f"module 'kformer.importing' has no attribute {name!r}; it has: {', '.join(__all__)}")
    from kformer.importing.run import import_model

    return import_model
