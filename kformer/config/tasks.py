"""What a model learns to do: the names of the tasks, and what fits each of them."""

from kformer.config.transformer import TransformerConfig

# What a model learns to do. The classes are in `kformer.tasks`.
TASKS = ("translate", "classify", "tag", "language-model", "masked-language-model")
# Tasks that learn from plain text, a text on each line. The others learn from pairs of texts.
LEARN_FROM_PLAIN_TEXT = ("language-model", "masked-language-model")
# By task: the numbers of layers that are not 0.
_LAYERS = {
    "translate": ("num_encoder_layers", "num_decoder_layers"),
    "classify": ("num_encoder_layers",),
    "tag": ("num_encoder_layers",),
    "language-model": ("num_decoder_layers",),
    "masked-language-model": ("num_encoder_layers",),
}
_ENCODERS = ("translate", "classify", "tag", "masked-language-model")
# By task: the tasks of the runs whose weights a model can begin with.
_FIRST_WEIGHTS = {
    "translate": ("translate",),
    "classify": _ENCODERS,
    "tag": _ENCODERS,
    "language-model": ("language-model",),
    "masked-language-model": _ENCODERS,
}


def check_layers(task: str, transformer: TransformerConfig) -> None:
    """Refuses a transformer without the layers that a model of this task has.

    Raises:
        ValueError: The transformer has no encoder or no decoder layers.

    Examples:
        >>> check_layers("classify", TransformerConfig(num_decoder_layers=0))
    """
    missing = [name for name in _LAYERS[task] if not getattr(transformer, name)]
    if missing:
        raise ValueError(
            f"A model of the task {task} needs {' and '.join(_LAYERS[task])} of at least 1. Received: {missing[0]}=0. "
            "Raise it."
        )


def check_first_weights(task: str, earlier: str) -> None:
    """Refuses first weights of a model that has no layers in common with the new one.

    Args:
        task: What the new model learns.
        earlier: What the model with the first weights has learned.

    Raises:
        ValueError: A model of one of the tasks has no encoder, or one no decoder of the same kind.

    Examples:
        >>> check_first_weights("classify", "masked-language-model")
    """
    if earlier not in _FIRST_WEIGHTS[task]:
        raise ValueError(
            f"A model of the task {task} can begin with the weights of a run of: {', '.join(_FIRST_WEIGHTS[task])}. "
            f"Received: a run of the task {earlier}. Begin with another run, or with new weights."
        )
