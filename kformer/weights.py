"""The weights of an export: variables of its own, read once a call."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Weights(tf.Module):
    """Arrays as variables of a SavedModel, which the functions of that SavedModel only read.

    A variable is read in the outermost graph, once however often and however deep in loops it is used.
    """

    def __init__(self) -> None:
        super().__init__(name="weights")
        self.stored: list[tf.Variable] = []
        self._numbers: dict[int, tuple[np.ndarray, int]] = {}
        self._results: dict[tuple[int, int], tuple[Any, ...]] = {}

    def read(self, array: np.ndarray) -> tf.Tensor:
        """The array as a tensor; it is stored when it is first asked for."""
        if id(array) not in self._numbers:
            self._numbers[id(array)] = array, len(self.stored)  # the array lives on, for its id is the key
            with tf.init_scope():
                self.stored.append(tf.Variable(array, trainable=False))
        variable = self.stored[self._numbers[id(array)][1]]
        graph = tf.compat.v1.get_default_graph()
        while hasattr(graph.outer_graph, "outer_graph"):  # only graphs of functions have one
            graph = graph.outer_graph
        with graph.as_default():
            return self.once(graph, lambda _: variable.read_value(), id(array))

    def once(self, thing: Any, function: Callable[[Any], Any], key: int | None = None) -> Any:
        """`function(thing)`, computed once for all who ask with the same thing and function (or key)."""
        key_of_both = (id(thing), id(function) if key is None else key)
        if key_of_both not in self._results:
            self._results[key_of_both] = thing, function, function(thing)
        return self._results[key_of_both][2]


class FrozenScope(keras.StatelessScope):
    """A scope in which a Keras variable has a value of an export's `Weights`.

    Args:
        variables: What is frozen, at its present values.
        weights: Where those that are read are stored.
    """

    def __init__(self, variables: Iterable[keras.Variable], weights: Weights) -> None:
        super().__init__()
        self._weights = weights
        self._arrays = {id(variable): keras.ops.convert_to_numpy(variable) for variable in variables}

    def get_current_value(self, variable: keras.Variable) -> Any:
        array = self._arrays.get(id(variable))
        return super().get_current_value(variable) if array is None else self._weights.read(array)
