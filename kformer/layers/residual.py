"""The residual connection with layer norm and dropout that wraps every sublayer (sections 3.1 and 5.4)."""

from collections.abc import Callable
from typing import Any

import keras

from kformer.layers.dropout import Dropout
from kformer.layers.normalization import LAYER_NORM_EPSILON, make_norm
from kformer.layers.tensors import Tensor


@keras.saving.register_keras_serializable(package="kformer")
class ResidualConnection(keras.layers.Layer):
    """LayerNorm(x + Dropout(Sublayer(x))) as in the paper, or x + Dropout(Sublayer(LayerNorm(x))).

    Args:
        dropout_rate: P_drop, applied to the sublayer's output before it is added (section 5.4).
        norm_first: Whether the norm comes before the sublayer (the second form).
        layer_norm_epsilon: Added to the variance in the norm; the paper gives no value.
        normalization: "layer_norm", or "rms_norm" for RMS normalization.

    Examples:
        The norm of (1, 3) is (-1, 1); the norm of (1, 3) + 10 * (1, 3) is the same:

        >>> inputs = np.array([[[1.0, 3.0]]])
        >>> print(np.round(ResidualConnection()(inputs, sublayer=lambda x: 10 * x), 2))
        [[[-1.  1.]]]
        >>> print(np.round(ResidualConnection(norm_first=True)(inputs, sublayer=lambda x: 10 * x), 2))
        [[[-9. 13.]]]
    """

    def __init__(
        self,
        dropout_rate: float = 0.0,
        norm_first: bool = False,
        layer_norm_epsilon: float = LAYER_NORM_EPSILON,
        normalization: str = "layer_norm",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dropout_rate = dropout_rate
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.normalization = normalization
        self.norm = make_norm(normalization, layer_norm_epsilon, dtype=self.dtype_policy, name="norm")
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")

    def build(self, inputs_shape: tuple) -> None:
        self.norm.build(inputs_shape)
        self.built = True

    def call(self, inputs: Tensor, sublayer: Callable[[Tensor], Tensor], training: bool | None = None) -> Tensor:
        """Applies `sublayer` with the residual connection around it.

        Args:
            inputs: (B, T, D) floats.
            sublayer: A function from (B, T, D) to (B, T, D).
            training: Whether dropout is applied.

        Returns:
            (B, T, D) floats.
        """
        if self.norm_first:
            return inputs + self.dropout(sublayer(self.norm(inputs)), training=training)
        return self.norm(inputs + self.dropout(sublayer(inputs), training=training))

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout_rate": self.dropout_rate,
            "norm_first": self.norm_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "normalization": self.normalization,
        }
