"""The model of each task."""

import pkgutil

import keras

from kformer.config import TransformerConfig, task_kind
from kformer.models.transformer import Policy


def build_model(task: str, config: TransformerConfig, dtype: Policy = None) -> keras.Model:
    """The model of a task, with random weights.

    Args:
        task: One of `kformer.config.TASKS`.
        config: Sizes and options.
        dtype: As in `build_transformer`.

    Raises:
        ValueError: There is no such task.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 0, 1, d_model=8, d_ff=16, num_heads=2)
        >>> build_model("language-model", config).name
        'language_model'
    """
    return pkgutil.resolve_name(task_kind(task).builder)(config, dtype)
