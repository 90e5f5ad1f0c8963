"""Relative positions of Shaw et al. 2018: a trained vector for each distance between query and key.

Here are the positional encodings of a stack. What attention computes with the vectors, and those that each layer has of
its own, are in `relative_attention`; rotary positions in `rotary_positions`; ALiBi and T5's buckets in `position_bias`.

Shape letters: B batch, H heads, T queries, S keys, K size of a head, k the largest distance.
"""

from typing import Any, Self

import keras

from kformer.layers.initializers import small_normal
from kformer.layers.position_bias import DistanceBias
from kformer.layers.positional_encoding import PositionOptions
from kformer.layers.relative_attention import Distances, number_distances, products_at
from kformer.layers.tensors import ScoreBias, Tensor


@keras.saving.register_keras_serializable(package="kformer")
class RelativePositions(DistanceBias):
    """Relative position representations: a trained vector for each distance, which is added to the key.

    The score of a query q_i and a key k_j is q_i (k_j + a_(j - i)) / sqrt(K), and distances beyond `max_distance` have
    the vector of `max_distance` (Shaw et al. 2018, equations 2 and 4). The paper also has vectors for the values
    (equation 3), and BLEU is the same without them (table 3 of the paper). They are left out here; `RelativeDistances`
    has them. All heads and layers of a stack share the vectors.

    Args:
        head_dim: K.
        max_distance: k of the paper: there are 2 k + 1 vectors.

    Examples:
        >>> positions = RelativePositions(head_dim=4, max_distance=2)
        >>> positions.build((1, 3, 8))
        >>> rows = positions.table(3)
        >>> bias_of = positions.score_bias(rows, rows)
        >>> tuple(positions.vectors.shape), tuple(bias_of(np.ones((1, 2, 3, 4), "float32")).shape)
        ((5, 4), (1, 2, 3, 3))
    """

    def __init__(self, head_dim: int, max_distance: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head_dim = head_dim
        self.max_distance = max_distance

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.head_dim, options.max_distance, dtype=dtype, name="positions")

    def build(self, inputs_shape: tuple) -> None:
        self.vectors = self.add_weight(
            shape=(2 * self.max_distance + 1, self.head_dim), initializer=small_normal(), name="vectors"
        )
        self.built = True

    def score_bias(self, query_rows: Tensor, key_rows: Tensor) -> ScoreBias:
        numbers = number_distances(self.distances(query_rows, key_rows), self.max_distance)
        return lambda query: products_at(query, self.vectors, numbers)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_dim": self.head_dim, "max_distance": self.max_distance}


@keras.saving.register_keras_serializable(package="kformer")
class RelativeDistances(DistanceBias):
    """Relative position representations as in the paper: each layer has vectors of its own for keys and for values.

    This class gives the distances. The vectors are `RelativeVectors`, in the self-attention of layers with
    `max_relative_distance` (Shaw et al. 2018, equations 3 to 5). OpenNMT-tf has them so, too.

    Args:
        max_distance: k of the paper; longer distances count as this one.

    Examples:
        >>> positions = RelativeDistances(max_distance=2)
        >>> rows = positions.table(4)
        >>> np.asarray(positions.score_bias(rows, rows).numbers).tolist()
        [[2, 3, 4, 4], [1, 2, 3, 4], [0, 1, 2, 3], [0, 0, 1, 2]]
    """

    def __init__(self, max_distance: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_distance = max_distance

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.max_distance, dtype=dtype, name="positions")

    def score_bias(self, query_rows: Tensor, key_rows: Tensor) -> Distances:
        return Distances(number_distances(self.distances(query_rows, key_rows), self.max_distance))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_distance": self.max_distance}
