"""The position-wise feed-forward network (section 3.3), and the one with a gate."""

from collections.abc import Callable
from typing import Any

import keras

from kformer.layers.dense import Arithmetic, Dense, project_together
from kformer.layers.tensors import Tensor


def gelu_tanh(inputs: Tensor) -> Tensor:
    """GELU with a tanh in place of the normal distribution function (Hendrycks and Gimpel 2016, section 2).

    It is the GELU of GPT-2, of T5 from version 1.1 on, and of Gemma: "gelu_new" and "gelu_pytorch_tanh" elsewhere.
    """
    return keras.activations.gelu(inputs, approximate=True)


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name: `gelu_tanh`, or one of Keras."""
    return gelu_tanh if name == "gelu_tanh" else keras.activations.get(name)


@keras.saving.register_keras_serializable(package="kformer")
class FeedForward(keras.layers.Layer):
    """FFN(x) = activation(x W1 + b1) W2 + b2, equation 2, where the activation is max(0, x).

    Args:
        d_model: Size of inputs and outputs.
        d_ff: Size of the inner layer.
        activation: "gelu_tanh", or the name of a Keras activation, such as "relu" (the paper's), "gelu" or "silu".
        use_bias: Whether there are b1 and b2.

    Examples:
        >>> feed_forward = FeedForward(d_model=8, d_ff=32)
        >>> tuple(feed_forward(np.zeros((1, 3, 8))).shape)
        (1, 3, 8)
        >>> [tuple(weight.shape) for weight in feed_forward.weights]
        [(8, 32), (32,), (32, 8), (8,)]
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu", use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.d_model = d_model
        self.d_ff = d_ff
        self.activation = activation
        self.use_bias = use_bias
        dtype = self.dtype_policy
        self.inner = Dense(d_ff, self._inner_activation, use_bias, dtype=dtype, name="inner")
        self.outer = Dense(d_model, None, use_bias, dtype=dtype, name="outer")

    @property
    def _inner_activation(self) -> Callable[[Tensor], Tensor] | None:
        """The activation of the product with W1."""
        return _activation(self.activation)

    def build(self, inputs_shape: tuple) -> None:
        self.inner.build(inputs_shape)
        self.outer.build((*inputs_shape[:-1], self.d_ff))
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (..., d_model) floats to the same shape, each position by itself."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.dense_twice(self.inner, self.outer, inputs)
        return self.outer(self.inner(inputs))

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return (*inputs_shape[:-1], self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "activation": self.activation,
            "use_bias": self.use_bias,
        }


# The names of gated networks, and the activations of their gates.
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


@keras.saving.register_keras_serializable(package="kformer")
class GatedFeedForward(FeedForward):
    """FFN(x) = (gate(x W + b) * (x V + c)) W2 + b2 (Shazeer 2020, "GLU Variants Improve Transformer", equation 6).

    It has three matrices. With d_ff two thirds as large, it has as many weights as `FeedForward`.

    Args:
        d_model: Size of inputs and outputs.
        d_ff: Size of the inner layer.
        activation: "swiglu", where the gate is SiLU (Swish); "geglu", where it is GELU; or "geglu_tanh", where it is
            `gelu_tanh`.
        use_bias: Whether there are b, c and b2; Shazeer has none.

    Raises:
        ValueError: `activation` has another name.

    Examples:
        >>> feed_forward = GatedFeedForward(d_model=8, d_ff=32, activation="swiglu", use_bias=False)
        >>> tuple(feed_forward(np.zeros((1, 3, 8))).shape)
        (1, 3, 8)
        >>> sorted(tuple(weight.shape) for weight in feed_forward.weights)
        [(8, 32), (8, 32), (32, 8)]
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "swiglu", use_bias: bool = True, **kwargs: Any
    ) -> None:
        if activation not in GATES:
            raise ValueError(f"activation must be one of {', '.join(GATES)}. Received: activation={activation!r}.")
        super().__init__(d_model, d_ff, activation, use_bias, **kwargs)
        self.gate = Dense(d_ff, None, use_bias, dtype=self.dtype_policy, name="gate")

    @property
    def _inner_activation(self) -> None:
        return None

    def build(self, inputs_shape: tuple) -> None:
        self.gate.build(inputs_shape)
        super().build(inputs_shape)

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (..., d_model) floats to the same shape, each position by itself."""
        gates, values = project_together([self.gate, self.inner], inputs)
        return self.outer(_activation(GATES[self.activation])(gates) * values)


def make_feed_forward(d_model: int, d_ff: int, activation: str, use_bias: bool, dtype: Any, name: str) -> FeedForward:
    """The network of a layer whose option `activation` is that of `FeedForward`, or one of `GATES`."""
    kind = GatedFeedForward if activation in GATES else FeedForward
    return kind(d_model, d_ff, activation, use_bias, dtype=dtype, name=name)
