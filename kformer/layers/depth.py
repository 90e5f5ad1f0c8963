"""Which layer of a stack runs at which step: a different layer at each step, or the same layer at all steps.

The first is the Transformer, the second the Universal Transformer (Dehghani et al. 2018, "Universal Transformers",
section 2.1). In `adaptive_depth`, the number of steps depends on the position.

Shape letters: B batch, T positions, D model size. A step of a search has the shape (N, ...) in place of (B, T, ...).
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from kformer.layers.positional_encoding import check_even, sinusoids
from kformer.layers.tensors import Tensor, width_of

ApplyLayer = Callable[[int, Tensor], Tensor]  # Applies the layer of a step, counted from 0: (..., D) to the same shape.
AddPositions = Callable[[Tensor], Tensor]  # Adds the positions to (..., D) floats.


class Ponder(NamedTuple):
    """How many steps each position took until it halted, and its remainder. Their sum is the ponder time of Graves.

    Examples:
        Two positions with the ponder times 2.25 and 2, each unit of which costs 0.5:

        >>> ponder = Ponder(steps=np.array([[2.0, 1.0]]), remainders=np.array([[0.25, 1.0]]), cost=0.5)
        >>> float(ponder.loss()), float(ponder.loss(counted=np.array([[[[True, False]]]])))
        (1.0625, 1.125)
    """

    steps: Tensor  # (B, T) float32: N, the number of steps
    remainders: Tensor  # (B, T) float32: R, the weight of the last step
    cost: float  # tau

    def loss(self, counted: Tensor | None = None) -> Tensor:
        """The ponder cost: tau times the mean of N + R over the counted positions; () float32.

        Args:
            counted: (B, 1, 1, T) booleans, as from `padding_mask`. By default all positions are counted.
        """
        times = ops.add(self.steps, self.remainders)  # (B, T)
        if counted is None:
            return self.cost * ops.mean(times)
        weights = ops.cast(ops.squeeze(counted, (1, 2)), times.dtype)  # (B, T)
        return self.cost * ops.sum(times * weights) / ops.maximum(ops.sum(weights), 1.0)


class Depth(keras.layers.Layer, abc.ABC):
    """The interface between a stack and the order in which it applies its layers.

    A whole sequence and a single position of a search use the same `run`. A subclass implements `num_layers` and
    `from_sizes`. It overrides `enter` if the input of a step is not the output of the step before, and `run` if the
    output of the stack is not that of the last step.

    To make a new class available in the configuration, add it to `kformer.config.DEPTHS`.

    Args:
        num_steps: The number of steps, or the largest number if positions halt.

    Examples:
        >>> depths = [StackedDepth(num_steps=3), SharedDepth(num_steps=3, d_model=8)]
        >>> [(depth.num_layers, [depth.layer_number(step) for step in range(3)]) for depth in depths]
        [(3, [0, 1, 2]), (1, [0, 0, 0])]
    """

    def __init__(self, num_steps: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_steps = num_steps

    @classmethod
    @abc.abstractmethod
    def from_sizes(
        cls, num_steps: int, d_model: int, halting_epsilon: float, ponder_cost: float, dtype: Any = None
    ) -> Self:
        """The depth for a stack of these sizes; see `kformer.TransformerConfig`."""

    @property
    @abc.abstractmethod
    def num_layers(self) -> int:
        """The number of layers that the stack has."""

    def layer_number(self, step: int) -> int:
        """The number of the layer that runs at a step; both count from 0."""
        return step % self.num_layers

    def enter(self, inputs: Tensor, step: int, add_positions: AddPositions) -> Tensor:
        """The input of the layer that runs at a step.

        Args:
            inputs: (..., D) floats: the output of the step before. For the first step, the embeddings with their
                positions.
            step: The number of the step, from 0.
            add_positions: Adds the positions once more.
        """
        return inputs

    def run(self, inputs: Tensor, apply: ApplyLayer, add_positions: AddPositions) -> tuple[Tensor, Ponder | None]:
        """Takes all steps, from the embeddings to the output of the last step.

        Args:
            inputs, add_positions: As in `enter`, for the first step.
            apply: Applies the layer of a step.

        Returns:
            (..., D) floats, and the steps of each position; None if their number does not depend on the position.
        """
        for step in range(self.num_steps):
            inputs = apply(step, self.enter(inputs, step, add_positions))
        return inputs, None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_steps": self.num_steps}


@keras.saving.register_keras_serializable(package="kformer")
class StackedDepth(Depth):
    """Each step has a layer of its own: the stack of section 3.1 of "Attention Is All You Need".

    Args:
        num_steps: N, the number of layers.

    Examples:
        >>> StackedDepth(num_steps=6).num_layers
        6
    """

    @classmethod
    def from_sizes(
        cls, num_steps: int, d_model: int, halting_epsilon: float, ponder_cost: float, dtype: Any = None
    ) -> Self:
        return cls(num_steps, dtype=dtype, name="depth")

    @property
    def num_layers(self) -> int:
        return self.num_steps


@keras.saving.register_keras_serializable(package="kformer")
class SharedDepth(Depth):
    """One layer, applied at every step: the Universal Transformer without halting.

    Before each step t = 1, 2, ..., two things are added to the input: the positions, and to every position the
    sinusoids of the number t. This is P^t of the paper, equations 4 and 5.

    Args:
        num_steps: The number of steps.
        d_model: D; must be even. None: the width of the first inputs.

    Raises:
        ValueError: `d_model` is odd, or inputs have another width.

    Examples:
        The first step of a sequence without positions adds the sines and cosines of 1:

        >>> depth = SharedDepth(num_steps=2, d_model=4)
        >>> print(np.round(depth.enter(np.zeros((1, 4)), 0, lambda inputs: inputs), 2))
        [[0.84 0.54 0.01 1.  ]]
    """

    def __init__(self, num_steps: int, d_model: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_steps, **kwargs)
        check_even(d_model)
        self.d_model = d_model

    @classmethod
    def from_sizes(
        cls, num_steps: int, d_model: int, halting_epsilon: float, ponder_cost: float, dtype: Any = None
    ) -> Self:
        return cls(num_steps, d_model, dtype=dtype, name="depth")

    @property
    def num_layers(self) -> int:
        return 1

    def build(self, inputs_shape: tuple) -> None:
        self.d_model = width_of(self, inputs_shape)
        check_even(self.d_model)
        self.built = True

    def enter(self, inputs: Tensor, step: int, add_positions: AddPositions) -> Tensor:
        inputs = ops.convert_to_tensor(inputs)
        if step > 0:  # The stack has added the positions to the embeddings.
            inputs = add_positions(inputs)
        return inputs + ops.cast(sinusoids(np.array([step + 1]), self.d_model), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model}
