"""The dropout of all layers (section 5.4): Keras's, with cheaper random numbers on TensorFlow.

It is applied to the output of each sublayer (`residual`), to embeddings with their positions (`stack`) and, if the
configuration says so, to attention weights (`attention`).
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping

import keras

from kformer.layers.tensors import Tensor

LEVELS = 2**16
DECISIONS = 4  # random decisions of 16 bits in one 64-bit number


class DrawnSeed(keras.random.SeedGenerator):
    """A seed that is drawn already, in the place of a generator. It has no variable.

    Examples:
        >>> seed = DrawnSeed(keras.random.SeedGenerator(1).next())
        >>> bool(np.all(np.asarray(seed.next()) == np.asarray(seed.next())))
        True
    """

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


_drawn: contextvars.ContextVar[Mapping[int, DrawnSeed]] = contextvars.ContextVar("drawn seeds")


@keras.saving.register_keras_serializable(package="kformer")
class Dropout(keras.layers.Dropout):
    """Keras's dropout. On TensorFlow it uses 16 random bits per value instead of 32, and one multiplication.

    On TensorFlow the rate is rounded to a multiple of 1/65,536. The kept values are scaled to match the rounded rate,
    so the expected value is the input.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """(..., D) floats to the same shape; in training a share of `rate` of them is 0, the others are scaled up."""
        if training and self.rate == 1:  # Keras before 3.14 refuses this rate, or gives NaN gradients
            return keras.ops.zeros_like(inputs)
        if not training or not self.rate:
            return inputs
        seeds = _drawn.get({}).get(id(self), self.seed_generator)
        dropped = round(self.rate * LEVELS)
        if keras.backend.backend() != "tensorflow" or dropped in (0, LEVELS):
            return keras.random.dropout(inputs, self.rate, self.noise_shape, seeds)
        import tensorflow as tf

        bits = _random_bits(tf.shape(inputs), seeds.next())
        scale = tf.cast(LEVELS / (LEVELS - dropped), inputs.dtype)
        return inputs * tf.where(bits >= tf.cast(dropped, bits.dtype), scale, tf.zeros_like(scale))


def draw_seeds(layer: keras.layers.Layer) -> dict[int, DrawnSeed]:
    """Draws the next seed of each `Dropout` in a layer, for `dropping_by`.

    Examples:
        >>> layer = Dropout(0.5, seed=1)
        >>> seeds, inputs = draw_seeds(layer), np.ones((3, 5))
        >>> with dropping_by(seeds):
        ...     twice = [layer(inputs, training=True) for _ in range(2)]
        >>> bool(np.all(np.asarray(twice[0]) == np.asarray(twice[1])))
        True
    """
    dropouts = [sublayer for sublayer in layer._flatten_layers() if isinstance(sublayer, Dropout)]
    return {id(dropout): DrawnSeed(dropout.seed_generator.next()) for dropout in dropouts if 0 < dropout.rate < 1}


@contextlib.contextmanager
def dropping_by(seeds: Mapping[int, DrawnSeed]) -> Iterator[None]:
    """A context in which each `Dropout` of `seeds`, from `draw_seeds`, drops what its seed says at every call."""
    token = _drawn.set(seeds)
    try:
        yield
    finally:
        _drawn.reset(token)


def _random_bits(shape: Tensor, seed: Tensor) -> Tensor:
    """Uniformly random uint16 numbers of this shape."""
    import tensorflow as tf

    outer, size = shape[:-1], shape[-1]
    numbers = tf.concat([outer, [(size + DECISIONS - 1) // DECISIONS]], axis=0)
    # Without bounds, the numbers cover all values of uint64.
    bits = tf.random.stateless_uniform(numbers, seed, minval=None, maxval=None, dtype=tf.uint64)
    return tf.reshape(tf.bitcast(bits, tf.uint16), tf.concat([outer, [-1]], axis=0))[..., :size]
