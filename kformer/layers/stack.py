"""The base classes of encoder and decoder: a layer with its options and sublayers, and a stack of layers."""

import functools
from collections.abc import Callable
from typing import Any, Self

import keras
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.attention import MultiHeadAttention
from kformer.layers.depth import AddPositions, ApplyLayer, Depth, Ponder, StackedDepth
from kformer.layers.dropout import Dropout
from kformer.layers.feed_forward import make_feed_forward
from kformer.layers.normalization import LAYER_NORM_EPSILON, make_norm
from kformer.layers.positional_encoding import Positions
from kformer.layers.reach import Reach, make_reach
from kformer.layers.residual import ResidualConnection
from kformer.layers.tensors import Rotation, ScoreBias, Tensor, check_width


class TransformerLayer(keras.layers.Layer):
    """Self-attention and a feed-forward network, each in a residual connection; maps (B, T, D) to (B, T, D).

    Abstract: a subclass implements `call`, and also `step` if a `Decoder` decodes with it step by step.
    Implicit Keras masks are honoured where no explicit mask is given, and passed on.

    Args:
        d_model: D.
        num_heads: h.
        d_ff: Inner size of the feed-forward network.
        dropout_rate: P_drop.
        attention_dropout_rate: Dropout of attention weights; the paper drops none.
        norm_first: Layer norm before each sublayer, not after the sum.
        activation: Name of a Keras activation, for the feed-forward network; the paper's is "relu". "swiglu" and
            "geglu" are networks with a gate, see `GatedFeedForward`.
        normalization: "layer_norm", or "rms_norm" for RMS normalization.
        layer_norm_epsilon: Added to the variance in every norm.
        use_bias: Whether the projections of the attention and the feed-forward network have biases.
        num_key_value_heads: Heads of keys and values in every attention, see `MultiHeadAttention`; None: h.

    Raises:
        ValueError: `d_model` is not divisible by `num_heads`, `num_heads` not by `num_key_value_heads`, or inputs have
            another width than `d_model`.

    Example:
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
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
        self._make_sublayers()

    def _make_sublayers(self) -> None:
        """Makes the sublayers. A layer with more sublayers adds them here."""
        self.self_attention = self._attention("self_attention")
        self.feed_forward = make_feed_forward(
            self.d_model, self.d_ff, self.activation, self.use_bias, dtype=self.dtype_policy, name="feed_forward"
        )
        self.self_attention_residual = self._residual("self_attention_residual")
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def _attention(self, name: str) -> MultiHeadAttention:
        return MultiHeadAttention(
            d_model=self.d_model,
            num_heads=self.num_heads,
            dropout_rate=self.attention_dropout_rate,
            use_bias=self.use_bias,
            num_key_value_heads=self.num_key_value_heads,
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
        }


def recording(attention: MultiHeadAttention, scores: list[Tensor], **arguments: Any) -> Callable[[Tensor], Tensor]:
    """A function that computes `attention` without dropout, and appends the attention weights to `scores`.

    Args:
        attention: The sublayer.
        scores: Each call appends the weights (B, H, T, S) after the softmax.
        arguments: The arguments of the attention, except its queries.
    """

    def attend(query: Tensor) -> Tensor:
        scores.append(attention.attention_scores(query, **arguments))
        return attention(query, **arguments, training=False)

    return attend


def _check_replicas() -> None:
    """Refuses a loss of a layer under `tf.distribute`.

    Keras keeps it in a list of the layer, which all replicas share. While they wait for each other in
    `LabelSmoothedCrossEntropy`, each overwrites the list, and only the gradient of the last one's loss would count.

    Raises:
        ValueError: There are several replicas.
    """
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            "The ponder cost of AdaptiveDepth cannot be trained under tf.distribute with several replicas. "
            f"Received: {replicas} replicas. Train on one device (devices=1), or on JAX (KERAS_BACKEND=jax)."
        )


def _unchanged(inputs: Tensor) -> Tensor:
    return inputs


def _of_rows(
    positions: Positions, rows: Tensor, score_bias: ScoreBias | None
) -> tuple[AddPositions, dict[str, ScoreBias | Rotation | None]]:
    """How the positions of these rows of the table are added to inputs, and how they act on a layer."""
    add, rotate = (functools.partial(act, rows=rows) for act in (positions.add, positions.rotate))
    return add, {"score_bias": score_bias, "rotation": rotate}


class Stack(keras.layers.Layer):
    """Applies positions and dropout to the embeddings (sections 3.5 and 5.4), and then one layer after another.

    A stack of layers with `norm_first` ends in one more layer norm, because such layers do not normalize their output.
    If positions halt (`AdaptiveDepth`), a call in training adds the ponder cost to the losses; other calls do not.

    Args:
        layers: The layers, in order. All have the same `d_model`, `num_heads` and `num_key_value_heads`.
        positions: The positional encoding, or None if the inputs contain their positions already.
        dropout_rate: P_drop on the embeddings.
        attention_window: r: each position attends to those that are less than r positions away, in self-attention
            (section 4). Attention masks must then be masks of keys, (B, 1, 1, T), and positions with a bias must count
            distances. None: to all positions.
        depth: Which layer runs at which step; None: `StackedDepth`, each layer once.

    Raises:
        ValueError: `attention_window` is below 1, or the depth needs another number of layers; or the stack is called
            in training with `AdaptiveDepth` under `tf.distribute` with several replicas.

    Example:
        >>> stacks = [Encoder([EncoderLayer(8, 2, 16, norm_first=norm_first)]) for norm_first in (False, True)]
        >>> [isinstance(stack, Stack) for stack in stacks], [stack.final_norm is not None for stack in stacks]
        ([True, True], [False, True])
    """

    causal = False  # whether a position attends to no later ones

    def __init__(
        self,
        layers: list[TransformerLayer],
        positions: Positions | None = None,
        dropout_rate: float = 0.1,
        attention_window: int | None = None,
        depth: Depth | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.layers = list(layers)
        self.positions = positions
        self.dropout_rate = dropout_rate
        self.attention_window = attention_window
        self.reach = make_reach(attention_window, self.causal)
        self.depth = StackedDepth(len(layers), dtype=self.dtype_policy, name="depth") if depth is None else depth
        if self.depth.num_layers != len(self.layers):
            raise ValueError(
                f"{type(self.depth).__name__} needs a number of layers of {self.depth.num_layers}. "
                f"Received: {len(self.layers)} layers. Pass as many layers as it needs, or another depth."
            )
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.final_norm = None
        # With `norm_first`, the output of the last layer is a sum without a norm after it.
        if self.layers and self.layers[-1].norm_first:
            last = self.layers[-1]
            self.final_norm = make_norm(
                last.normalization, last.layer_norm_epsilon, dtype=self.dtype_policy, name="final_norm"
            )

    def build(self, inputs_shape: tuple) -> None:
        for sublayer in (self.positions, self.depth, *self.layers, self.final_norm):
            if sublayer is not None and not sublayer.built:
                sublayer.build(inputs_shape)
        self.built = True

    def layer_at(self, step: int) -> Any:
        """The layer that runs at a step, from 0 to `depth.num_steps` - 1."""
        return self.layers[self.depth.layer_number(step)]

    def _apply_positions(
        self, inputs: Tensor, training: bool | None, reach: Reach
    ) -> tuple[Tensor, AddPositions, dict[str, ScoreBias | Rotation | None]]:
        """The embeddings with positions and dropout, how to add positions again, and how they act on each layer.

        The last are the layers' arguments `score_bias` and `rotation`.
        """
        if self.positions is None:
            return self.dropout(inputs, training=training), _unchanged, {}
        rows = self.positions.table(ops.shape(inputs)[1])
        add, acting = _of_rows(self.positions, rows, reach.score_bias(self.positions, rows))
        return self.dropout(add(inputs), training=training), add, acting

    def _apply_positions_step(
        self, inputs: Tensor, room: int | Tensor, position: int | Tensor, table: Tensor | None
    ) -> tuple[Tensor, AddPositions, dict[str, ScoreBias | Rotation | None]]:
        """`_apply_positions` for one position, without dropout; `room` is how many positions the caches keep."""
        if self.positions is None:
            return inputs, _unchanged, {}
        if table is None:
            table = self.positions.table(room)
        here = take_rows(table, ops.reshape(position, (1,)))  # one row
        score_bias = self.positions.score_bias(here, self.reach.kept_rows(table, position, room))
        add, acting = _of_rows(self.positions, here, score_bias)
        return add(inputs), add, acting

    def _run(self, inputs: Tensor, apply: ApplyLayer, add_positions: AddPositions) -> tuple[Tensor, Ponder | None]:
        """Applies the layers, and the final norm if the stack has one."""
        outputs, ponder = self.depth.run(inputs, apply, add_positions)
        return outputs if self.final_norm is None else self.final_norm(outputs), ponder

    def _with_cost(self, result: tuple[Tensor, Ponder | None], counted: Tensor | None, training: bool | None) -> Tensor:
        """The output of `_run`; in training, the ponder cost is added to the losses."""
        outputs, ponder = result
        if training and ponder is not None:
            _check_replicas()
            self.add_loss(ponder.loss(counted))
        return outputs

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "layers": [keras.saving.serialize_keras_object(layer) for layer in self.layers],
            "positions": keras.saving.serialize_keras_object(self.positions),
            "dropout_rate": self.dropout_rate,
            "attention_window": self.attention_window,
            "depth": keras.saving.serialize_keras_object(self.depth),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        names = ("layers", "positions", "depth")
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in names}
        return cls(**{**config, **parts})
