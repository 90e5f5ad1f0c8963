"""Biases of the scores by the distance between query and key: ALiBi, and the buckets of T5.

Vectors for the distances in place of numbers (Shaw et al. 2018) are in `relative_positions`.

Shape letters: B batch, H heads, T queries, S keys, N buckets.
"""

import math
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.initializers import small_normal
from kformer.layers.positional_encoding import PositionOptions, Positions
from kformer.layers.tensors import Tensor, rank


class DistanceBias(Positions):
    """A bias of the scores that depends only on the distance j - i from a query at i to a key at j."""

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """(T,) int32, the positions themselves."""
        return ops.arange(length, dtype="int32") + offset

    def distances(self, query_rows: Tensor, key_rows: Tensor) -> Tensor:
        """(T, S) or (B, T, S) int32, negative for keys before the query; the arguments are those of `score_bias`."""
        keys = ops.expand_dims(key_rows, 0) if rank(key_rows) == 1 else key_rows
        return keys - ops.expand_dims(query_rows, -1)


@keras.saving.register_keras_serializable(package="kformer")
class LinearBias(DistanceBias):
    """ALiBi: scores fall linearly with the distance. Each head has its own slope, and nothing is trained.

    The bias of head h = 1, ..., H is -|i - j| 2^(-8 h / H) if H is a power of two (Press et al. 2022, section 3). The
    paper has no formula for other numbers. As in the authors' code, Bloom and MPT, the first P heads then have the
    slopes of P heads, where P is the largest power of two below H, and the other heads the first, third, fifth, ...
    slope of 2 P heads. The paper describes decoders only. In an encoder, keys before and after the query have the same
    bias at the same distance.

    Args:
        num_heads: H.

    Examples:
        >>> positions = LinearBias(num_heads=2)
        >>> rows = positions.table(3)
        >>> np.asarray(positions.score_bias(rows, rows))[0].tolist()
        [[-0.0, -0.0625, -0.125], [-0.0625, -0.0, -0.0625], [-0.125, -0.0625, -0.0]]
    """

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.num_heads, dtype=dtype, name="positions")

    def score_bias(self, query_rows: Tensor, key_rows: Tensor) -> Tensor:
        slopes = _slopes(self.num_heads)
        distances = ops.cast(ops.abs(self.distances(query_rows, key_rows)), "float32")
        return ops.expand_dims(distances, -3) * -slopes.astype("float32")[:, None, None]  # (..., H, T, S)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


def _slopes(num_heads: int) -> np.ndarray:
    """(H,) floats, the slopes of `LinearBias`."""
    power = 2 ** int(math.log2(num_heads))
    slopes, finer = (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads) for heads in (power, 2 * power))
    return np.concatenate([slopes, finer[::2]])[:num_heads]


@keras.saving.register_keras_serializable(package="kformer")
class BucketedBias(DistanceBias):
    """T5's relative positions: a trained bias for each head and each bucket of distances.

    Each short distance has a bucket of its own. For longer ones, the number of the bucket grows with the logarithm of
    the distance up to `max_distance`; all distances beyond it have the last bucket (Raffel et al. 2020, section 2.1,
    and T5's code). In an encoder, half of the buckets are for keys before the query and half for keys after it. A
    decoder never sees the latter, so there all buckets are for keys before the query, which gives more distances a
    bucket of their own. All layers of a stack share the bias.

    Args:
        num_heads: H.
        num_buckets: N; must be a multiple of 4.
        max_distance: From this distance on, all distances have the last bucket.
        causal: Whether no key is after its query, as in a decoder. Later keys then share the bucket of distance 0.

    Raises:
        ValueError: `num_buckets` is no multiple of 4, or `max_distance` is not above the number of short distances: a
            quarter of the buckets, or half of them if `causal`.

    Examples:
        >>> distances = np.array([0, 1, 2, 3, 8, 100, -1, -2, -3, -4, -8, -100])
        >>> np.asarray(BucketedBias(num_heads=2, num_buckets=8, max_distance=16).buckets(distances)).tolist()
        [0, 5, 6, 6, 7, 7, 1, 2, 2, 2, 3, 3]
        >>> positions = BucketedBias(num_heads=2, num_buckets=8, max_distance=16, causal=True)
        >>> np.asarray(positions.buckets(distances)).tolist()
        [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 7]
    """

    def __init__(
        self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, causal: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        short = num_buckets // (2 if causal else 4)
        if num_buckets % 4 or max_distance <= short:
            raise ValueError(
                f"num_buckets must be a multiple of 4, and max_distance above num_buckets / {2 if causal else 4}. "
                f"Received: num_buckets={num_buckets}, max_distance={max_distance}. Choose for example 32 and 128."
            )
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.causal = causal

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.num_heads, causal=options.causal, dtype=dtype, name="positions")

    def build(self, inputs_shape: tuple) -> None:
        self.biases = self.add_weight(
            shape=(self.num_buckets, self.num_heads), initializer=small_normal(), name="biases"
        )
        self.built = True

    def buckets(self, distances: Tensor) -> Tensor:
        """The number of each distance's bucket, int32 from 0 to N - 1."""
        each_side = self.num_buckets if self.causal else self.num_buckets // 2
        near = each_side // 2  # number of distances with a bucket of their own
        far = ops.maximum(-distances, 0) if self.causal else ops.abs(distances)
        share = ops.log(ops.cast(ops.maximum(far, near), "float32") / near) / math.log(self.max_distance / near)
        # float32 logarithms of exact powers may lie just below the whole number.
        grown = near + ops.cast(share * (each_side - near) + 1e-5, "int32")
        bucket = ops.where(far < near, ops.cast(far, "int32"), ops.minimum(grown, each_side - 1))
        return bucket if self.causal else bucket + ops.where(distances > 0, each_side, 0)

    def score_bias(self, query_rows: Tensor, key_rows: Tensor) -> Tensor:
        distances = self.distances(query_rows, key_rows)
        biases = take_rows(ops.convert_to_tensor(self.biases), ops.reshape(self.buckets(distances), (-1,)))
        biases = ops.reshape(biases, (*ops.shape(distances), self.num_heads))  # (..., T, S, H)
        return ops.moveaxis(biases, -1, -3)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "causal": self.causal,
        }
