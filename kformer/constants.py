"""Weights as constants of the graphs that use them."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Constants:
    """Arrays as constants of graphs, each once a graph.

    The body of a loop is a graph of its own. Only constants that stand inside it are known to be constant there, so
    that oneDNN may pack a matrix once and for all; what comes in from outside counts as a new value at every step.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[np.ndarray, tf.Graph, tf.Tensor]] = {}
        self._results: dict[tuple[int, int], tuple[tf.Tensor, Any]] = {}

    def inside(self, array: np.ndarray) -> tf.Tensor:
        """A constant of the graph that is being traced."""
        return self._constant(array, tf.compat.v1.get_default_graph())

    def outside(self, array: np.ndarray) -> tf.Tensor:
        """A constant of the outermost graph, which all graphs inside share."""
        graph = tf.compat.v1.get_default_graph()
        while hasattr(graph.outer_graph, "outer_graph"):  # only graphs of functions have one
            graph = graph.outer_graph
        return self._constant(array, graph)

    def once(self, tensor: tf.Tensor, function: Callable[[tf.Tensor], Any]) -> Any:
        """`function(tensor)`, computed once for all who ask with the same tensor."""
        key = (id(tensor), id(function))
        if key not in self._results:
            self._results[key] = tensor, function(tensor)
        return self._results[key][1]

    def _constant(self, array: np.ndarray, graph: tf.Graph) -> tf.Tensor:
        key = (id(array), id(graph))
        if key not in self._made:
            with graph.as_default():
                self._made[key] = array, graph, tf.constant(array)  # the first two live on, for their ids are the key
        return self._made[key][2]


class FrozenScope(keras.StatelessScope):
    """A scope in which variables are constants of the outermost graph.

    Args:
        variables: What is frozen, at its present values.
        constants: Where the constants are put.
    """

    def __init__(self, variables: Iterable[keras.Variable], constants: Constants) -> None:
        super().__init__()
        self._constants = constants
        self._arrays = {id(variable): keras.ops.convert_to_numpy(variable) for variable in variables}

    def get_current_value(self, variable: keras.Variable) -> Any:
        array = self._arrays.get(id(variable))
        return super().get_current_value(variable) if array is None else self._constants.outside(array)
