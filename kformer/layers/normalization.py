"""Norms: layer normalization, whose gradient on TensorFlow is written by hand, and RMS normalization.

Shape letters: N positions, D model size.
"""

from typing import Any

import keras

from kformer.layers.dense import Arithmetic
from kformer.layers.tensors import Tensor

LAYER_NORM_EPSILON = 1e-6  # TensorFlow's Transformers use it; PyTorch's use 1e-5.


@keras.saving.register_keras_serializable(package="kformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer normalization, over the last axis.

    In training on TensorFlow its gradient is written by hand, because the automatic one passes over memory more often.
    (XLA compiles both to few passes.)
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """(..., D) floats to the same shape."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.normalize(self, inputs)
        if not training or keras.backend.backend() != "tensorflow":
            return super().call(inputs)
        import tensorflow as tf

        rows = tf.reshape(inputs, (-1, inputs.shape[-1]))
        outputs = _normalize(rows, self.gamma, self.beta, self.epsilon, self.compute_dtype)
        return tf.reshape(outputs, tf.shape(inputs))


@keras.saving.register_keras_serializable(package="kformer")
class RMSNormalization(keras.layers.RMSNormalization):
    """Keras's RMS normalization, x / sqrt(mean(x^2) + epsilon) * scale, over the last axis (Zhang and Sennrich 2019).

    Unlike layer normalization it subtracts no mean and has no bias.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True  # which Keras's own lacks


# The choices of the option `normalization` of layers.
NORMS: dict[str, type[keras.layers.Layer]] = {"layer_norm": LayerNormalization, "rms_norm": RMSNormalization}


def make_norm(normalization: str, epsilon: float, dtype: Any, name: str) -> keras.layers.Layer:
    """The norm of this name; `epsilon` is added to the variance, or in RMS normalization to the mean of the squares.

    Raises:
        ValueError: `normalization` is not in `NORMS`.
    """
    if normalization not in NORMS:
        raise ValueError(f"normalization must be one of {', '.join(NORMS)}. Received: normalization={normalization!r}.")
    return NORMS[normalization](epsilon=epsilon, dtype=dtype, name=name)


def _normalize(rows: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, output_dtype: str) -> Tensor:
    """(N, D) floats to the same shape; computed in float32 or better, as in Keras."""
    import tensorflow as tf

    size = rows.shape[1]
    dtype = keras.backend.result_type(rows.dtype, "float32")

    @tf.custom_gradient
    def normalize(rows: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Any]:
        values = tf.cast(rows, dtype)
        centred = values - tf.reduce_mean(values, axis=1, keepdims=True)
        factor = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axis=1, keepdims=True) + epsilon)  # (N, 1)
        normal = centred * factor

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            upstream = tf.cast(upstream, dtype)
            products = upstream * normal
            # Matrix products compute these sums faster than TensorFlow's sums, especially along columns.
            mean_of_rows = tf.expand_dims(gamma / size, 1)  # (D, 1)
            sum_of_columns = tf.ones((1, tf.shape(rows)[0]), dtype)  # (1, N)
            shift, slope = tf.matmul(upstream, mean_of_rows), tf.matmul(products, mean_of_rows)  # (N, 1)
            of_rows = tf.cast((upstream * gamma - shift - normal * slope) * factor, rows.dtype)
            of_gamma, of_beta = tf.matmul(sum_of_columns, products), tf.matmul(sum_of_columns, upstream)  # (1, D)
            return of_rows, tf.squeeze(of_gamma, 0), tf.squeeze(of_beta, 0)

        return tf.cast(normal * gamma + beta, output_dtype), gradient

    return normalize(rows, tf.cast(gamma, dtype), tf.cast(beta, dtype))
