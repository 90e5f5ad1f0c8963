"""kformer: the Transformer of "Attention Is All You Need" in Keras 3, from text to a SavedModel.

Everything here loads when it is first used: `import kformer` costs a few milliseconds and needs neither
TensorFlow nor tensorflow-text.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kformer._version import __version__

if TYPE_CHECKING:
    from kformer import data, decoding, distribution, evaluation, layers, models, presets, tokenizers, training
    from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
    from kformer.export import export_saved_model
    from kformer.trainer import train
    from kformer.training import losses, metrics, schedules
    from kformer.translator import Translator

# Public name: the module it lives in, or (module, attribute).
_MODULES = {
    **{name: f"kformer.{name}" for name in ("config", "data", "decoding", "distribution")},
    **{name: f"kformer.{name}" for name in ("evaluation", "layers", "models")},
    **{name: f"kformer.{name}" for name in ("presets", "tokenizers", "training")},
    **{name: f"kformer.training.{name}" for name in ("losses", "metrics", "schedules")},
}
_OBJECTS = {
    "TransformerConfig": "kformer.config",
    "TrainingConfig": "kformer.config",
    "DecodingConfig": "kformer.config",
    "Translator": "kformer.translator",
    "export_saved_model": "kformer.export",
    "train": "kformer.trainer",
}

__all__ = [
    "DecodingConfig",
    "TrainingConfig",
    "TransformerConfig",
    "Translator",
    "__version__",
    "config",
    "data",
    "decoding",
    "distribution",
    "evaluation",
    "export_saved_model",
    "layers",
    "losses",
    "metrics",
    "models",
    "presets",
    "schedules",
    "tokenizers",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _OBJECTS:
        value = getattr(importlib.import_module(_OBJECTS[name]), name)
    else:
        raise AttributeError(f"module 'kformer' has no attribute {name!r}; it has: {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
