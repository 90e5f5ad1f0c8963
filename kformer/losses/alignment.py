"""Guided alignment: attention learns which words belong together (Chen et al. 2016).

Shapes: B rows of the batch, T target length, S source length.
"""

from typing import Any

import keras
from keras import ops

from kformer.losses.inputs import token_weights
from kformer.losses.replicas import mean_over_replicas

_LEAST_WEIGHT = 1e-6  # is added to attention weights, so that a weight of 0 can be learned away, too


@keras.saving.register_keras_serializable(package="kformer")
class AlignmentCrossEntropy(keras.Loss):
    """Mean cross entropy between word alignments and attention weights, over the target tokens that are aligned.

    A target token that is aligned with n source tokens wants a weight of 1 / n for each of them. With these a_s and the
    attention weights w_s, its loss is `-sum_s a_s log w_s`, in nats. This is the cross entropy of Chen et al. (2016),
    "Guided Alignment Training for Topic-Aware Neural Machine Translation". A token without an alignment has none.

    The mean is taken as that of `LabelSmoothedCrossEntropy`: over all replicas, and 0 if no token is aligned.

    Args:
        name: Name of the loss.

    Examples:
        The first token is aligned with both source tokens, the second with the first, and the third with none:

        >>> aligned = np.array([[[1, 1], [1, 0], [0, 0]]], bool)
        >>> weights = np.array([[[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]])
        >>> round(float(AlignmentCrossEntropy()(aligned, weights)), 3), round((np.log(2) + np.log(4)).item() / 2, 3)
        (1.04, 1.04)
    """

    def __init__(self, name: str = "alignment_cross_entropy") -> None:
        super().__init__(name=name, reduction="sum")

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The mean over aligned tokens: a float32 scalar.

        Args:
            y_true: (B, T, S), true or 1 where a target token is aligned with a source token, else false or 0.
            y_pred: (B, T, S) attention weights, whose sum over S is 1.
            sample_weight: As of `LabelSmoothedCrossEntropy`.
        """
        tokens = ops.sum(ops.cast(ops.any(ops.cast(y_true, "bool"), axis=-1), "float32"))
        losses = self.call(y_true, y_pred)  # (B, T)
        if sample_weight is not None:
            losses = losses * token_weights(sample_weight, losses)
        return mean_over_replicas(ops.sum(losses), tokens)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every target token, 0 where none is aligned; arguments as of a call."""
        aligned = ops.cast(y_true, "float32")
        wanted = aligned / ops.maximum(ops.sum(aligned, axis=-1, keepdims=True), 1.0)
        return -ops.sum(wanted * ops.log(ops.cast(y_pred, "float32") + _LEAST_WEIGHT), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}
