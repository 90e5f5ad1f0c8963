"""Metrics over the tokens of all batches of an epoch, padding excluded.

Keras's own `loss` averages the means of the batches, weighted by their numbers of rows. If batches are made by token
count, this is not the mean over tokens. `TokenLoss` is.

Shapes: B rows of the batch, T target length, V target vocabulary.
"""

import abc
from typing import Any

import keras
from keras import ops

from kformer.losses import label_smoothed_cross_entropy
from kformer.losses.inputs import (
    LOWEST,
    labels_and_logits,
    nan_without_class,
    one_prediction,
    refuse_sample_weight,
    token_mask,
    without_padding,
)


class _TokenMean(keras.Metric, abc.ABC):
    """Sum over tokens / number of tokens, both kept over the batches."""

    def __init__(self, pad_id: int, name: str) -> None:
        super().__init__(name=name)
        self.pad_id = pad_id
        self.total = self.add_variable((), "zeros", dtype="float32", name="total")
        # An integer: float32 cannot count beyond 2**24 tokens one by one.
        self.tokens = self.add_variable((), "zeros", dtype="int", name="tokens")

    @abc.abstractmethod
    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        """The values to average, (B, T) float32. `y_true` has the label 0 where it was padding."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch: `y_true` (B, T) integer ids, `y_pred` (B, T, V) logits of any float dtype.

        Of two predictions of each row, (B, 2, T, V), the first one counts, so that each token counts once.

        Raises:
            ValueError: There is a `sample_weight`, the shapes do not fit each other, or a label is no class, see
                `kformer.losses.inputs.labels_and_logits`.
        """
        refuse_sample_weight(self.name, sample_weight)
        mask = token_mask(y_true, self.pad_id)
        values = self.token_values(without_padding(y_true, self.pad_id), one_prediction(y_pred))
        values = ops.where(mask > 0, values, 0.0)
        self.total.assign_add(ops.sum(values))
        self.tokens.assign_add(ops.cast(ops.sum(mask), self.tokens.dtype))

    def result(self) -> Any:
        """The mean so far, a float32 scalar; 0 before the first token."""
        return self.total / ops.maximum(ops.cast(self.tokens, "float32"), 1.0)

    def get_config(self) -> dict[str, Any]:
        return {"pad_id": self.pad_id, "name": self.name}


@keras.saving.register_keras_serializable(package="kformer")
class TokenLoss(_TokenMean):
    """The mean label-smoothed cross entropy per token over all batches, in nats.

    Args:
        epsilon: See `kformer.losses.label_smoothed_cross_entropy`.
        pad_id: Label of the positions that do not count.
        form: "all" or "others".
        name: Name of the metric.

    Examples:
        One token has the loss log 4 = 1.386 and three have 0, so the mean over the tokens of both batches is 1.386 / 4:

        >>> loss = TokenLoss(epsilon=0.0)
        >>> loss.update_state(np.array([[2, 0, 0]]), np.zeros((1, 3, 4)))
        >>> loss.update_state(np.array([[1, 1, 1]]), 100 * np.eye(4)[[[1, 1, 1]]])
        >>> round(float(loss.result()), 3)
        0.347
    """

    def __init__(self, epsilon: float = 0.1, pad_id: int = 0, form: str = "all", name: str = "token_loss") -> None:
        super().__init__(pad_id, name)
        self.epsilon = epsilon
        self.form = form

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        return label_smoothed_cross_entropy(y_true, y_pred, self.epsilon, self.form)

    def get_config(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "form": self.form, **super().get_config()}


@keras.saving.register_keras_serializable(package="kformer")
class Perplexity(_TokenMean):
    """exp(mean cross entropy per token), without label smoothing (the PPL per word piece of Table 3).

    This is the perplexity in training. That of whole texts, which `kformer evaluate` tells of a language model, is in
    `kformer.evaluation.evaluate.score_texts`.

    Args:
        pad_id: Label of the positions that do not count.
        name: Name of the metric.

    Examples:
        With equal logits, all four classes are equally probable:

        >>> perplexity = Perplexity()
        >>> perplexity.update_state(np.array([[3, 0]]), np.zeros((1, 2, 4)))
        >>> round(float(perplexity.result()), 3)
        4.0
    """

    def __init__(self, pad_id: int = 0, name: str = "perplexity") -> None:
        super().__init__(pad_id, name)

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        return label_smoothed_cross_entropy(y_true, y_pred, epsilon=0.0)

    def result(self) -> Any:
        """The perplexity so far, a float32 scalar; 1 before the first token."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="kformer")
class TokenAccuracy(_TokenMean):
    """Share of the tokens whose label has the highest logit. A tie counts as a hit.

    The loss computes the highest logit anyway. With XLA, an argmax would be a slow additional pass over the vocabulary:
    a tenth of a small model's training step on a CPU.

    Args:
        pad_id: Label of the positions that do not count.
        name: Name of the metric.

    Examples:
        The first token is hit, the second is not, and the third position is padding:

        >>> accuracy = TokenAccuracy()
        >>> accuracy.update_state(np.array([[1, 2, 0]]), np.eye(4)[[[1, 3, 0]]])
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, pad_id: int = 0, name: str = "accuracy") -> None:
        super().__init__(pad_id, name)

    def token_values(self, y_true: Any, y_pred: Any) -> Any:
        labels, logits = labels_and_logits(y_true, y_pred)
        values = ops.cast(logits, "float32")  # (B, T, V)
        label_logits = ops.squeeze(ops.take_along_axis(values, ops.expand_dims(labels, -1), axis=-1), -1)  # (B, T)
        hits = ops.cast(label_logits >= ops.max(values, axis=-1, initial=LOWEST), "float32")
        return nan_without_class(hits, labels, logits)


@keras.saving.register_keras_serializable(package="kformer")
class TokenCount(keras.Metric):
    """Number of target tokens seen, padding excluded: the numerator of tokens per second.

    Args:
        pad_id: Label of the positions that do not count.
        name: Name of the metric.

    Examples:
        >>> count = TokenCount()
        >>> count.update_state(np.array([[7, 5, 0], [3, 0, 0]]), y_pred=None)
        >>> int(count.result())
        3
    """

    def __init__(self, pad_id: int = 0, name: str = "tokens") -> None:
        super().__init__(name=name)
        self.pad_id = pad_id
        self.tokens = self.add_variable((), "zeros", dtype="int", name="tokens")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch: `y_true` (B, T) integer ids; `y_pred` is not used.

        Raises:
            ValueError: There is a `sample_weight`.
        """
        refuse_sample_weight(self.name, sample_weight)
        self.tokens.assign_add(ops.cast(ops.sum(token_mask(y_true, self.pad_id)), self.tokens.dtype))

    def result(self) -> Any:
        """The count so far, an integer scalar."""
        # The sum makes a new tensor: TensorFlow would return the variable itself, which changes later.
        return self.tokens + 0

    def get_config(self) -> dict[str, Any]:
        return {"pad_id": self.pad_id, "name": self.name}
