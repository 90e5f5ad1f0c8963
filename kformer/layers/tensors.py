"""Names for tensors in annotations, and the width of a layer.

Shape letters: B batch, H heads, G heads of keys and values, S keys, T positions, K size of a head.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Tensor = Any  # A tensor of the backend that Keras runs on.
Rotation = Callable[[Tensor], Tensor]  # Rotates heads by their positions: (..., T, K) to the same shape.
# Added to scores: floats that broadcast to (B, H, T, S), or a function that computes them from queries (B, H, T, K).
ScoreBias = Tensor | Callable[[Tensor], Tensor]


def rank(tensor: int | Tensor) -> int:
    """The number of a tensor's dimensions; 0 for a number of Python."""
    return len(getattr(tensor, "shape", ()))


class KeysValues(NamedTuple):
    """Projected keys and values, split into heads."""

    key: Tensor  # (B, G, S, K)
    value: Tensor  # (B, G, S, K)


def check_width(layer: Any, inputs_shape: tuple) -> None:
    """Refuses inputs whose width is not the layer's `d_model`: the layer could not add them to its own values.

    Raises:
        ValueError: The last dimension of `inputs_shape` is another number.
    """
    if inputs_shape[-1] not in (None, layer.d_model):
        raise ValueError(
            f"{type(layer).__name__} takes inputs of width d_model={layer.d_model}. Received: inputs of shape "
            f"{tuple(inputs_shape)}. Build it with d_model={inputs_shape[-1]}, or project the inputs to "
            f"{layer.d_model} features."
        )


def width_of(layer: Any, inputs_shape: tuple) -> int:
    """The layer's `d_model`; if that is None, the width of the inputs.

    Raises:
        ValueError: The inputs have another width than `d_model`, or neither of the two is known.
    """
    if layer.d_model is not None:
        check_width(layer, inputs_shape)
        return layer.d_model
    if inputs_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} takes its d_model from the width of its inputs. Received: inputs of shape "
            f"{tuple(inputs_shape)}. Pass d_model, or inputs whose last dimension is known."
        )
    return inputs_shape[-1]
