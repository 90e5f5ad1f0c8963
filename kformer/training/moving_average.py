"""What kformer's optimizers have besides Keras's: a moving average of the weights, and the norm of the gradient."""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops


class MovingAverage(keras.optimizers.Optimizer):
    """The part of an optimizer that keeps a moving average of the weights and the norm of the last gradient.

    A class of an optimizer names it before the class of Keras that updates the weights.

    With the weights w_t after update t = 1, 2, ..., the average is a_t = d_t a_(t-1) + (1 - d_t) w_t with
    d_t = min(ema_decay, (t - 1) / (t + 8)). At first it is a mean of about the last ninth of the updates
    (polynomial-decay averaging, Shamir and Zhang 2013, section 4, eta = 8), later an exponential moving average. The
    trained weights are kept beside it. (Keras's `use_ema` begins its average with the random weights and counts
    micro-batches as updates. At the end of `fit` it replaces the weights by their averages, so that training could not
    be continued.)

    Args:
        ema_decay: The largest d_t, from 0 up to below 1. With 0 no averages are kept.
        arguments: The arguments of the class of Keras.

    Attributes:
        gradient_norm: () float32 variable: the L2 norm of the last batch's gradient over all weights, before it is
            clipped (with gradient accumulation, of the last micro-batch's). Under `tf.distribute` it is the norm of the
            first replica's share of the gradient.
        averages_in_model: () bool variable, if there are averages: whether `put_averages` has put them into the model,
            and the trained weights into their place. It is saved with the optimizer, so that a file tells which are
            which. An update makes it False: the weights are trained ones then, and the average begins with them.

    Raises:
        ValueError: `use_ema` is given.
    """

    def __init__(self, *, ema_decay: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ema_decay = ema_decay
        if self.use_ema:
            raise ValueError(f"{type(self).__name__} has no use_ema. Received: use_ema=True. Give ema_decay instead.")

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        # All replicas of a distribution strategy hold the same values. Without a strategy this has no effect.
        same = "only_first_replica"
        self.gradient_norm = self.add_variable((), name="gradient_norm", dtype="float32", aggregation=same)
        self._averages = []
        if self.ema_decay > 0:
            self.averages_in_model = self.add_variable((), name="averages_in_model", dtype="bool", aggregation=same)
            self._averages = [
                self.add_variable(weight.shape, name="average", dtype=weight.dtype, aggregation=same)
                for weight in variables
            ]

    def apply(self, grads: list[Any], trainable_variables: list[keras.Variable] | None = None) -> Any:
        grads = [None if gradient is None else _dense(gradient) for gradient in grads]
        squares = [ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in grads if gradient is not None]
        iterations = super().apply(grads, trainable_variables)  # builds what is not built yet
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        self._average()
        return iterations

    def _weights_and_averages(self) -> Iterable[tuple[keras.Variable, keras.Variable]]:
        # The list of the weights is Keras's. If this class kept a list of its own, Keras would count the weights among
        # the optimizer's variables.
        return zip(self._trainable_variables if self._averages else (), self._averages, strict=True)

    def _average(self) -> None:
        """Updates the averages with the weights if the last micro-batch has completed an update."""
        if not self._averages:
            return
        is_update = ops.equal(self._iterations % (self.gradient_accumulation_steps or 1), 0)
        updates = ops.cast(self.iterations, "float32")
        kept = ops.minimum(self.ema_decay, (updates - 1) / (updates + 8))
        in_model = ops.convert_to_tensor(self.averages_in_model)
        kept = ops.where(in_model, 0.0, kept)
        kept = ops.where(is_update, kept, 1.0)
        self.averages_in_model.assign(ops.logical_and(in_model, ops.logical_not(is_update)))
        for weight, average in self._weights_and_averages():
            share = ops.cast(kept, average.dtype)
            average.assign(share * average + (1 - share) * weight)

    def _has_averages(self) -> bool:
        """Whether there are averages, and was an update. Before it, the averages are zeros."""
        return self.built and bool(self._averages) and int(ops.convert_to_numpy(self.iterations)) > 0

    def put_averages(self, in_model: bool) -> None:
        """Lets the weights and their averages change places, or back. Nothing is rounded.

        Args:
            in_model: Whether the averages are to be in the model. If they are where they should be, if there was no
                update yet, or if no averages are kept, nothing happens.
        """
        if not self._has_averages() or bool(ops.convert_to_numpy(self.averages_in_model)) == in_model:
            return
        for weight, average in self._weights_and_averages():
            value = ops.copy(weight)
            weight.assign(average)
            average.assign(value)
        self.averages_in_model.assign(in_model)

    def assign_averages(self) -> None:
        """Replaces the weights by their averages, if there was an update. The averages stay as they are."""
        if not self._has_averages():
            return
        for weight, average in self._weights_and_averages():
            weight.assign(average)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ema_decay": self.ema_decay}


def _dense(gradient: Any) -> Any:
    """The gradient as one tensor. TensorFlow's of a Keras embedding is a list of rows, of which one may come twice.

    The norm of such a list would not be that of the gradient.
    """
    if keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)
