"""The position-wise feed-forward network (section 3.3)."""

from typing import Any

import keras

from kformer.layers.initializers import small_normal

Tensor = Any


@keras.saving.register_keras_serializable(package="kformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2.

    Args:
        d_model: Size of inputs and outputs.
        d_ff: Size of the inner layer.
    """

    def __init__(self, d_model: int, d_ff: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.inner = self._dense(d_ff, "relu", "inner")
        self.outer = self._dense(d_model, None, "outer")

    def _dense(self, units: int, activation: str | None, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            units, activation=activation, kernel_initializer=small_normal(), dtype=self.dtype_policy, name=name
        )

    def build(self, inputs_shape: tuple) -> None:
        self.inner.build(inputs_shape)
        self.outer.build((*inputs_shape[:-1], self.d_ff))
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (..., d_model) floats to the same shape, each position by itself."""
        return self.outer(self.inner(inputs))

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return (*inputs_shape[:-1], self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model, "d_ff": self.d_ff}
