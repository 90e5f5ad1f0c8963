"""Finds the range of the inputs of each matrix product of a model, which an int8 export must know beforehand.

`kernels.Int8Matrix` decides in `_steps_range` which numbers the 256 bytes stand for in such a range.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from kformer.export.variables import copy_weights
from kformer.layers import TokenEmbedding
from kformer.layers.dense import Arithmetic, Dense
from kformer.tasks.predictor import Predictor

# By product: the lowest and the highest number of its inputs. The key has the index of the product's matrix in
# `model.variables`; where several matrices are multiplied as one (queries, keys and values), the index of each.
InputRanges = dict[tuple[int, ...], tuple[float, float]]


def input_ranges(predictor: Predictor, texts: Sequence[str]) -> InputRanges:
    """The lowest and highest input of every product, while the model reads these texts.

    Args:
        predictor: Computes in float32.
        texts: Texts like those that the export is for.
    """
    observer = _Observer()
    model = predictor.build(observer)
    copy_weights(predictor.model, model)
    model(predictor.calibration_inputs(tf.constant(list(texts))))
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    return {tuple(numbers[one] for one in key): ends for key, ends in observer.ranges.items()}


class _Observer(Arithmetic):
    """Computes as Keras does, and notes the ranges of the products' inputs by the ids of their matrices."""

    def __init__(self) -> None:
        super().__init__("float32")
        self.ranges: InputRanges = {}

    def dense(self, layers: Sequence[Dense], inputs: tf.Tensor) -> list[tf.Tensor]:
        self._note([layer.kernel for layer in layers], inputs)
        return [keras.layers.Dense.call(layer, inputs) for layer in layers]

    def normalize(self, layer: keras.layers.LayerNormalization, inputs: tf.Tensor) -> tf.Tensor:
        return keras.layers.LayerNormalization.call(layer, inputs)

    def embed(self, layer: TokenEmbedding, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(layer.embeddings, ids)

    def project(self, layer: TokenEmbedding, inputs: tf.Tensor) -> tf.Tensor:
        self._note([layer.embeddings if layer.tie_weights else layer.reverse_embeddings], inputs)
        return keras.layers.ReversibleEmbedding.call(layer, inputs, reverse=True)

    def _note(self, matrices: Sequence[keras.Variable], inputs: tf.Tensor) -> None:
        if tf.is_symbolic_tensor(inputs) or isinstance(inputs, keras.KerasTensor):
            return  # while the model is built
        key = tuple(id(matrix) for matrix in matrices)
        lowest, highest = self.ranges.get(key, (np.inf, -np.inf))
        self.ranges[key] = min(lowest, float(tf.reduce_min(inputs))), max(highest, float(tf.reduce_max(inputs)))
