"""The dense layer of this package, and dtype policies that replace how products with weights are computed.

Shape letters: K inputs, M outputs, V vocabulary, D model size.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import keras

from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor


class Arithmetic(keras.DTypePolicy, abc.ABC):
    """A dtype policy that also computes the products with weights.

    Every layer hands its dtype policy down to its sublayers. Under a plain policy `Dense` and `TokenEmbedding` compute
    as Keras does. Under an `Arithmetic` they call its methods instead. So an exported model can compute in the number
    formats of a server, and its layers stay the same.
    """

    @abc.abstractmethod
    def dense(self, layers: Sequence["Dense"], inputs: Tensor) -> list[Tensor]:
        """Applies each of `layers` to the same inputs: (..., K) floats to (..., M) floats.

        The biases are added. The activation is applied only if there is a single layer.
        """

    def dense_twice(self, first: "Dense", second: "Dense", inputs: Tensor) -> Tensor:
        """Applies `first` and then `second`, which has no activation, to (..., K) floats."""
        return self.dense([second], self.dense([first], inputs)[0])[0]

    @abc.abstractmethod
    def normalize(self, layer: keras.layers.LayerNormalization, inputs: Tensor) -> Tensor:
        """Layer normalization: (..., D) floats to the same shape."""

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
        activation: An activation, or the name of one of Keras; None for none.
        use_bias: Whether the bias b is added.
    """

    def __init__(
        self,
        units: int,
        activation: str | Callable[[Tensor], Tensor] | None = None,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("kernel_initializer", small_normal())
        super().__init__(units, activation=activation, use_bias=use_bias, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (..., K) floats to (..., M) floats."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.dense([self], inputs)[0]
        return super().call(inputs, training=training)

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """As Keras's layer, which refuses classes that extend it: they might compute something else."""
        super().quantize(mode, type_check=type_check and type(self) is not Dense, config=config)


@keras.saving.register_keras_serializable(package="kformer")
class KeptDense(Dense):
    """Keeps the weights of a dense layer for a model that begins with them. Its inputs pass unchanged.

    Args:
        kwargs: Those of `Dense`.

    Examples:
        >>> layer = KeptDense(8)
        >>> inputs = np.ones((1, 3, 8))
        >>> bool(np.all(layer(inputs) == inputs)), len(layer.weights), layer.trainable_weights
        (True, 2, [])
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(units, **{"trainable": False, **kwargs})

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """(..., M) floats to the same."""
        return inputs

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return tuple(input_shape)


def project_together(layers: Sequence[Dense], inputs: Tensor) -> list[Tensor]:
    """Applies dense layers without activation to the same inputs; under an `Arithmetic`, in one product.

    Args:
        layers: Layers of the same dtype policy.
        inputs: (..., K) floats.

    Returns:
        For each layer, (..., M) floats.
    """
    policy = layers[0].dtype_policy
    if isinstance(policy, Arithmetic):
        return policy.dense(layers, inputs)
    return [layer(inputs) for layer in layers]
