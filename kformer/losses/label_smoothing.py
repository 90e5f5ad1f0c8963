"""Label-smoothed cross entropy over token ids: "Attention Is All You Need", section 5.4.

Shapes: B rows of the batch, T target length, V target vocabulary.
"""

from typing import Any

import keras
from keras import ops

from kformer.losses.inputs import (
    LOWEST,
    labels_and_logits,
    nan_without_class,
    token_mask,
    token_weights,
    without_padding,
)
from kformer.losses.replicas import mean_over_replicas

FORMS = ("all", "others")  # of label smoothing: who shares what the label gives away


def label_smoothed_cross_entropy(labels: Any, logits: Any, epsilon: float = 0.1, form: str = "all") -> Any:
    """Cross entropy between the smoothed labels and softmax(logits), one value per token, in nats.

    With `q` the smoothed distribution over the V classes and `y` the label, the value is
    `-sum_k q_k log softmax(logits)_k` where

    - form "all" (the paper's reference [36], Szegedy et al., 2016, equation 7): every class gets
      `epsilon / V`, and the label gets `1 - epsilon` more;
    - form "others" (Tensor2Tensor): every wrong class gets `epsilon / (V - 1)`, the label `1 - epsilon`.

    `q` is never built. As it sums to 1, the value is
    `logsumexp(logits) - (q_label - q_wrong) * logits_label - q_wrong * sum(logits)`, and its gradient
    `softmax(logits) - q`. The gradient is written by hand and computed with the value, from the same exponentials. It
    keeps one (B, T, V) tensor in the logits' dtype; the automatic gradient keeps several in float32. (For float16
    logits the kept tensor is float32: in float16, small probabilities become 0 before the loss scale is applied.)

    Args:
        labels: (B, T) integers from 0 to V - 1, see `labels_and_logits`.
        logits: (B, T, V), any float dtype; the computation is in float32.
        epsilon: The probability taken from the label, at least 0 and below 1. 0 gives the plain cross entropy.
        form: "all" or "others".

    Returns:
        (B, T) float32.

    Raises:
        ValueError: `epsilon` or `form` is out of range, the shapes do not fit each other, or a label is no class.

    Examples:
        With smoothing, a certain prediction has a loss. The wrong one of two classes has half of `epsilon`: 0.05 * 20.

        >>> labels, logits = np.array([[1]]), np.array([[[0.0, 20.0]]])
        >>> [round(float(label_smoothed_cross_entropy(labels, logits, epsilon)[0, 0]), 3) for epsilon in (0.0, 0.1)]
        [0.0, 1.0]
    """
    labels, logits = labels_and_logits(labels, logits)
    q_label, q_wrong = smoothed(logits.shape[-1], epsilon, form)

    kept_dtype = "float32" if keras.backend.standardize_dtype(logits.dtype) == "float16" else logits.dtype

    @ops.custom_gradient
    def cross_entropy(logits: Any) -> tuple[Any, Any]:
        values = ops.cast(logits, "float32")  # (B, T, V)
        # `initial`: without it, TensorFlow refuses an empty batch in eager mode.
        largest = ops.max(values, axis=-1, keepdims=True, initial=LOWEST)
        exponentials = ops.exp(values - largest)  # (B, T, V)
        sums = ops.sum(exponentials, axis=-1, keepdims=True)
        normalizer = ops.squeeze(largest + ops.log(sums), -1)  # (B, T)
        label_logits = ops.squeeze(ops.take_along_axis(values, ops.expand_dims(labels, -1), axis=-1), -1)  # (B, T)
        loss = normalizer - (q_label - q_wrong) * label_logits
        if q_wrong:
            loss = loss - q_wrong * ops.sum(values, axis=-1)
        gradients = _with_values_at(
            exponentials * (1.0 / sums) - q_wrong, labels, ops.exp(label_logits - normalizer) - q_label
        )
        gradients = ops.cast(gradients, kept_dtype)  # (B, T, V)

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:  # TensorFlow and JAX pass it by position
                (upstream,) = args
            return ops.cast(ops.expand_dims(ops.cast(upstream, kept_dtype), -1) * gradients, logits.dtype)

        return loss, gradient

    return nan_without_class(cross_entropy(logits), labels, logits)


def smoothed(num_classes: int, epsilon: float = 0.1, form: str = "all") -> tuple[float, float]:
    """The probabilities q of the label and of each wrong class, see `label_smoothed_cross_entropy`.

    Raises:
        ValueError: `epsilon` or `form` is out of range.

    Examples:
        >>> smoothed(num_classes=5, epsilon=0.5), smoothed(num_classes=5, epsilon=0.5, form="others")
        ((0.6, 0.1), (0.5, 0.125))
    """
    _check_smoothing(epsilon, form)
    q_wrong = epsilon / (num_classes if form == "all" else max(num_classes - 1, 1))
    return 1 - epsilon + (q_wrong if form == "all" else 0.0), q_wrong


def _with_values_at(tensor: Any, labels: Any, values: Any) -> Any:
    """`tensor` (B, T, V) with the numbers at the `labels` (B, T) replaced by `values` (B, T)."""
    num_classes = tensor.shape[-1]
    rows = ops.reshape(tensor, (-1, num_classes))
    labels = ops.reshape(labels, (-1,))
    indices = ops.stack([ops.arange(ops.shape(rows)[0], dtype="int32"), labels], axis=-1)
    return ops.reshape(ops.scatter_update(rows, indices, ops.reshape(values, (-1,))), ops.shape(tensor))


@keras.saving.register_keras_serializable(package="kformer")
class LabelSmoothedCrossEntropy(keras.Loss):
    """Mean of `label_smoothed_cross_entropy` over the tokens of a batch that are not padding.

    The mean is the sum over tokens divided by the number of tokens of the whole batch. Under `tf.distribute`, with R
    replicas, the value on each is 1 / R of this mean, with the gradient of its own tokens: Keras sums the gradients,
    and averages R times the values. So every token has the same weight, whatever the numbers of tokens and rows on its
    replica. (`keras.distribution` on JAX needs no sum: its arrays are global.) With gradient accumulation Keras
    averages the means of the micro-batches with equal weights. So give each micro-batch its share of the tokens as
    sample weights, as `kformer.data.make_dataset` does.

    Do not give `class_weight` to `fit` where T > 1: Keras takes such labels for one-hot vectors and weights each row by
    the position of its largest id. Give `fit` a weight for each token instead: `sample_weight`, (B, T).

    Args:
        epsilon: See `label_smoothed_cross_entropy`.
        pad_id: Label of the positions that do not count, any integer. A batch of padding alone gives 0.
        form: "all" or "others", see `label_smoothed_cross_entropy`.
        name: Name of the loss.

    Raises:
        ValueError: `epsilon` or `form` is out of range.

    Examples:
        With equal logits for four classes a token costs log 4. The second position is padding and does not count:

        >>> loss = LabelSmoothedCrossEntropy(pad_id=0)
        >>> round(float(loss(np.array([[3, 0]]), np.zeros((1, 2, 4)))), 3), round(np.log(4).item(), 3)
        (1.386, 1.386)
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        pad_id: int = 0,
        form: str = "all",
        name: str = "label_smoothed_cross_entropy",
    ) -> None:
        super().__init__(name=name, reduction="sum")
        _check_smoothing(epsilon, form)
        self.epsilon = epsilon
        self.pad_id = pad_id
        self.form = form

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The mean over tokens: a float32 scalar. Overrides Keras, which would cast the ids to a float dtype.

        Args:
            y_true: (B, T) integer ids.
            y_pred: (B, T, V) logits, any float dtype.
            sample_weight: Factors of the losses; the number of tokens does not change. A scalar, (B,) or (B, 1) floats
                for the rows, or (B, T) for the tokens.

        Raises:
            ValueError: A shape does not fit, or a label is no class, see `labels_and_logits`.
        """
        tokens = ops.sum(token_mask(y_true, self.pad_id))
        losses = self.call(y_true, y_pred)  # (B, T)
        if sample_weight is not None:
            losses = losses * token_weights(sample_weight, losses)
        return mean_over_replicas(ops.sum(losses), tokens)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every token, 0 where `y_true` is padding."""
        labels = without_padding(y_true, self.pad_id)
        losses = label_smoothed_cross_entropy(labels, y_pred, self.epsilon, self.form)
        return ops.where(token_mask(y_true, self.pad_id) > 0, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "pad_id": self.pad_id, "form": self.form, "name": self.name}


def _check_smoothing(epsilon: float, form: str) -> None:
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must be at least 0 and below 1. Received: epsilon={epsilon}.")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}. Received: form={form!r}.")
