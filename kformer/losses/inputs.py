"""What losses and metrics over tokens take: labels, logits and sample weights; and padding, which counts nothing.

Shapes: B rows of the batch, T target length, V target vocabulary.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

LOWEST = float(np.finfo("float32").min)  # what the largest logit of a token begins with


def token_mask(labels: Any, pad_id: int) -> Any:
    """(B, T) float32: 1 where `labels` holds a token, 0 where it holds `pad_id`.

    Examples:
        >>> np.asarray(token_mask(np.array([[7, 5, 0]]), pad_id=0)).tolist()
        [[1.0, 1.0, 0.0]]
    """
    return ops.cast(ops.not_equal(ops.cast(labels, "int32"), pad_id), "float32")


def without_padding(labels: Any, pad_id: int) -> Any:
    """(B, T) int32: 0 where `labels` holds `pad_id`, which need not be a class.

    Examples:
        >>> np.asarray(without_padding(np.array([[7, 5, -100]]), pad_id=-100)).tolist()
        [[7, 5, 0]]
    """
    return ops.where(token_mask(labels, pad_id) > 0, ops.cast(labels, "int32"), 0)


def one_prediction(logits: Any) -> Any:
    """(B, T, V): the logits, or the first of the two predictions (B, 2, T, V) of `kformer.models.TwoPasses`.

    Examples:
        >>> one_prediction(np.zeros((3, 5, 7))).shape, one_prediction(np.zeros((3, 2, 5, 7))).shape
        ((3, 5, 7), (3, 5, 7))
    """
    return logits[:, 0] if len(getattr(logits, "shape", ())) == 4 else logits


def labels_and_logits(labels: Any, logits: Any) -> tuple[Any, Any]:
    """Checks that `labels` (B, T) fit `logits` (B, T, V).

    Where TensorFlow learns a size or a label only when a graph runs, there can be no ValueError. Sizes that differ are
    then an InvalidArgumentError, and `nan_without_class` marks wrong labels with NaN.

    Returns:
        The labels as an int32 tensor, and the logits as a tensor.

    Raises:
        ValueError: The shapes do not fit each other, or a label is not in the range from 0 to V - 1.

    Examples:
        >>> labels_and_logits([[3, 1]], np.zeros((1, 2, 3)))
        Traceback (most recent call last):
        ValueError: Labels must be from 0 to 2: there are logits for 3 classes. Received: the label 3. ...
    """
    labels, logits = ops.cast(labels, "int32"), ops.copy(logits)  # the copy of a tf.Variable is a tensor
    if len(logits.shape) != 3 or not _fit(labels.shape, logits.shape[:2]):
        raise ValueError(
            "Labels must be integers (B, T), for logits (B, T, V). "
            f"Received: labels of shape {tuple(labels.shape)}, logits of shape {tuple(logits.shape)}. "
            "Pass ids, not one-hot vectors, and one id for each position of the logits."
        )
    if None in (*labels.shape, *logits.shape[:2]):
        # No classes of the logits are put beside the labels. When the graph runs, this fails if B or T differ.
        no_classes = ops.cast(logits[..., :0], "int32")  # (B, T, 0)
        labels = ops.squeeze(ops.concatenate([ops.expand_dims(labels, -1), no_classes], axis=-1), -1)
    if not _is_traced(labels):
        found, num_classes = ops.convert_to_numpy(labels), logits.shape[-1]
        if (wrong := found[(found < 0) | (found >= num_classes)]).size:
            raise ValueError(
                f"Labels must be from 0 to {num_classes - 1}: there are logits for {num_classes} classes. "
                f"Received: the label {wrong[0]}. If it marks padding, pass it as pad_id."
            )
    return labels, logits


def nan_without_class(values: Any, labels: Any, logits: Any) -> Any:
    """`values` (B, T), NaN where the label is not in the range from 0 to V - 1.

    A compiled function cannot raise an error, and XLA would use the nearest class instead.

    Examples:
        >>> values, labels = np.ones((1, 2), "float32"), np.array([[2, 3]])
        >>> np.asarray(nan_without_class(values, labels, logits=np.zeros((1, 2, 3)))).tolist()
        [[1.0, nan]]
    """
    is_class = ops.logical_and(labels >= 0, labels < logits.shape[-1])
    # The root of -1. A constant NaN would stop every graph under tf.debugging.enable_check_numerics.
    return ops.where(is_class, values, ops.sqrt(ops.cast(is_class, "float32") - 1.0))


def token_weights(sample_weight: Any, losses: Any) -> Any:
    """Sample weights as factors of the tokens: a scalar or (B, T) float32.

    Args:
        sample_weight: A scalar, (B,) or (B, 1) for the rows, or (B, T) for the tokens.
        losses: (B, T).

    Raises:
        ValueError: The weights have another shape. Where TensorFlow learns the sizes only when a graph runs, other
            sizes are an InvalidArgumentError.

    Examples:
        >>> np.asarray(token_weights([1.0, 0.5], np.zeros((2, 3)))).tolist()
        [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5]]
    """
    weights = _with_known_rank(ops.cast(sample_weight, "float32"))
    rows, length = losses.shape
    if not any(_fit(weights.shape, shape) for shape in ((), (rows,), (rows, 1), (rows, length))):
        raise ValueError(
            "sample_weight must be a scalar, or have the shape (B,), (B, 1) or (B, T), for labels (B, T). "
            f"Received: sample_weight of shape {tuple(weights.shape)}, labels of shape {tuple(losses.shape)}. "
            "Pass a weight for each row, or one for each token."
        )
    if len(weights.shape) == 0:
        return weights
    if len(weights.shape) == 1:
        weights = ops.expand_dims(weights, -1)
    # Where sizes are known only when the graph runs, one of these fails if they do not fit: the product if there are
    # not 1 or T columns (XLA's broadcast_to would repeat T / 2 of them), the other one if there are not B rows.
    weights = weights * ops.ones((ops.shape(weights)[0], ops.shape(losses)[1]))
    return ops.reshape(weights, ops.shape(losses))


def _fit(shape: Any, expected: Any) -> bool:
    """Whether the shapes may be equal. Sizes that are not known yet are None."""
    return len(shape) == len(expected) and all(
        size == other or size is None or other is None for size, other in zip(shape, expected, strict=True)
    )


def _with_known_rank(weights: Any) -> Any:
    """The weights, (B, 1) if TensorFlow does not know whether they are (B,) or (B, 1).

    `fit` makes one graph for weights of both shapes if it gets them one after the other.
    """
    if getattr(weights.shape, "rank", 0) is not None:
        return weights
    import tensorflow as tf

    columns = tf.reshape(weights, tf.concat([tf.shape(weights), [1]], axis=0)[:2])
    return tf.ensure_shape(columns, [None, None])


def _is_traced(tensor: Any) -> bool:
    """Whether a graph is being made, so that the numbers are not known yet."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return not tf.executing_eagerly()
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(tensor, jax.core.Tracer)
    return False


def refuse_sample_weight(name: str, sample_weight: Any) -> None:
    """Raises a ValueError unless `sample_weight`, which Keras always passes, is None.

    Examples:
        >>> refuse_sample_weight("accuracy", sample_weight=None)
        >>> refuse_sample_weight("accuracy", sample_weight=0.5)
        Traceback (most recent call last):
        ValueError: accuracy takes no sample_weight: padding is excluded by pad_id. ...
    """
    if sample_weight is not None:
        raise ValueError(
            f"{name} takes no sample_weight: padding is excluded by pad_id. "
            f"Received: sample_weight={sample_weight}. Leave it out."
        )


def check_two_predictions(logits: Any, made_by: str) -> None:
    """Refuses logits that are not two predictions of each row.

    Args:
        logits: Shall be (B, 2, T, V).
        made_by: The class of models that makes them, for the message.

    Raises:
        ValueError: They have another shape.

    Examples:
        >>> check_two_predictions(np.zeros((5, 2, 3, 7)), "kformer.models.TwoPasses")
    """
    if len(logits.shape) != 4 or logits.shape[1] != 2:
        raise ValueError(
            f"Logits must be (B, 2, T, V), as those of {made_by} in training, or (B, T, V). "
            f"Received: logits of shape {tuple(logits.shape)}."
        )
