"""The gradient of a function, on every backend."""

from typing import Any

import keras
import numpy as np
from keras import ops


def gradient(function: Any, inputs: np.ndarray) -> np.ndarray:
    """The gradient of a scalar function."""
    tensor = ops.convert_to_tensor(inputs)
    if keras.backend.backend() == "jax":
        import jax

        return np.array(jax.grad(function)(tensor))
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensor)
        output = function(tensor)
    return tape.gradient(output, tensor).numpy()
