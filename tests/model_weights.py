"""The weights of a model, to compare them later."""

import keras
import numpy as np


def arrays_of(model: keras.Model) -> dict[str, np.ndarray]:
    """A copy of each weight, by its path."""
    return {weight.path: np.array(keras.ops.convert_to_numpy(weight)) for weight in model.weights}
