"""R-Drop: two predictions of each row shall be alike (Liang et al. 2021).

Shapes: B rows of the batch, T target length, V target vocabulary.
"""

import math
from typing import Any

import keras
from keras import ops

from kformer.losses.inputs import check_two_predictions, token_mask
from kformer.losses.label_smoothing import LabelSmoothedCrossEntropy


@keras.saving.register_keras_serializable(package="kformer")
class RDropCrossEntropy(LabelSmoothedCrossEntropy):
    """`LabelSmoothedCrossEntropy` of two predictions of each token, which also have to agree with each other.

    For a token with the predictions P1 and P2, which differ by their dropout, the loss is half of equation 4 of Liang
    et al. (2021), "R-Drop: Regularized Dropout for Neural Networks": the mean cross entropy of both, plus alpha / 2
    times the mean of KL(P1 || P2) and KL(P2 || P1). By the half, equal predictions have the loss of one of them.

    `kformer.models.TwoPasses` makes a model with two predictions. Where a model has one, as in a validation, the loss
    is the cross entropy alone.

    Args:
        alpha: The weight of the divergence, from 0 up; the paper's is 5 for translation.
        epsilon, pad_id, form, name: As of `LabelSmoothedCrossEntropy`.

    Raises:
        ValueError: `alpha`, `epsilon` or `form` is out of range.

    Examples:
        Of two classes, the first prediction gives 1/2 to each, the second 4/5 to the label. The cross entropies are
        log 2 and log 5/4, and the mean divergence is (4/5 - 1/2) log 4 / 2:

        >>> logits = np.array([[[[0.0, 0.0]], [[0.0, np.log(4)]]]])
        >>> loss = RDropCrossEntropy(alpha=5.0, epsilon=0.0, pad_id=-1)
        >>> round(float(loss(np.array([[1]]), logits)), 3)
        0.978
        >>> round((np.log(2) + np.log(5 / 4)) / 2 + 5 / 2 * 0.3 * np.log(4) / 2, 3).item()
        0.978
    """

    def __init__(
        self, alpha: float, epsilon: float = 0.1, pad_id: int = 0, form: str = "all", name: str = "r_drop_cross_entropy"
    ) -> None:
        super().__init__(epsilon, pad_id, form, name)
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha must be a finite number of at least 0. Received: alpha={alpha}.")
        self.alpha = alpha

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every token, 0 where `y_true` is padding.

        Args:
            y_true: (B, T) integer ids.
            y_pred: (B, 2, T, V) logits of any float dtype, or (B, T, V).

        Raises:
            ValueError: A shape does not fit, or a label is no class, see `labels_and_logits`.
        """
        if len(y_pred.shape) == 3:
            return super().call(y_true, y_pred)
        check_two_predictions(y_pred, "kformer.models.TwoPasses")
        first, second = (super(RDropCrossEntropy, self).call(y_true, y_pred[:, number]) for number in (0, 1))
        divergences = ops.where(token_mask(y_true, self.pad_id) > 0, mean_divergence(y_pred), 0.0)
        return (first + second) / 2 + self.alpha / 2 * divergences

    def get_config(self) -> dict[str, Any]:
        return {"alpha": self.alpha, **super().get_config()}


def mean_divergence(logits: Any) -> Any:
    """The mean of KL(P1 || P2) and KL(P2 || P1) of two predictions of each token, in nats.

    With the log probabilities a and b of both, it is `sum_k (exp a_k - exp b_k) (a_k - b_k) / 2`, which is exactly 0 if
    they are equal. As in `label_smoothed_cross_entropy`, the gradient is written by hand. That by a's logits is
    `(exp a_k (a_k - b_k - KL(P1 || P2)) + exp a_k - exp b_k) / 2`.

    Args:
        logits: (B, 2, T, V), any float dtype; the computation is in float32.

    Returns:
        (B, T) float32.

    Examples:
        >>> logits = np.log([[[[0.5, 0.5]], [[0.2, 0.8]]]])
        >>> np.isclose(mean_divergence(logits), 0.3 * np.log(4) / 2, rtol=1e-6).tolist()
        [[True]]
    """
    logits = ops.convert_to_tensor(logits)

    @ops.custom_gradient
    def divergence(logits: Any) -> tuple[Any, Any]:
        log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)  # (B, 2, T, V)
        probabilities = ops.exp(log_probabilities)
        ratios = log_probabilities - ops.flip(log_probabilities, axis=1)  # log P1 - log P2, and log P2 - log P1
        differences = probabilities - ops.flip(probabilities, axis=1)
        each = ops.sum(probabilities * ratios, axis=-1, keepdims=True)  # (B, 2, T, 1), KL of either with the other
        gradients = (probabilities * (ratios - each) + differences) / 2

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:  # TensorFlow and JAX pass it by position
                (upstream,) = args
            return ops.cast(ops.expand_dims(ops.expand_dims(upstream, 1), -1) * gradients, logits.dtype)

        # The first of both differences alone: the other one has the same products.
        return ops.sum(differences[:, 0] * ratios[:, 0], axis=-1) / 2, gradient

    return divergence(logits)
