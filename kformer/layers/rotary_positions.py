"""Rotary positions (RoPE): queries and keys are rotated by angles that grow with their position.

Shape letters: T positions, K size of a head.
"""

from typing import Any, Self

import keras
from keras import ops

from kformer.layers.positional_encoding import MAX_WAVELENGTH, PositionOptions, Positions, sinusoids
from kformer.layers.tensors import Tensor


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
