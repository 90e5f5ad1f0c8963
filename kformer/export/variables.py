"""The weights of an export: variables of its own, each read once per call."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Gives a model the weights of another one with the same layers, whose adapters (LoRA) are merged.

    Raises:
        ValueError: Keras has quantized a layer of `source`.
    """
    for given, taken in zip(source._flatten_layers(), target._flatten_layers(), strict=True):
        if getattr(given, "quantization_mode", None) is not None:
            raise ValueError(
                f"A model that Keras has quantized cannot be exported. Received: the layer {given.name} with "
                f"{given.quantization_mode}. Export the model as it was before, with precision int8."
            )
        stored: dict[str, Any] = {}
        given.save_own_variables(stored)
        taken.load_own_variables(stored)


class Weights(tf.Module):
    """Arrays as variables of a SavedModel, which the functions of that SavedModel only read.

    A variable is read only once, in the outermost graph, even if it is used many times and inside loops.
    """

    def __init__(self) -> None:
        super().__init__(name="weights")
        self.stored: list[tf.Variable] = []
        self._numbers: dict[int, tuple[np.ndarray, int]] = {}
        self._reads: dict[tuple[int, int, tf.DType], tuple[tf.Graph, tf.Tensor]] = {}

    def read(self, array: np.ndarray, bits: tf.DType | None = None) -> tf.Tensor:
        """The array as a tensor; it is stored when it is first asked for.

        `bits` is a dtype of the same size that the tensor's bits are taken for; None: that of the array.
        """
        if id(array) not in self._numbers:
            self._numbers[id(array)] = array, len(self.stored)  # keeps the array alive, as its id is the key
            with tf.init_scope():
                # If TensorFlow lifted the variable out of the function, it would trace the function twice.
                self.stored.append(tf.Variable(array, trainable=False, experimental_enable_variable_lifting=False))
        variable = self.stored[self._numbers[id(array)][1]]
        graph = tf.compat.v1.get_default_graph()
        while hasattr(graph.outer_graph, "outer_graph"):  # only graphs of functions have one
            graph = graph.outer_graph
        dtype = variable.dtype if bits is None else bits
        key = (id(array), id(graph), dtype)
        if key not in self._reads:
            with graph.as_default():
                value = variable.read_value()
                self._reads[key] = graph, value if bits is None else tf.bitcast(value, bits)
        return self._reads[key][1]


class FrozenScope(keras.StatelessScope):
    """A scope in which Keras variables have the values that an export's `Weights` store.

    Args:
        variables: The variables to freeze, with their present values.
        weights: Stores the variables that are read.
    """

    def __init__(self, variables: Iterable[keras.Variable], weights: Weights) -> None:
        super().__init__()
        self._weights = weights
        self._arrays = {id(variable): keras.ops.convert_to_numpy(variable) for variable in variables}

    def array(self, variable: keras.Variable) -> np.ndarray:
        """The frozen value of a variable."""
        return self._arrays[id(variable)]

    def get_current_value(self, variable: keras.Variable) -> Any:
        array = self._arrays.get(id(variable))
        return super().get_current_value(variable) if array is None else self._weights.read(array)
