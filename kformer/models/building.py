"""The model of each task."""

import pkgutil

import keras

from kformer.config import TransformerConfig, task_kind
from kformer.layers.stack import Stack
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


def rematerialize_layers(model: keras.Model) -> None:
    """Lets the training of a model keep only the inputs of each layer of its encoder and its decoder.

    Their activations are computed again in the backward pass. So an update takes less memory and more time; outputs,
    gradients and dropout are the same. Call it before `fit`.

    Args:
        model: From `build_model`.

    Examples:
        >>> config = kformer.TransformerConfig(9, 9, 1, 1, d_model=8, d_ff=16, num_heads=2)
        >>> model = build_model(config)
        >>> rematerialize_layers(model)
        >>> model.get_layer("encoder").rematerialize
        True
    """
    for layer in model.layers:
        if isinstance(layer, Stack):
            layer.rematerialize = True
