"""Positional encodings that depend on distances: rotary, ALiBi, and the relative ones of Shaw et al. and of T5.

They act in self-attention alone, and add nothing to the embeddings. So a model can read sequences that are longer than
those that it was trained on; how well it does so differs from kind to kind
(`benchmarks/variants/length_extrapolation.py`).

Shape letters: B batch, H heads, T queries, S keys, K size of a head, N buckets.
"""

import math
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.initializers import small_normal
from kformer.layers.positional_encoding import MAX_WAVELENGTH, PositionOptions, Positions, sinusoids
from kformer.layers.relative_vectors import Distances, products_at
from kformer.layers.tensors import ScoreBias, Tensor, rank


class _Distances(Positions):
    """A positional encoding that depends only on the distance j - i from a query at i to a key at j."""

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """(T,) int32, the positions themselves."""
        return ops.arange(length, dtype="int32") + offset

    def _distances(self, query_rows: Tensor, key_rows: Tensor) -> Tensor:
        """(T, S) or (B, T, S) int32, negative for keys before the query; the arguments are those of `score_bias`."""
        keys = ops.expand_dims(key_rows, 0) if rank(key_rows) == 1 else key_rows
        return keys - ops.expand_dims(query_rows, -1)

    def _clipped(self, query_rows: Tensor, key_rows: Tensor, most: int) -> Tensor:
        """The numbers of the distances, from 0 for -most and beyond to 2 most, see `relative_vectors`."""
        return ops.clip(self._distances(query_rows, key_rows), -most, most) + most


@keras.saving.register_keras_serializable(package="kformer")
class RotaryPositions(Positions):
    """Rotates each pair of features of queries and keys by an angle that grows with the position (RoPE).

    The features 2i and 2i + 1 of a head at position p are rotated by p / 10000^(2i / K). The product of a query and a
    key then depends on their distance, not on their positions (Su et al. 2021, "RoFormer", equations 15 and 34).

    Args:
        head_dim: K; must be even.
        max_wavelength: In place of 10000. Models for long texts have a larger one, such as 500,000 in Llama 3, where it
            is called "rope_theta".

    Raises:
        ValueError: `head_dim` is odd.

    Examples:
        Position 1 rotates the first pair by 1 radian:

        >>> positions = RotaryPositions(head_dim=2)
        >>> print(np.round(positions.rotate(np.array([[1.0, 0.0]]), positions.table(1, offset=1)), 2))
        [[0.54 0.84]]
    """

    def __init__(self, head_dim: int, max_wavelength: float = MAX_WAVELENGTH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if head_dim % 2:
            raise ValueError(
                "head_dim must be even: rotary positions turn pairs of features. "
                f"Received: head_dim={head_dim}. Choose {head_dim + 1}."
            )
        self.head_dim = head_dim
        self.max_wavelength = max_wavelength

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.head_dim, options.max_wavelength, dtype=dtype, name="positions")

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """(T, K, 2) float32: the sine and the cosine of each feature's angle."""
        # (T, K): sine, cosine, sine, cosine, ...
        angles = sinusoids(ops.arange(length) + offset, self.head_dim, self.max_wavelength)
        return ops.repeat(ops.reshape(angles, (-1, self.head_dim // 2, 2)), 2, axis=1)

    def rotate(self, heads: Tensor, rows: Tensor) -> Tensor:
        rows = ops.cast(rows, heads.dtype)
        sine, cosine = rows[..., 0], rows[..., 1]  # (T, K)
        pairs = ops.reshape(heads, (*ops.shape(heads)[:-1], self.head_dim // 2, 2))
        turned = ops.reshape(ops.stack([-pairs[..., 1], pairs[..., 0]], axis=-1), ops.shape(heads))
        return heads * cosine + turned * sine

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_dim": self.head_dim, "max_wavelength": self.max_wavelength}


@keras.saving.register_keras_serializable(package="kformer")
class LinearBias(_Distances):
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
        distances = ops.cast(ops.abs(self._distances(query_rows, key_rows)), "float32")
        return ops.expand_dims(distances, -3) * -slopes.astype("float32")[:, None, None]  # (..., H, T, S)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


def _slopes(num_heads: int) -> np.ndarray:
    """(H,) floats, the slopes of `LinearBias`."""
    power = 2 ** int(math.log2(num_heads))
    slopes, finer = (2.0 ** (-8.0 * np.arange(1, heads + 1) / heads) for heads in (power, 2 * power))
    return np.concatenate([slopes, finer[::2]])[:num_heads]


@keras.saving.register_keras_serializable(package="kformer")
class BucketedBias(_Distances):
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
        distances = self._distances(query_rows, key_rows)
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


@keras.saving.register_keras_serializable(package="kformer")
class RelativePositions(_Distances):
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
        numbers = self._clipped(query_rows, key_rows, self.max_distance)
        return lambda query: products_at(query, self.vectors, numbers)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "head_dim": self.head_dim, "max_distance": self.max_distance}


@keras.saving.register_keras_serializable(package="kformer")
class RelativeDistances(_Distances):
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
        return Distances(self._clipped(query_rows, key_rows, self.max_distance))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_distance": self.max_distance}
