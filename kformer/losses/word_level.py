"""Word-level distillation: the probabilities of a teacher (Kim and Rush 2016, section 3.1).

Shapes: B rows of the batch, T target length, V target vocabulary.
"""

from typing import Any

import keras
from keras import ops

from kformer.losses.inputs import check_two_predictions, token_mask
from kformer.losses.label_smoothing import LabelSmoothedCrossEntropy


@keras.saving.register_keras_serializable(package="kformer")
class WordLevelCrossEntropy(LabelSmoothedCrossEntropy):
    """`LabelSmoothedCrossEntropy`, of which a share is the cross entropy with the probabilities of a teacher.

    With the teacher's probabilities q and those of the model p, the loss of a token is `(1 - share)` times that of its
    label plus `share` times `-sum_k q_k log p_k`: the word-level distillation of Kim and Rush (2016), "Sequence-Level
    Knowledge Distillation", section 3.1.

    `kformer.models.WithTeacher` makes a model with both predictions. Where a model has its own alone, as in a
    validation, the loss is that of the labels.

    Args:
        share: From 0 to 1; with 1 the labels count for nothing.
        epsilon, pad_id, form, name: As of `LabelSmoothedCrossEntropy`.

    Raises:
        ValueError: `share`, `epsilon` or `form` is out of range.

    Examples:
        Of two classes, the model gives 1/2 to each, and the teacher 4/5 to the label. Both cross entropies are log 2:

        >>> logits = np.array([[[[0.0, 0.0]], [[0.0, np.log(4)]]]])
        >>> loss = WordLevelCrossEntropy(share=0.5, epsilon=0.0, pad_id=-1)
        >>> round(float(loss(np.array([[1]]), logits)), 3), round(np.log(2).item(), 3)
        (0.693, 0.693)
    """

    def __init__(
        self,
        share: float,
        epsilon: float = 0.1,
        pad_id: int = 0,
        form: str = "all",
        name: str = "word_level_cross_entropy",
    ) -> None:
        super().__init__(epsilon, pad_id, form, name)
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1. Received: share={share}.")
        self.share = share

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every token, 0 where `y_true` is padding.

        Args:
            y_true: (B, T) integer ids.
            y_pred: (B, 2, T, V) logits of any float dtype, those of the teacher at [:, 1]; or (B, T, V).

        Raises:
            ValueError: A shape does not fit, or a label is no class, see `labels_and_logits`.
        """
        if len(y_pred.shape) == 3:
            return super().call(y_true, y_pred)
        check_two_predictions(y_pred, "kformer.models.WithTeacher")
        own, teacher = y_pred[:, 0], y_pred[:, 1]
        taught = ops.where(token_mask(y_true, self.pad_id) > 0, teacher_cross_entropy(own, teacher), 0.0)
        return (1 - self.share) * super().call(y_true, own) + self.share * taught

    def get_config(self) -> dict[str, Any]:
        return {"share": self.share, **super().get_config()}


def teacher_cross_entropy(logits: Any, teacher_logits: Any) -> Any:
    """Cross entropy between the probabilities of a teacher and softmax(logits), one value per token, in nats.

    As in `label_smoothed_cross_entropy`, the gradient is written by hand: with the teacher's probabilities q it is
    `softmax(logits) - q`. There is none by the teacher's logits.

    Args:
        logits, teacher_logits: (B, T, V), any float dtype; the computation is in float32.

    Returns:
        (B, T) float32.

    Examples:
        >>> logits, teacher = np.log([[[0.25, 0.75]]]), np.log([[[0.5, 0.5]]])
        >>> np.isclose(teacher_cross_entropy(logits, teacher), (np.log(4) + np.log(4 / 3)) / 2, rtol=1e-6).tolist()
        [[True]]
    """
    logits = ops.convert_to_tensor(logits)
    wanted = ops.softmax(ops.cast(ops.stop_gradient(ops.convert_to_tensor(teacher_logits)), "float32"), axis=-1)

    @ops.custom_gradient
    def cross_entropy(logits: Any, wanted: Any) -> tuple[Any, Any]:
        log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        gradients = ops.exp(log_probabilities) - wanted

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:  # TensorFlow and JAX pass it by position
                (upstream,) = args
            return ops.cast(ops.expand_dims(upstream, -1) * gradients, logits.dtype), ops.zeros_like(wanted)

        return -ops.sum(wanted * log_probabilities, axis=-1), gradient

    return cross_entropy(logits, wanted)
