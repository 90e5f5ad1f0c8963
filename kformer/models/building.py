"""The model of each task."""

import pkgutil

import keras

from kformer.config import TransformerConfig, task_kind
from kformer.models.transformer import Policy


def build_model(config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """The model of the configuration's task, with random weights.

    Args:
        config: Task, sizes and options.
        dtype: As in `build_transformer`.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 0, 1, d_model=8, d_ff=16, num_heads=2, task="language-model")
        >>> build_model(config).name
        'language_model'
    """
    return pkgutil.resolve_name(task_kind(config.task).builder)(config, dtype)
