import keras
import pytest


@pytest.fixture
def compiled():
    """Compiles a function of tensors as the backend at hand does: `tf.function` or `jax.jit`."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function
    return lambda function: function
