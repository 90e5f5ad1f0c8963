"""The dropout of all layers (section 5.4): Keras's, with cheaper random numbers on TensorFlow.

It is applied to the output of each sublayer (`residual`), to embeddings with their positions (`stack`) and, if the
configuration says so, to attention weights (`attention`).
"""

import keras

from kformer.layers.tensors import Tensor

LEVELS = 2**16
DECISIONS = 4  # random decisions of 16 bits in one 64-bit number


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
        dropped = round(self.rate * LEVELS)
        if not training or keras.backend.backend() != "tensorflow" or dropped in (0, LEVELS):
            return super().call(inputs, training=training)
        import tensorflow as tf

        bits = _random_bits(tf.shape(inputs), self.seed_generator.next())
        scale = tf.cast(LEVELS / (LEVELS - dropped), inputs.dtype)
        return inputs * tf.where(bits >= tf.cast(dropped, bits.dtype), scale, tf.zeros_like(scale))


def _random_bits(shape: Tensor, seed: Tensor) -> Tensor:
    """Uniformly random uint16 numbers of this shape."""
    import tensorflow as tf

    outer, size = shape[:-1], shape[-1]
    numbers = tf.concat([outer, [(size + DECISIONS - 1) // DECISIONS]], axis=0)
    # Without bounds, the numbers cover all values of uint64.
    bits = tf.random.stateless_uniform(numbers, seed, minval=None, maxval=None, dtype=tf.uint64)
    return tf.reshape(tf.bitcast(bits, tf.uint16), tf.concat([outer, [-1]], axis=0))[..., :size]
