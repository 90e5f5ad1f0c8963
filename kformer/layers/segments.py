"""Segments: which of two texts a token belongs to (Devlin et al. 2019, figure 2).

Shape letters: B batch, S source length, D model size.
"""

from typing import Any

import keras
from keras import ops

from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor, width_of


def segment_ids(ids: Tensor, end_id: int) -> Tensor:
    """Which text each token belongs to: 0 up to the first end id, 1 after it.

    Args:
        ids: (B, S) integers: start id, first text, end id; then, for a pair of texts, second text, end id.
        end_id: Marks the end of a text.

    Returns:
        (B, S) int32.

    Examples:
        >>> np.asarray(segment_ids(np.array([[1, 7, 2, 8, 9, 2]]), end_id=2)).tolist()
        [[0, 0, 0, 1, 1, 1]]
    """
    ends = ops.cast(ops.equal(ids, end_id), "int32")  # (B, S)
    return ops.minimum(ops.cumsum(ends, axis=1) - ends, 1)


@keras.saving.register_keras_serializable(package="kformer")
class SegmentEmbedding(keras.layers.Layer):
    """Adds one of two trained vectors to each embedded token: one for the first text of a pair, one for the second.

    Args:
        d_model: D. None: the width of the first inputs.
        end_id: Marks the end of a text, see `segment_ids`.

    Raises:
        ValueError: The inputs have another width than `d_model`.

    Examples:
        >>> segments = SegmentEmbedding(d_model=8)
        >>> tuple(segments(np.zeros((1, 3, 8)), ids=np.array([[1, 7, 2]])).shape)
        (1, 3, 8)
    """

    def __init__(self, d_model: int | None = None, end_id: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.d_model = d_model
        self.end_id = end_id

    def build(self, inputs_shape: tuple, ids_shape: tuple | None = None) -> None:
        self.d_model = width_of(self, inputs_shape)
        self.vectors = self.add_weight(shape=(2, self.d_model), initializer=small_normal(), name="vectors")
        self.built = True

    def call(self, inputs: Tensor, ids: Tensor) -> Tensor:
        """Adds the vectors.

        Args:
            inputs: (B, S, D) floats.
            ids: (B, S) integers, the ids of `inputs`.

        Returns:
            (B, S, D) floats.
        """
        first, second = (ops.cast(self.vectors[number], inputs.dtype) for number in (0, 1))  # (D,) each
        is_second = ops.expand_dims(ops.equal(segment_ids(ids, self.end_id), 1), -1)  # (B, S, 1)
        return inputs + ops.where(is_second, second, first)

    def compute_output_shape(self, inputs_shape: tuple, ids_shape: tuple | None = None) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model, "end_id": self.end_id}
