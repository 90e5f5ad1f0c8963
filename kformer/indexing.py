"""Gathers rows and columns by indices that are known to be valid.

`keras.ops.take` and `keras.ops.take_along_axis` also accept negative indices. On TensorFlow this costs five and fifteen
operations, which a search would run in every step.
"""

from typing import Any

import keras
from keras import ops


def take_rows(values: Any, rows: Any) -> Any:
    """Gathers along the first axis.

    Args:
        values: (N, ...).
        rows: Integers of any shape, from 0 to N - 1.

    Returns:
        The shape of `rows`, followed by that of a row.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(values, rows)
    return ops.take(values, rows, axis=0)


def take_columns(values: Any, columns: Any) -> Any:
    """Gathers from each row its own columns.

    Args:
        values: (N, M) or (N, M, K).
        columns: (N, C) integers from 0 to M - 1.

    Returns:
        (N, C) or (N, C, K).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(values, columns, batch_dims=1)
    if len(values.shape) == 3:
        columns = ops.expand_dims(columns, -1)
    return ops.take_along_axis(values, columns, axis=1)
