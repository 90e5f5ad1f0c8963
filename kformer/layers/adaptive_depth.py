"""Depth that depends on the position: the adaptive computation time (ACT) of Graves 2016, in a Universal Transformer.

Sources: Graves, "Adaptive Computation Time for Recurrent Neural Networks", section 2, and Dehghani et al. 2018,
"Universal Transformers", section 2.2.

Shape letters: B batch, T positions, D model size. A step of a search has the shape (N, ...) in place of (B, T, ...).
"""

from typing import Any, NamedTuple, Self

import keras
from keras import ops

from kformer.layers.depth import AddPositions, ApplyLayer, Ponder, SharedDepth
from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor


class Halting(NamedTuple):
    """The state of adaptive computation time for each position, between two steps.

    Examples:
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
        """The state before the first step, in the shape of the tensor `like` (..., 1)."""
        zeros = ops.zeros_like(like, dtype="float32")
        return cls(ops.equal(zeros, 0.0), zeros, zeros, zeros)

    def after(self, probability: Tensor, threshold: float, is_last: bool = False) -> tuple[Tensor, Self]:
        """Counts one more step: which weight its output has at each position, and which positions halt.

        A position halts when the sum of its halting probabilities reaches the threshold, at the latest at the last
        step. The weight of a step is its halting probability. The step at which the position halts has the remainder as
        its weight: 1 minus the probabilities of the steps before. After a position has halted, its weights are 0.

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

    The two papers differ in two points, and this class follows Graves: s is the output of the step, not its input; and
    the result is the weighted mean, where the program of the Universal Transformer has a moving average.

    Args:
        num_steps: The largest number of steps.
        d_model: D; must be even. None: the width of the first inputs.
        halting_epsilon: Positions halt at a sum of 1 - epsilon, so that they can halt after the first step.
        ponder_cost: tau: what a unit of the mean ponder time adds to the loss of a training step.

    Raises:
        ValueError: `d_model` is odd, or inputs have another width.

    Examples:
        New layers halt after the second step, because their halting probabilities are near sigmoid(1) = 0.73:

        >>> depth = AdaptiveDepth(num_steps=6, d_model=8)
        >>> depth.build((1, 3, 8))
        >>> outputs, ponder = depth.run(np.zeros((1, 3, 8), "float32"), lambda step, x: x, lambda x: x)
        >>> np.asarray(ponder.steps).tolist()
        [[2.0, 2.0, 2.0]]
    """

    def __init__(
        self,
        num_steps: int,
        d_model: int | None = None,
        halting_epsilon: float = 0.01,
        ponder_cost: float = 0.01,
        **kwargs: Any,
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
