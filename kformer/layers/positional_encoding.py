"""What tells positions apart: sinusoids (section 3.5), or learned vectors (row E of Table 3).

Shape letters: B batch, T length, D model size.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from kformer.layers.initializers import small_normal

Tensor = Any


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same; interleaved.

    Args:
        positions: (T,) integers.
        d_model: D, even.

    Returns:
        (T, D) float32.
    """
    rates = np.power(10000.0, -np.arange(0, d_model, 2) / d_model).astype("float32")  # (D / 2,)
    angles = ops.expand_dims(ops.cast(positions, "float32"), 1) * rates  # (T, D / 2)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (T, D / 2, 2)
    return ops.reshape(pairs, (-1, d_model))  # (T, D)


@keras.saving.register_keras_serializable(package="kformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds the sinusoids of section 3.5 to its input, for any length and any offset.

    Args:
        d_model: D; must be even.

    Raises:
        ValueError: `d_model` is odd.
    """

    def __init__(self, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if d_model % 2:
            raise ValueError(f"d_model must be even, one sine a cosine. Received: d_model={d_model}.")
        self.d_model = d_model

    def call(self, inputs: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the encodings of the positions offset, offset + 1, ...

        Args:
            inputs: (B, T, D) floats.
            offset: Position of the first row, an integer or an integer scalar tensor.

        Returns:
            (B, T, D) in the dtype of `inputs`.
        """
        return inputs + ops.cast(self.encodings(ops.shape(inputs)[1], offset), inputs.dtype)

    def encodings(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """What is added: (length, D) float32 for the positions offset, offset + 1, ..."""
        return sinusoids(ops.arange(length) + offset, self.d_model)

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model}


@keras.saving.register_keras_serializable(package="kformer")
class LearnedPositionalEncoding(keras.layers.Layer):
    """Adds one trained vector a position; positions from `max_length` on do not exist.

    Args:
        max_length: Number of positions.
        d_model: D.
    """

    def __init__(self, max_length: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.d_model = d_model

    def build(self, inputs_shape: tuple) -> None:
        self.embeddings = self.add_weight(
            shape=(self.max_length, self.d_model),
            initializer=small_normal(),
            name="embeddings",
        )

    def call(self, inputs: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the vectors of the positions offset, offset + 1, ...; shapes as in `PositionalEncoding`.

        Raises:
            ValueError: A length that is known when the graph is made exceeds `max_length`. Where the
                length is known only later, positions past the last share its vector.
        """
        return inputs + ops.cast(self.encodings(ops.shape(inputs)[1], offset), inputs.dtype)

    def encodings(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """What is added: (length, D) floats for the positions offset, offset + 1, ...; errors as in `call`."""
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"Learned positions end at max_length={self.max_length}. Received: {length} positions. "
                "Build the layer with a larger max_length, or use PositionalEncoding, which has no limit."
            )
        positions = ops.minimum(ops.arange(length) + offset, self.max_length - 1)
        return ops.take(self.embeddings, positions, axis=0)

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length, "d_model": self.d_model}
