"""What encoder and decoder have in common: their sizes, and how layers make a stack."""

from typing import Any

import keras

from kformer.layers.dropout import Dropout
from kformer.layers.residual import layer_norm

Tensor = Any


class SizedLayer(keras.layers.Layer):
    """A layer with the sizes of a Transformer; maps (B, T, D) to (B, T, D).

    Args:
        d_model: D.
        num_heads: h.
        d_ff: Inner size of the feed-forward network.
        dropout_rate: P_drop.
        attention_dropout_rate: Dropout of attention weights; the paper drops none.
        norm_first: Layer norm before each sublayer, not after the sum.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.0,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.norm_first = norm_first
        self._make_sublayers()

    def _make_sublayers(self) -> None:
        """Makes what the layer consists of, from its sizes."""

    def sizes(self) -> dict[str, Any]:
        """The constructor arguments above, by name."""
        return {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "norm_first": self.norm_first,
        }

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.sizes()}


class Stack(SizedLayer):
    """Dropout on the embeddings (section 5.4), then `num_layers` layers of `layer_class`.

    With `norm_first` the stack ends in one more layer norm, since its layers leave their sums bare.

    Args:
        num_layers: N.
        sizes: The arguments of `SizedLayer`, in its order.
    """

    layer_class: type[SizedLayer]

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.0,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(d_model, num_heads, d_ff, dropout_rate, attention_dropout_rate, norm_first, **kwargs)
        self.num_layers = num_layers
        dtype = self.dtype_policy
        self.dropout = Dropout(dropout_rate, dtype=dtype, name="dropout")
        self.layers = [
            self.layer_class(**self.sizes(), dtype=dtype, name=f"layer_{index}") for index in range(num_layers)
        ]
        self.final_norm = layer_norm(dtype, "final_norm") if norm_first else None

    def build(self, inputs_shape: tuple) -> None:
        for layer in self.layers:
            layer.build(inputs_shape)
        if self.final_norm is not None:
            self.final_norm.build(inputs_shape)
        self.built = True

    def finish(self, outputs: Tensor) -> Tensor:
        """The last norm, where the stack has one."""
        return outputs if self.final_norm is None else self.final_norm(outputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers}
