"""What attention computes with vectors for distances (Shaw et al. 2018): their part in scores and in values.

The positional encodings that hand the distances to attention are in `relative_positions`.

Shape letters: B batch, H heads, T queries, S keys, K size of a head, k the largest distance.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.initializers import small_normal
from kformer.layers.tensors import Tensor


@dataclasses.dataclass(frozen=True)
class Distances:
    """The distances of a stack's positions, to which each layer has vectors of its own.

    Args:
        numbers: (T, S) or (B, T, S) int32, the numbers of the distances; (1, S) if all queries stand at one position.
    """

    numbers: Tensor


def number_distances(distances: Tensor, most: int) -> Tensor:
    """The numbers of distances j - i from a query at i to a key at j: clip(j - i, -k, k) + k, from 0 to 2 k.

    Args:
        distances: (T, S) or (B, T, S) int32.
        most: k.
    """
    return ops.clip(distances, -most, most) + most


@keras.saving.register_keras_serializable(package="kformer")
class RelativeVectors(keras.layers.Layer):
    """Vectors for distances, which one attention adds to its keys and to its values. All heads share them.

    With the weights w_ij of a query q_i and a key k_j, it is (Shaw et al. 2018, equations 3 to 5):

        score_ij = q_i (k_j + a_ij) / sqrt(K),    output_i = sum_j w_ij (v_j + b_ij)

    Args:
        head_dim: K.
        max_distance: k: there are 2 k + 1 vectors a and as many b.

    Examples:
        >>> vectors = RelativeVectors(head_dim=4, max_distance=2)
        >>> vectors.build((1, 3, 8))
        >>> positions = RelativeDistances(max_distance=2)
        >>> bias = vectors.bias(positions.score_bias(positions.table(3), positions.table(3)))
        >>> tuple(bias(np.ones((1, 2, 3, 4), "float32")).shape)  # for queries
        (1, 2, 3, 3)
        >>> tuple(bias.of_values(np.ones((1, 2, 3, 3), "float32")).shape)  # for weights
        (1, 2, 3, 4)
    """

    def __init__(self, head_dim: int, max_distance: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head_dim = head_dim
        self.max_distance = max_distance

    def build(self, inputs_shape: tuple) -> None:
        shape = (2 * self.max_distance + 1, self.head_dim)
        self.keys, self.values = (
            self.add_weight(shape=shape, initializer=small_normal(), name=name) for name in ("keys", "values")
        )
        self.built = True

    def bias(self, distances: Distances) -> "RelativeBias":
        """What these vectors add at these distances."""
        return RelativeBias(self, distances.numbers)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_dim": self.head_dim, "max_distance": self.max_distance}


@dataclasses.dataclass(frozen=True)
class RelativeBias:
    """A bias of scores (`ScoreBias`) that also has a part in the values.

    Args:
        vectors: The layer's.
        numbers: As in `Distances`.
    """

    vectors: RelativeVectors
    numbers: Tensor

    def __call__(self, query: Tensor) -> Tensor:
        """q_i a_ij / sqrt(K), (B, H, T, S), for queries (B, H, T, K)."""
        return products_at(query, self.vectors.keys, self.numbers)

    def of_values(self, weights: Tensor) -> Tensor:
        """The sum over j of w_ij b_ij, (B, H, T, K), for weights (B, H, T, S)."""
        return sums_at(weights, self.vectors.values, self.numbers)

    def repeated(self, rows: int | Tensor) -> "RelativeBias":
        """The same for a cache that keeps so many keys of each position next to each other."""
        return RelativeBias(self.vectors, ops.repeat(self.numbers, rows, axis=-1))


def own_bias(score_bias: Any, vectors: RelativeVectors | None) -> Any:
    """The bias of one attention: of `Distances`, that of its own vectors; any other `ScoreBias` is the bias already.

    Raises:
        ValueError: There are distances, and the attention has no vectors.
    """
    if not isinstance(score_bias, Distances):
        return score_bias
    if vectors is None:
        raise ValueError(
            "RelativeDistances are for layers with vectors of their own. Received: a layer without them. Make it with "
            "max_relative_distance, such as that of the positions."
        )
    return vectors.bias(score_bias)


def products_at(query: Tensor, vectors: Tensor, numbers: Tensor) -> Tensor:
    """The products of queries with the vectors of their distances, divided by sqrt(K).

    Args:
        query: (B, H, T, K) floats.
        vectors: (2 k + 1, K) floats.
        numbers: (T, S), (1, S) or (B, T, S) int32, see `Distances`.

    Returns:
        (B, H, T, S) floats.
    """
    number = vectors.shape[0]
    products = ops.matmul(query, ops.transpose(ops.cast(vectors, query.dtype))) * query.shape[-1] ** -0.5
    if len(numbers.shape) == 3:  # Each sentence has distances of its own.
        batch_size, length, _ = ops.shape(numbers)
        by_distance = ops.reshape(ops.transpose(products, (0, 2, 3, 1)), (-1, products.shape[1]))
        first = ops.reshape(ops.arange(batch_size * length, dtype="int32") * number, (batch_size, length, 1))
        return ops.transpose(take_rows(by_distance, first + numbers), (0, 3, 1, 2))
    if numbers.shape[0] == 1:  # All rows stand at this position.
        columns = take_rows(ops.transpose(products, (3, 0, 1, 2)), numbers[0])
        return ops.transpose(columns, (1, 2, 3, 0))
    length = ops.shape(products)[2]
    products = ops.reshape(ops.transpose(products, (2, 3, 0, 1)), (-1, *ops.shape(products)[:2]))
    first = ops.expand_dims(ops.arange(length, dtype="int32") * number, 1)  # each query's row for distance -k
    return ops.transpose(take_rows(products, first + numbers), (2, 3, 0, 1))


def sums_at(weights: Tensor, vectors: Tensor, numbers: Tensor) -> Tensor:
    """The sums of the vectors of the distances, by attention weights. It holds the T x S vectors in memory.

    Args:
        weights: (B, H, T, S) floats.
        vectors, numbers: As in `products_at`.

    Returns:
        (B, H, T, K) floats.
    """
    chosen = take_rows(ops.cast(vectors, weights.dtype), numbers)  # (T, S, K), (1, S, K) or (B, T, S, K)
    if len(numbers.shape) == 3:
        return ops.swapaxes(ops.matmul(ops.swapaxes(weights, 1, 2), chosen), 1, 2)
    if numbers.shape[0] == 1:
        return ops.matmul(weights, chosen[0])
    batch_size, heads, length, keys = ops.shape(weights)
    by_query = ops.reshape(ops.transpose(weights, (2, 0, 1, 3)), (length, batch_size * heads, keys))
    sums = ops.reshape(ops.matmul(by_query, chosen), (length, batch_size, heads, vectors.shape[-1]))
    return ops.transpose(sums, (1, 2, 0, 3))
