"""Products with weights: the dense layer of this package, and the policies that compute it in another way.

Shape letters: K inputs, M outputs, V vocabulary, D model size.
"""

import abc
from typing import Any

import keras

from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor


class Arithmetic(keras.DTypePolicy, abc.ABC):
    """A dtype policy that also computes the products with weights.

    Every layer hands its dtype policy down to its sublayers. Under a plain policy `Dense` and `TokenEmbedding` compute
    as Keras does. Under a policy of this kind they leave their products to the policy. So a model that is exported
    computes in the number formats of a server, and its layers do not know of exports.
    """

    @abc.abstractmethod
    def dense(self, layer: "Dense", inputs: Tensor) -> Tensor:
        """What `layer` computes: (..., K) floats to (..., M) floats, with its bias and activation."""

    @abc.abstractmethod
    def embed(self, layer: keras.layers.Embedding, ids: Tensor) -> Tensor:
        """Rows of the embedding matrix: (...) integer ids to (..., D) floats."""

    @abc.abstractmethod
    def project(self, layer: keras.layers.Embedding, inputs: Tensor) -> Tensor:
        """Logits: (..., D) floats to (..., V) floats."""


@keras.saving.register_keras_serializable(package="kformer")
class Dense(keras.layers.Dense):
    """Keras's dense layer, activation(x W + b), with small initial weights.

    Args:
        units: M.
        activation: Name of a Keras activation, or None.
        use_bias: Whether the bias b is added.
    """

    def __init__(self, units: int, activation: str | None = None, use_bias: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("kernel_initializer", small_normal())
        super().__init__(units, activation=activation, use_bias=use_bias, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (..., K) floats to (..., M) floats."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.dense(self, inputs)
        return super().call(inputs, training=training)
