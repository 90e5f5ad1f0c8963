"""Weights as constants of a graph, in the arithmetic that a server is to use."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from kformer.config import TransformerConfig
from kformer.models import build_transformer

# Under these policies the matrix products run in the precision; the sums of residual connections, layer norms,
# softmax and logits stay float32.
PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class FrozenScope(keras.StatelessScope):
    """A scope in which a variable is a constant of the graph that reads it, already in the dtype of the computation.

    Each graph gets its own: the body of a loop is a graph for itself, and only constants that stand in it are known
    to be constant there. oneDNN then packs a matrix once and for all; what comes into a loop from outside, as a
    variable's value does, is packed again at every step.

    Args:
        variables: What is frozen, at its present values.
    """

    def __init__(self, variables: Iterable[keras.Variable]) -> None:
        super().__init__()
        self._arrays = {id(variable): keras.ops.convert_to_numpy(variable) for variable in variables}
        self._constants: dict[tuple[int, int, str], tf.Tensor] = {}
        self._graphs: list[tf.Graph] = []  # keeps them alive, for their identities are keys

    def get_current_value(self, variable: keras.Variable) -> Any:
        array = self._arrays.get(id(variable))
        if array is None:
            return super().get_current_value(variable)
        graph = tf.compat.v1.get_default_graph()
        dtype = variable.dtype  # what Keras would cast it to here
        key = (id(graph), id(variable), dtype)
        if key not in self._constants:
            self._graphs.append(graph)
            self._constants[key] = tf.constant(array.astype(tf.as_dtype(dtype).as_numpy_dtype))
        return self._constants[key]


def with_precision(model: keras.Model, config: TransformerConfig, precision: str) -> keras.Model:
    """The model itself for float32, or one with the same weights whose matrix products run in `precision`.

    Raises:
        ValueError: There is no such precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {precision!r}.")
    if precision == "float32":
        return model
    twin = build_transformer(config, dtype=PRECISIONS[precision])
    twin.set_weights(model.get_weights())
    for layer in twin._flatten_layers():
        if isinstance(layer, keras.layers.LayerNormalization):
            layer.dtype_policy = "float32"  # its output is the residual stream
    return twin
