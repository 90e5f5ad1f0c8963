"""The model of each task."""

from collections.abc import Callable

import keras

from kformer.config import TransformerConfig
from kformer.models.decoder_only import build_language_model
from kformer.models.encoder_only import build_classifier, build_masked_language_model, build_tagger
from kformer.models.transformer import Policy, build_transformer

_BUILDERS: dict[str, Callable[[TransformerConfig, Policy], keras.Model]] = {
    "translate": build_transformer,
    "classify": build_classifier,
    "tag": build_tagger,
    "language-model": build_language_model,
    "masked-language-model": build_masked_language_model,
}


def build_model(task: str, config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """The model of a task, with random weights.

    Args:
        task: One of `kformer.config.TASKS`.
        config: Sizes and options.
        dtype: As in `build_transformer`.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 0, 1, d_model=8, d_ff=16, num_heads=2)
        >>> build_model("language-model", config).name
        'language_model'
    """
    return _BUILDERS[task](config, dtype)
