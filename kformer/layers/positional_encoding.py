"""Positional encodings: sinusoids (section 3.5), learned vectors (row E of Table 3), or a class of your own.

Those that act in attention are in `rotary_positions`, `position_bias` (ALiBi, T5) and `relative_positions` (Shaw).

Shape letters: B batch, H heads, T length, S keys, K size of a head, D model size.
"""

import abc
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from kformer.indexing import take_rows
from kformer.layers.initializers import small_normal
from kformer.layers.relative_attention import Distances
from kformer.layers.tensors import ScoreBias, Tensor, width_of

_BASE = 32  # The base in which positions are written. A small base makes small tables; an export must store them.
_DIGITS = 4
MAX_WAVELENGTH = 10000.0  # the paper's, in radians: section 3.5


class PositionOptions(NamedTuple):
    """What a positional encoding may depend on, see `kformer.TransformerConfig`.

    Examples:
        >>> RotaryPositions.from_options(PositionOptions(d_model=8, num_heads=2, head_dim=6, max_length=16)).head_dim
        6
    """

    d_model: int
    num_heads: int
    head_dim: int
    max_length: int
    causal: bool = False  # whether no position of the stack attends to later ones, as in a decoder
    max_wavelength: float = MAX_WAVELENGTH
    first_position: int = 0
    max_distance: int = 16


class Positions(keras.layers.Layer, abc.ABC):
    """The interface between a positional encoding and a stack of layers.

    An encoding can act in three places: `add` changes the embeddings, `rotate` the heads of queries and keys, and
    `score_bias` the scores of self-attention. A subclass implements `from_options`, `table`, and those of the three
    methods that it needs; the others change nothing. A whole sequence passes all rows of the table to these methods, a
    step of a search passes the rows of its positions.

    To make a new class available in the configuration, add it to `kformer.config.POSITIONAL_ENCODINGS`. If it has no
    more rows than `max_length`, add its name also to `_LIMITED_POSITIONS` in `kformer/config/transformer.py`.

    Examples:
        >>> options = PositionOptions(d_model=8, num_heads=2, head_dim=4, max_length=16)
        >>> positions = PositionalEncoding.from_options(options)
        >>> rows = positions.table(length=3)
        >>> isinstance(positions, Positions), tuple(positions.add(np.zeros((1, 3, 8)), rows).shape)
        (True, (1, 3, 8))
        >>> positions.score_bias(rows, rows) is None
        True
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    @classmethod
    @abc.abstractmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        """The positional encoding of a stack with these options."""

    @abc.abstractmethod
    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        """The values that the encoding needs: (length, ...), one row for each of the positions offset, offset + 1, ...

        A search computes the table once, and looks up its rows.
        """

    def add(self, inputs: Tensor, rows: Tensor) -> Tensor:
        """Adds positions to embeddings.

        Args:
            inputs: (B, T, D) floats; or (N, D) floats of N sequences at one position.
            rows: T rows of `table`, or (B, T) rows; one row in the second case.
        """
        return inputs

    def rotate(self, heads: Tensor, rows: Tensor) -> Tensor:
        """Rotates heads of queries or keys, (..., T, K) floats, by the positions of the T rows.

        A step of a search passes rows with dimensions that broadcast to (..., T).
        """
        return heads

    def score_bias(self, query_rows: Tensor, key_rows: Tensor) -> ScoreBias | Distances | None:
        """The bias of the scores of T queries and S keys: floats that broadcast to (B, H, T, S), or None.

        `Distances` leave the bias to each layer.

        A bias that depends on the queries (B, H, T, K) is a function from them to the floats. A step of a search at one
        position has one row as `query_rows`, and passes to the function the queries (B, H, R, K) of R hypotheses there.

        Args:
            query_rows: T rows of `table`; or (B, T) rows, if each sentence has positions of its own.
            key_rows: S rows; or S rows for each query.
        """
        return None

    def call(self, inputs: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds positions to embeddings, for models that apply this layer directly after an embedding.

        The stacks do not call it: they need the rows of the table for `rotate` and `score_bias`, too.

        Args:
            inputs: (B, T, D) floats.
            offset: Position of the first row, an integer or an integer scalar tensor.

        Returns:
            (B, T, D) in the dtype of `inputs`.
        """
        return self.add(inputs, self.table(ops.shape(inputs)[1], offset))

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        return tuple(inputs_shape)


def sinusoids(positions: Tensor, d_model: int | None, max_wavelength: float = MAX_WAVELENGTH) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle (section 3.5).

    A position is written with four digits in base 32. NumPy computes the sines and cosines of each digit's part of the
    angle in float64, and the angle addition formulas combine them. A float32 angle of position 20,000 would have an
    error of 0.001.

    Args:
        positions: (T,) integers from 0 to 1,048,575.
        d_model: D, even.
        max_wavelength: In place of 10000.

    Returns:
        (T, D) float32, correct to 5e-7.

    Raises:
        ValueError: `d_model` is None, as in a layer that has seen no inputs yet.
    """
    if d_model is None:
        raise ValueError("The sinusoids need d_model. Received: None. Pass d_model to the layer, or build it first.")
    rates = np.power(max_wavelength, -np.arange(0, d_model, 2) / d_model)  # (D / 2,)
    places = _BASE ** np.arange(_DIGITS, dtype="int32")  # 1, 32, ...
    angles = np.outer(np.outer(places, np.arange(_BASE)), rates)  # (4 x 32, D / 2)
    digits = ops.expand_dims(ops.cast(positions, "int32"), -1) // places % _BASE
    rows = digits + _BASE * np.arange(_DIGITS, dtype="int32")  # (T, 4), of the angles
    sine, *sines = ops.unstack(take_rows(np.sin(angles).astype("float32"), rows), axis=1)  # 4 of (T, D / 2)
    cosine, *cosines = ops.unstack(take_rows(np.cos(angles).astype("float32"), rows), axis=1)
    for of_sine, of_cosine in zip(sines, cosines, strict=True):
        # sin(a + b) = sin a cos b + cos a sin b, and cos(a + b) = cos a cos b - sin a sin b
        sine, cosine = sine * of_cosine + cosine * of_sine, cosine * of_cosine - sine * of_sine
    return ops.reshape(ops.stack([sine, cosine], axis=-1), (-1, d_model))  # (T, D)


def check_even(d_model: int | None) -> None:
    """Refuses a width that `sinusoids` cannot have.

    Raises:
        ValueError: `d_model` is odd.
    """
    if d_model is not None and d_model % 2:
        raise ValueError(
            f"d_model must be even: each sine needs a cosine. Received: d_model={d_model}. Choose {d_model + 1}."
        )


class AddedPositions(Positions):
    """A positional encoding whose table has a vector for each position, (T, D), which is added to the embedding."""

    def add(self, inputs: Tensor, rows: Tensor) -> Tensor:
        return inputs + ops.cast(rows, inputs.dtype)


@keras.saving.register_keras_serializable(package="kformer")
class PositionalEncoding(AddedPositions):
    """Adds the sinusoids of section 3.5 to its input, for any offset and up to 1,048,576 positions.

    Args:
        d_model: D; must be even. None: the width of the first inputs.
        max_wavelength: What the wavelengths, in radians, grow towards; 10000 in the paper. In tensor2tensor, OpenNMT-tf
            and fairseq the last one is 10000, so there it is 10000^(D / (D - 2)).
        first_position: The number of the first position. OpenNMT-tf counts from 1, M2M100 from 2.

    Raises:
        ValueError: `d_model` is odd, or inputs have another width.

    Examples:
        >>> print(np.round(PositionalEncoding()(np.zeros((1, 2, 4))), 2))
        [[[0.   1.   0.   1.  ]
          [0.84 0.54 0.01 1.  ]]]
    """

    def __init__(
        self,
        d_model: int | None = None,
        max_wavelength: float = MAX_WAVELENGTH,
        first_position: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_even(d_model)
        self.d_model = d_model
        self.max_wavelength = max_wavelength
        self.first_position = first_position

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.d_model, options.max_wavelength, options.first_position, dtype=dtype, name="positions")

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        positions = ops.arange(length) + offset
        if self.first_position:
            positions += self.first_position
        return sinusoids(positions, self.d_model, self.max_wavelength)  # (T, D)

    def build(self, inputs_shape: tuple) -> None:
        self.d_model = width_of(self, inputs_shape)
        check_even(self.d_model)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "max_wavelength": self.max_wavelength,
            "first_position": self.first_position,
        }


@keras.saving.register_keras_serializable(package="kformer")
class HalvedPositionalEncoding(PositionalEncoding):
    """Adds the same sinusoids in another order: first all sines, then all cosines, as Marian and tensor2tensor do.

    Arguments and errors: see `PositionalEncoding`.

    Examples:
        >>> print(np.round(HalvedPositionalEncoding()(np.zeros((1, 2, 4))), 2))
        [[[0.   0.   1.   1.  ]
          [0.84 0.01 0.54 1.  ]]]
    """

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        rows = super().table(length, offset)
        return ops.concatenate([rows[:, ::2], rows[:, 1::2]], axis=-1)


@keras.saving.register_keras_serializable(package="kformer")
class LearnedPositionalEncoding(AddedPositions):
    """Adds one trained vector per position, for the positions below `max_length`.

    Args:
        max_length: Number of positions.
        d_model: D. None: the width of the first inputs.

    Raises:
        ValueError: Inputs have another width; or their length exceeds `max_length` and is known when the graph is
            made. If the length is known only later, all positions beyond `max_length` use the last vector.

    Examples:
        >>> positions = LearnedPositionalEncoding(max_length=16, d_model=8)
        >>> tuple(positions(np.zeros((1, 3, 8))).shape), tuple(positions.embeddings.shape)
        ((1, 3, 8), (16, 8))
    """

    def __init__(self, max_length: int, d_model: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.d_model = d_model

    @classmethod
    def from_options(cls, options: PositionOptions, dtype: Any = None) -> Self:
        return cls(options.max_length, options.d_model, dtype=dtype, name="positions")

    def build(self, inputs_shape: tuple) -> None:
        self.d_model = width_of(self, inputs_shape)
        self.embeddings = self.add_weight(
            shape=(self.max_length, self.d_model),
            initializer=small_normal(),
            name="embeddings",
        )
        self.built = True

    def table(self, length: int | Tensor, offset: int | Tensor = 0) -> Tensor:
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"Learned positions end at max_length={self.max_length}. Received: {length} positions. "
                "Build the layer with a larger max_length, or use PositionalEncoding, which has no such limit."
            )
        positions = ops.minimum(ops.arange(length) + offset, self.max_length - 1)
        return ops.take(self.embeddings, positions, axis=0)  # (T, D)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_length": self.max_length, "d_model": self.d_model}
