"""kformer: the Transformer of "Attention Is All You Need" in Keras 3, from text to a SavedModel.

Everything here loads when it is first used: `import kformer` costs a few milliseconds and needs neither
TensorFlow nor tensorflow-text. If kformer is imported before them, their start-up messages are not shown (see
`kformer/process/quiet.py`). Keras finds kformer's classes in saved models, whichever of the two is imported first.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kformer.process.quiet import quiet_retracing, quiet_tensorflow
from kformer.process.saved_objects import register_classes
from kformer.version import __version__

if TYPE_CHECKING:
    from kformer import (
        data,
        decoding,
        evaluation,
        importing,
        inference,
        layers,
        losses,
        metrics,
        models,
        presets,
        schedules,
        tasks,
        tokenizers,
        training,
        visualization,
    )
    from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
    from kformer.export.ctranslate2 import export_ctranslate2
    from kformer.export.safetensors import export_safetensors
    from kformer.export.saved_model import export_saved_model
    from kformer.importing.run import import_model
    from kformer.tasks import Classifier, LanguageModel, Tagger
    from kformer.tasks.translator import Translator
    from kformer.training.train import train

quiet_tensorflow()
quiet_retracing()
register_classes()

_MODULES = (
    *("config", "data", "decoding", "evaluation", "importing", "inference", "layers", "losses"),
    *("metrics", "models", "presets", "schedules", "tasks", "tokenizers", "training", "visualization"),
)
# Name of an object: its module.
_OBJECTS = {
    "TransformerConfig": "kformer.config",
    "TrainingConfig": "kformer.config",
    "DecodingConfig": "kformer.config",
    "Translator": "kformer.tasks.translator",
    "Classifier": "kformer.tasks.classify",
    "Tagger": "kformer.tasks.tag",
    "LanguageModel": "kformer.tasks.language_model",
    "export_ctranslate2": "kformer.export.ctranslate2",
    "export_safetensors": "kformer.export.safetensors",
    "export_saved_model": "kformer.export.saved_model",
    "import_model": "kformer.importing.run",
    "train": "kformer.training.train",
}

__all__ = [
    "Classifier",
    "DecodingConfig",
    "LanguageModel",
    "Tagger",
    "TrainingConfig",
    "TransformerConfig",
    "Translator",
    "__version__",
    "config",
    "data",
    "decoding",
    "evaluation",
    "export_ctranslate2",
    "export_safetensors",
    "export_saved_model",
    "import_model",
    "importing",
    "inference",
    "layers",
    "losses",
    "metrics",
    "models",
    "presets",
    "schedules",
    "tasks",
    "tokenizers",
    "train",
    "training",
    "visualization",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(f"kformer.{name}")
    elif name in _OBJECTS:
        value = getattr(importlib.import_module(_OBJECTS[name]), name)
    else:
        raise AttributeError(f"module 'kformer' has no attribute {name!r}; it has: {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
