"""The base class of encoder and decoder: a stack of layers with positions."""

import functools
from typing import Any, Self

import keras
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.depth import AddPositions, ApplyLayer, Depth, Ponder, StackedDepth
from kformer.layers.dropout import Dropout
from kformer.layers.normalization import make_norm
from kformer.layers.positional_encoding import Positions
from kformer.layers.reach import Reach, make_reach
from kformer.layers.rematerialization import rematerialized
from kformer.layers.tensors import Rotation, ScoreBias, Tensor, rank
from kformer.layers.transformer_layer import TransformerLayer


def _check_replicas() -> None:
    """Refuses a loss that a layer adds under `tf.distribute`.

    Keras keeps such a loss in a list of the layer, which all replicas share. Each replica would overwrite the list
    while it waits for the others in `LabelSmoothedCrossEntropy`, and only the gradient of the last loss would be used.

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
    """The function that adds the positions of these rows of the table to inputs, and a layer's arguments for them."""
    add, rotate = (functools.partial(act, rows=rows) for act in (positions.add, positions.rotate))
    return add, {"score_bias": score_bias, "rotation": rotate}


def _of_queries(
    positions: Positions, rows: Tensor, score_bias: ScoreBias | None
) -> tuple[AddPositions, dict[str, ScoreBias | Rotation | None]]:
    """`_of_rows` for a step over several positions: M rows of the table, one for each vector of the step."""
    number = ops.shape(rows)[0]

    def rotate(heads: Tensor) -> Tensor:  # (M x H or G, K)
        by_vector = ops.reshape(heads, (number, -1, heads.shape[-1]))
        return ops.reshape(positions.rotate(by_vector, ops.expand_dims(rows, 1)), ops.shape(heads))

    return functools.partial(positions.add, rows=rows), {"score_bias": score_bias, "rotation": rotate}


class Stack(keras.layers.Layer):
    """Applies positions and dropout to the embeddings (sections 3.5 and 5.4), and then one layer after another.

    A stack of layers with `norm_first` ends in one more layer norm, because such layers do not normalize their output.
    If positions halt (`AdaptiveDepth`), a call in training adds the ponder cost to the losses; other calls do not.

    Args:
        layers: The layers, in order. All have the same `d_model`, `num_heads` and `num_key_value_heads`.
        positions: The positional encoding, or None if the inputs contain their positions already.
        dropout_rate: P_drop on the embeddings.
        attention_window: r: each position attends to those that are less than r positions away, in self-attention
            (section 4). Attention masks must then be masks of keys, (B, 1, 1, T), and biases of positions must depend
            on distances alone. None: each position attends to all.
        depth: Which layer runs at which step; None: `StackedDepth`, each layer once.
        normalize_embeddings: Whether the embeddings with their positions go through a norm before their dropout, as in
            BERT (Devlin et al. 2019) and BART. It is a norm like those of the last layer; without layers there is none.

    Attributes:
        rematerialize: Whether training keeps only the inputs of each layer, and computes its activations again in the
            backward pass, see `kformer.layers.rematerialization`. It is False at first, and no part of the
            configuration: the outputs and the gradients are the same.

    Raises:
        ValueError: `attention_window` is below 1, a layer stands twice in `layers`, or the depth needs another number
            of layers; or the stack is called in training with `AdaptiveDepth` under `tf.distribute` with several
            replicas.

    Examples:
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
        normalize_embeddings: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.layers = list(layers)
        if len({id(layer) for layer in self.layers}) < len(self.layers):
            raise ValueError(
                "The layers of a stack have weights of their own. Received: one layer several times. Make each layer "
                "anew, as in [EncoderLayer(512, 8, 2048) for _ in range(6)], or pass [layer] and depth=SharedDepth(6)."
            )
        self.positions = positions
        self.dropout_rate = dropout_rate
        self.attention_window = attention_window
        self.reach = make_reach(attention_window, self.causal)
        self.depth = StackedDepth(len(layers), dtype=self.dtype_policy, name="depth") if depth is None else depth
        if self.depth.num_layers != len(self.layers):
            raise ValueError(
                f"With {type(self.depth).__name__}, the number of layers must be {self.depth.num_layers}. "
                f"Received: {len(self.layers)} layers. Pass as many layers as it needs, or another depth."
            )
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy, name="dropout")
        self.normalize_embeddings = normalize_embeddings
        self.embedding_norm = self._make_norm("embedding_norm") if self.layers and normalize_embeddings else None
        self.rematerialize = False
        # With `norm_first`, the output of the last layer is a sum without a norm after it.
        self.final_norm = self._make_norm("final_norm") if self.layers and self.layers[-1].norm_first else None

    def _make_norm(self, name: str) -> keras.layers.Layer:
        last = self.layers[-1]
        return make_norm(last.normalization, last.layer_norm_epsilon, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape: tuple) -> None:
        for sublayer in (self.positions, self.embedding_norm, self.depth, *self.layers, self.final_norm):
            if sublayer is not None and not sublayer.built:
                sublayer.build(inputs_shape)
        self.built = True

    def layer_at(self, step: int) -> Any:
        """The layer that runs at a step, from 0 to `depth.num_steps` - 1."""
        return self.layers[self.depth.layer_number(step)]

    def _apply_layer(self, step: int, inputs: Tensor, training: bool | None, **arguments: Any) -> Any:
        """What the layer that runs at a step returns for whole sequences."""
        if training and self.rematerialize:
            return rematerialized(self.layer_at(step), inputs, **arguments, training=training)
        return self.layer_at(step)(inputs, **arguments, training=training)

    def _apply_positions(
        self, inputs: Tensor, training: bool | None, reach: Reach
    ) -> tuple[Tensor, AddPositions, dict[str, ScoreBias | Rotation | None]]:
        """The embeddings with positions and dropout, the function that adds the positions again, and two arguments.

        These arguments of each layer, `score_bias` and `rotation`, bring the positions into its self-attention.
        """
        if self.positions is None:
            return self.dropout(self._normalized(inputs), training=training), _unchanged, {}
        rows = self.positions.table(ops.shape(inputs)[1])
        add, acting = _of_rows(self.positions, rows, reach.score_bias(self.positions, rows))
        return self.dropout(self._normalized(add(inputs)), training=training), add, acting

    def _apply_positions_step(
        self, inputs: Tensor, room: int | Tensor, at: int | Tensor, table: Tensor | None
    ) -> tuple[Tensor, AddPositions, dict[str, ScoreBias | Rotation | None]]:
        """`_apply_positions` for the vectors (M, D) of a step, without dropout.

        `room` is how many positions the caches keep; `at` is where the queries stand, from `query_positions`.
        """
        if self.positions is None:
            return self._normalized(inputs), _unchanged, {}
        if table is None:
            table = self.positions.table(room)
        here = take_rows(table, at if rank(at) else ops.reshape(at, (1,)))  # one row, (Q, ...) or (B, Q, ...)
        score_bias = self.positions.score_bias(here, self.reach.kept_rows(table, at, room))
        if rank(at):
            number, queries = ops.shape(inputs)[0], ops.shape(at)[-1]
            each = ops.reshape(ops.broadcast_to(at, (number // queries, queries)), (-1,))  # (M,)
            add, acting = _of_queries(self.positions, take_rows(table, each), score_bias)
        else:
            add, acting = _of_rows(self.positions, here, score_bias)
        return self._normalized(add(inputs)), add, acting

    def _normalized(self, inputs: Tensor) -> Tensor:
        """Embeddings with their positions after the norm, if the stack has one for them."""
        return inputs if self.embedding_norm is None else self.embedding_norm(inputs)

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
            "normalize_embeddings": self.normalize_embeddings,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        names = ("layers", "positions", "depth")
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in names}
        return cls(**{**config, **parts})
