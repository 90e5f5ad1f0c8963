"""Dropout with cheap random numbers (section 5.4)."""

import keras

from kformer.layers.tensors import Tensor

LEVELS = 2**16
DECISIONS = 4  # of 16 bits each in a random number of 64


@keras.saving.register_keras_serializable(package="kformer")
class Dropout(keras.layers.Dropout):
    """Keras's; on TensorFlow each decision takes 16 random bits instead of 32, and what is kept one multiplication.

    There the rate is rounded to a 65,536th, and what is kept is scaled to match: the expected value is the input.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """(..., D) floats to the same shape; in training a share of `rate` of them is 0, the others are scaled up."""
        if training and self.rate == 1:  # Keras before 3.14 refuses it, or gives gradients that are no numbers
            return keras.ops.zeros_like(inputs)
        dropped = round(self.rate * LEVELS)
        if not training or keras.backend.backend() != "tensorflow" or dropped in (0, LEVELS):
            return super().call(inputs, training=training)
        import tensorflow as tf

        bits = _random_bits(tf.shape(inputs), self.seed_generator.next())
        scale = tf.cast(LEVELS / (LEVELS - dropped), inputs.dtype)
        return inputs * tf.where(bits >= tf.cast(dropped, bits.dtype), scale, tf.zeros_like(scale))


def _random_bits(shape: Tensor, seed: Tensor) -> Tensor:
    """uint16 of this shape, all values alike probable."""
    import tensorflow as tf

    outer, size = shape[:-1], shape[-1]
    numbers = tf.concat([outer, [(size + DECISIONS - 1) // DECISIONS]], axis=0)
    # Without bounds: all values of the type.
    bits = tf.random.stateless_uniform(numbers, seed, minval=None, maxval=None, dtype=tf.uint64)
    return tf.reshape(tf.bitcast(bits, tf.uint16), tf.concat([outer, [-1]], axis=0))[..., :size]
