"""The base class of encoder and decoder layers: the options and the sublayers that all of them have.

Shape letters: B batch, H heads, G heads of keys and values, K size of a head, T target length, S source length,
D model size.
"""

from collections.abc import Callable
from typing import Any

import keras

from kformer.layers.attention import MultiHeadAttention
from kformer.layers.feed_forward import make_feed_forward
from kformer.layers.normalization import LAYER_NORM_EPSILON
from kformer.layers.residual import ResidualConnection
from kformer.layers.tensors import Tensor, check_width


class TransformerLayer(keras.layers.Layer):
    """Self-attention and a feed-forward network, each in a residual connection; maps (B, T, D) to (B, T, D).

    Abstract: a subclass implements `call`, and also `step` if a `Decoder` decodes with it step by step.
    Implicit Keras masks are used where no explicit mask is given, and passed on.

    Args:
        d_model: D.
        num_heads: h.
        d_ff: Inner size of the feed-forward network.
        dropout_rate: P_drop.
        attention_dropout_rate: Dropout of attention weights; the paper drops none.
        norm_first: Layer norm before each sublayer, not after the sum.
        activation: Of the feed-forward network, see `FeedForward`; the paper's is "relu". "swiglu", "geglu" and
            "geglu_tanh" are networks with a gate, see `GatedFeedForward`.
        normalization: "layer_norm", or "rms_norm" for RMS normalization.
        layer_norm_epsilon: Added to the variance in every norm.
        use_bias: Whether the projections of the attention and the feed-forward network have biases.
        num_key_value_heads: Heads of keys and values in every attention, see `MultiHeadAttention`; None: h.
        head_dim: Size of a head in every attention; None: d_model / h.
        max_relative_distance: Of the self-attention's own vectors for distances, see `MultiHeadAttention`; None: it has
            none.

    Raises:
        ValueError: `d_model` is not divisible by `num_heads` and there is no `head_dim`; `num_heads` is not divisible
            by `num_key_value_heads`; or inputs have another width than `d_model`.

    Examples:
        >>> layer = EncoderLayer(d_model=8, num_heads=2, d_ff=16, activation="gelu")
        >>> isinstance(layer, TransformerLayer), layer.self_attention.head_dim, layer.feed_forward.activation
        (True, 4, 'gelu')
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.0,
        norm_first: bool = False,
        activation: str = "relu",
        normalization: str = "layer_norm",
        layer_norm_epsilon: float = LAYER_NORM_EPSILON,
        use_bias: bool = True,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        max_relative_distance: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.norm_first = norm_first
        self.activation = activation
        self.normalization = normalization
        self.layer_norm_epsilon = layer_norm_epsilon
        self.use_bias = use_bias
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.max_relative_distance = max_relative_distance
        self._make_sublayers()

    def _make_sublayers(self) -> None:
        """Makes the sublayers. A layer with more sublayers adds them here."""
        self.self_attention = self._attention("self_attention", self.max_relative_distance)
        self.feed_forward = make_feed_forward(
            self.d_model, self.d_ff, self.activation, self.use_bias, dtype=self.dtype_policy, name="feed_forward"
        )
        self.self_attention_residual = self._residual("self_attention_residual")
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def _attention(self, name: str, max_relative_distance: int | None = None) -> MultiHeadAttention:
        return MultiHeadAttention(
            d_model=self.d_model,
            num_heads=self.num_heads,
            dropout_rate=self.attention_dropout_rate,
            use_bias=self.use_bias,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.head_dim,
            max_relative_distance=max_relative_distance,
            dtype=self.dtype_policy,
            name=name,
        )

    def _residual(self, name: str) -> ResidualConnection:
        return ResidualConnection(
            dropout_rate=self.dropout_rate,
            norm_first=self.norm_first,
            layer_norm_epsilon=self.layer_norm_epsilon,
            normalization=self.normalization,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, inputs_shape: tuple) -> None:
        check_width(self, inputs_shape)
        self.self_attention.build(inputs_shape)
        self.self_attention_residual.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual.build(inputs_shape)
        self.built = True

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "normalization": self.normalization,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "use_bias": self.use_bias,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_relative_distance": self.max_relative_distance,
        }


def recording(attention: MultiHeadAttention, scores: list[Tensor], **arguments: Any) -> Callable[[Tensor], Tensor]:
    """A function that computes `attention`, by default without dropout, and appends its weights to `scores`.

    Args:
        attention: The sublayer.
        scores: Each call appends the weights (B, H, T, S) after the softmax.
        arguments: The arguments of the attention, except its queries.
    """

    def attend(query: Tensor) -> Tensor:
        outputs, weights = attention(query, **{"training": False, **arguments}, return_attention_scores=True)
        scores.append(weights)
        return outputs

    return attend
