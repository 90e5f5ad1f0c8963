"""Keras finds kformer's classes in saved models, although `import kformer` loads none of them.

A saved model names its classes, such as "kformer>Encoder". Keras knows a name when the module of the class has been
imported. Until then, a stand-in has the name: it imports the module when Keras makes the first object of the class.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from kformer.process.import_hooks import ImportHook

# Modules, and the names of the classes that Keras may find in a saved model.
CLASSES = {
    "kformer.layers.adaptive_depth": ("AdaptiveDepth",),
    "kformer.layers.attention": ("MultiHeadAttention",),
    "kformer.layers.decoder": ("Decoder",),
    "kformer.layers.decoder_layer": ("DecoderLayer",),
    "kformer.layers.dense": ("Dense", "KeptDense"),
    "kformer.layers.depth": ("StackedDepth", "SharedDepth"),
    "kformer.layers.dropout": ("Dropout",),
    "kformer.layers.embedding": ("TokenEmbedding", "ProjectedTokenEmbedding"),
    "kformer.layers.encoder": ("Encoder",),
    "kformer.layers.encoder_layer": ("EncoderLayer",),
    "kformer.layers.feed_forward": ("FeedForward", "GatedFeedForward"),
    "kformer.layers.logits": ("Logits",),
    "kformer.layers.normalization": ("LayerNormalization", "RMSNormalization"),
    "kformer.layers.position_bias": ("LinearBias", "BucketedBias"),
    "kformer.layers.positional_encoding": (
        "PositionalEncoding",
        "HalvedPositionalEncoding",
        "LearnedPositionalEncoding",
    ),
    "kformer.layers.relative_positions": ("RelativePositions", "RelativeDistances"),
    "kformer.layers.relative_attention": ("RelativeVectors",),
    "kformer.layers.residual": ("ResidualConnection",),
    "kformer.layers.rotary_positions": ("RotaryPositions",),
    "kformer.layers.segments": ("SegmentEmbedding",),
    "kformer.losses.alignment": ("AlignmentCrossEntropy",),
    "kformer.losses.label_smoothing": ("LabelSmoothedCrossEntropy",),
    "kformer.losses.r_drop": ("RDropCrossEntropy",),
    "kformer.losses.word_level": ("WordLevelCrossEntropy",),
    "kformer.metrics": ("TokenLoss", "Perplexity", "TokenAccuracy", "TokenCount"),
    "kformer.models.guided_alignment": ("GuidedAlignment",),
    "kformer.models.two_passes": ("TwoPasses",),
    "kformer.models.with_teacher": ("WithTeacher",),
    "kformer.schedules": ("WarmupInverseSqrt", "WarmupConstant", "WarmupLinear", "WarmupCosine"),
    "kformer.training.optimizers": ("Adam", "AdamW", "Adafactor"),
}


class StandIn:
    """Has the name of a class that is not loaded. Keras makes objects of saved models with `from_config`."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Loads the class, which then takes its name back, and makes the object."""
        return getattr(importlib.import_module(self._module), self._name).from_config(config)


def register_classes() -> None:
    """Makes Keras know all classes: now, if it is imported, or at the end of its import."""
    if "keras" in sys.modules:
        _register()
    else:
        ImportHook("keras", _registering).install()


@contextlib.contextmanager
def _registering() -> Iterator[None]:
    yield
    _register()


def _register() -> None:
    objects = sys.modules["keras"].saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names:
            objects.setdefault(f"kformer>{name}", StandIn(module, name))
