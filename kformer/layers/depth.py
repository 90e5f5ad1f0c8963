"""Which layer of a stack runs at which step: another one at each, the same one at all, or the same one until it halts.

The first is the Transformer's, the others are the Universal Transformer's: Dehghani et al. 2018, "Universal
Transformers", sections 2.1 and 2.2, with the adaptive computation time (ACT) of Graves 2016, "Adaptive Computation Time
for Recurrent Neural Networks", section 2.

Shape letters: B batch, T positions, D model size. A step of a search has the shape (N, ...) in place of (B, T, ...).
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from kformer.layers.initializers import small_normal
from kformer.layers.positional_encoding import sinusoids
from kformer.layers.tensors import Tensor, check_width

ApplyLayer = Callable[[int, Tensor], Tensor]  # Applies the layer of a step, counted from 0: (..., D) to the same shape.
AddPositions = Callable[[Tensor], Tensor]  # Adds the positions to (..., D) floats.


class Ponder(NamedTuple):
    """How long each position was computed before it halted; Graves's ponder time is the sum of both.

    Example:
        Two positions with the ponder times 2.25 and 2, each unit of which costs 0.5:

        >>> ponder = Ponder(steps=np.array([[2.0, 1.0]]), remainders=np.array([[0.25, 1.0]]), cost=0.5)
        >>> float(ponder.loss()), float(ponder.loss(counted=np.array([[[[True, False]]]])))
        (1.0625, 1.125)
    """

    steps: Tensor  # (B, T) float32: N, the number of steps
    remainders: Tensor  # (B, T) float32: R, the weight of the last step
    cost: float  # tau

    def loss(self, counted: Tensor | None = None) -> Tensor:
        """The ponder cost: tau times the mean of N + R over the positions that count; () float32.

        Args:
            counted: (B, 1, 1, T) booleans, as from `padding_mask`. By default all positions count.
        """
        times = ops.add(self.steps, self.remainders)  # (B, T)
        if counted is None:
            return self.cost * ops.mean(times)
        weights = ops.cast(ops.squeeze(counted, (1, 2)), times.dtype)  # (B, T)
        return self.cost * ops.sum(times * weights) / ops.maximum(ops.sum(weights), 1.0)


class Depth(keras.layers.Layer, abc.ABC):
    """The interface between a stack and the order in which it applies its layers.

    A whole sequence, and a single step of a search, go through the same `run`. A subclass implements `num_layers` and
    `from_sizes`; it overrides `enter` if the input of a step is not the output of the step before, and `run` if the
    output of the stack is not that of the last step.

    To make a new class available in the configuration, add its name to `kformer.models.transformer.DEPTHS` and to
    `kformer.config.DEPTHS`.

    Args:
        num_steps: The number of steps, or the largest number if positions halt.

    Example:
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
        """The input of a step's layer.

        Args:
            inputs: (..., D) floats: the output of the step before. For the first step, the embeddings with their
                positions.
            step: The number of the step, from 0.
            add_positions: Adds the positions once more.
        """
        return inputs

    def run(self, inputs: Tensor, apply: ApplyLayer, add_positions: AddPositions) -> tuple[Tensor, Ponder | None]:
        """Applies the layers to (..., D) floats.

        Args:
            inputs, add_positions: As in `enter`.
            apply: Applies the layer of a step.

        Returns:
            (..., D) floats, and how long each position was computed; None if that does not depend on the position.
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

    Example:
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

    Before step t = 1, ..., the sinusoids of position t are added to every position, and the positions are added again:
    P^t of the paper, equations 4 and 5.

    Args:
        num_steps: The number of steps.
        d_model: D; must be even.

    Raises:
        ValueError: `d_model` is odd, or inputs have another width.

    Example:
        The first step of a sequence without positions adds the sines and cosines of 1:

        >>> depth = SharedDepth(num_steps=2, d_model=4)
        >>> print(np.round(depth.enter(np.zeros((1, 4)), 0, lambda inputs: inputs), 2))
        [[0.84 0.54 0.01 1.  ]]
    """

    def __init__(self, num_steps: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(num_steps, **kwargs)
        if d_model % 2:
            raise ValueError(
                f"d_model must be even: each sine needs a cosine. Received: d_model={d_model}. Choose {d_model + 1}."
            )
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
        check_width(self, inputs_shape)
        self.built = True

    def enter(self, inputs: Tensor, step: int, add_positions: AddPositions) -> Tensor:
        inputs = ops.convert_to_tensor(inputs)
        if step > 0:  # The stack has added the positions to the embeddings.
            inputs = add_positions(inputs)
        return inputs + ops.cast(sinusoids(np.array([step + 1]), self.d_model), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model}


class Halting(NamedTuple):
    """What adaptive computation time knows of each position between two steps.

    Example:
        With a threshold of 0.75, the halting probabilities 0.5 and 0.375 give the two steps the weights 0.5 and 0.5:

        >>> halting = Halting.start(np.zeros((1, 1), "float32"))
        >>> first, halting = halting.after(np.array([[0.5]], "float32"), threshold=0.75)
        >>> second, halting = halting.after(np.array([[0.375]], "float32"), threshold=0.75)
        >>> float(first[0, 0]), float(second[0, 0]), bool(halting.running[0, 0]), float(halting.steps[0, 0])
        (0.5, 0.5, False, 2.0)
    """

    running: Tensor  # (..., 1) booleans: whether the position has not halted
    total: Tensor  # (..., 1) float32: the sum of its halting probabilities while it ran
    steps: Tensor  # (..., 1) float32
    remainders: Tensor  # (..., 1) float32

    @classmethod
    def start(cls, like: Tensor) -> Self:
        """Before the first step, for positions like those of the tensor `like` (..., 1)."""
        zeros = ops.zeros_like(like, dtype="float32")
        return cls(ops.equal(zeros, 0.0), zeros, zeros, zeros)

    def after(self, probability: Tensor, threshold: float, is_last: bool = False) -> tuple[Tensor, Self]:
        """After one more step.

        A position halts when the sum of its halting probabilities reaches the threshold, at the latest at the last
        step. The weight of a step is its halting probability, and for the step at which the position halts what is
        missing to 1: the remainder. A position that has halted has the weight 0.

        Args:
            probability: (..., 1) float32, the halting probability of the step.
            threshold: 1 - epsilon.
            is_last: Whether no further step follows.

        Returns:
            The weight of the step's output, (..., 1) float32, and the new state.
        """
        total = self.total + probability
        halts = self.running if is_last else ops.logical_and(self.running, total >= threshold)
        running = ops.cast(self.running, "float32")
        remainder = ops.where(halts, 1.0 - self.total, 0.0)
        weight = ops.where(halts, remainder, running * probability)
        still = ops.logical_and(self.running, ops.logical_not(halts))
        return weight, type(self)(still, total, self.steps + running, self.remainders + remainder)


@keras.saving.register_keras_serializable(package="kformer")
class AdaptiveDepth(SharedDepth):
    """One layer, applied to each position until it halts: the Universal Transformer with adaptive computation time.

    After each step a position has the halting probability sigmoid(w s + b) of its output s. The result is the mean of
    the outputs with the weights of `Halting.after`. A position that has halted keeps its last output: the others go on
    attending to it. All steps are computed for all positions, so halting changes the result and saves no time.

    The two papers do not agree in two points, in which this class follows Graves: s is the output of the step, not its
    input, and the result is the weighted mean, which the Universal Transformer's program replaces by a moving average.

    Args:
        num_steps: The largest number of steps.
        d_model: D; must be even.
        halting_epsilon: Positions halt at a sum of 1 - epsilon, so that they can halt after the first step.
        ponder_cost: tau: what a unit of the mean ponder time adds to the loss of a training step.

    Raises:
        ValueError: `d_model` is odd, or inputs have another width.

    Example:
        New layers halt after the second step, because their halting probabilities are near sigmoid(1) = 0.73:

        >>> depth = AdaptiveDepth(num_steps=6, d_model=8)
        >>> depth.build((1, 3, 8))
        >>> outputs, ponder = depth.run(np.zeros((1, 3, 8), "float32"), lambda step, x: x, lambda x: x)
        >>> np.asarray(ponder.steps).tolist()
        [[2.0, 2.0, 2.0]]
    """

    def __init__(
        self, num_steps: int, d_model: int, halting_epsilon: float = 0.01, ponder_cost: float = 0.01, **kwargs: Any
    ) -> None:
        super().__init__(num_steps, d_model, **kwargs)
        self.halting_epsilon = halting_epsilon
        self.ponder_cost = ponder_cost

    @classmethod
    def from_sizes(
        cls, num_steps: int, d_model: int, halting_epsilon: float, ponder_cost: float, dtype: Any = None
    ) -> Self:
        return cls(num_steps, d_model, halting_epsilon, ponder_cost, dtype=dtype, name="depth")

    def build(self, inputs_shape: tuple) -> None:
        super().build(inputs_shape)
        # In float32 under every mixed policy: a sum of probabilities decides when a position halts.
        self.halting_kernel = self.add_weight(
            shape=(self.d_model,), initializer=small_normal(), name="halting_kernel", autocast=False
        )
        # At first positions should halt early (Graves, section 2): sigmoid(1) = 0.73.
        self.halting_bias = self.add_weight(shape=(), initializer="ones", name="halting_bias", autocast=False)

    def run(self, inputs: Tensor, apply: ApplyLayer, add_positions: AddPositions) -> tuple[Tensor, Ponder | None]:
        state = ops.convert_to_tensor(inputs)
        halting, mean = Halting.start(state[..., :1]), ops.zeros_like(state, dtype="float32")
        for step in range(self.num_steps):
            outputs = apply(step, self.enter(state, step, add_positions))
            state = ops.where(halting.running, outputs, state)
            weight, halting = halting.after(
                self._probability(outputs), 1.0 - self.halting_epsilon, is_last=step == self.num_steps - 1
            )
            mean = mean + weight * ops.cast(outputs, "float32")
        ponder = Ponder(ops.squeeze(halting.steps, -1), ops.squeeze(halting.remainders, -1), self.ponder_cost)
        return ops.cast(mean, state.dtype), ponder

    def _probability(self, outputs: Tensor) -> Tensor:
        """(..., 1) float32: the halting probability after a step with these outputs (..., D)."""
        kernel, bias = (ops.cast(weight, "float32") for weight in (self.halting_kernel, self.halting_bias))
        return ops.sigmoid(ops.sum(ops.cast(outputs, "float32") * kernel, axis=-1, keepdims=True) + bias)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "halting_epsilon": self.halting_epsilon, "ponder_cost": self.ponder_cost}
