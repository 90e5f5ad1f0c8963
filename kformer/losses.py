"""Label-smoothed cross entropy over token ids ("Attention Is All You Need", section 5.4), and losses that go beyond it:
R-Drop, the probabilities of a teacher, and word alignments.

Shapes: B rows of the batch, T target length, S source length, V target vocabulary.
"""

import math
from typing import Any

import keras
from keras import ops

from kformer.loss_inputs import LOWEST, labels_and_logits, nan_without_class, token_mask, token_weights, without_padding

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
        return _mean_over_replicas(ops.sum(losses), tokens)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every token, 0 where `y_true` is padding."""
        labels = without_padding(y_true, self.pad_id)
        losses = label_smoothed_cross_entropy(labels, y_pred, self.epsilon, self.form)
        return ops.where(token_mask(y_true, self.pad_id) > 0, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "pad_id": self.pad_id, "form": self.form, "name": self.name}


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
        _check_two_predictions(y_pred, "kformer.models.TwoPasses")
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
        _check_two_predictions(y_pred, "kformer.models.WithTeacher")
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


def _check_two_predictions(logits: Any, made_by: str) -> None:
    if len(logits.shape) != 4 or logits.shape[1] != 2:
        raise ValueError(
            f"Logits must be (B, 2, T, V), as those of {made_by} in training, or (B, T, V). "
            f"Received: logits of shape {tuple(logits.shape)}."
        )


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
        return _mean_over_replicas(ops.sum(losses), tokens)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, T) float32: the loss of every target token, 0 where none is aligned; arguments as of a call."""
        aligned = ops.cast(y_true, "float32")
        wanted = aligned / ops.maximum(ops.sum(aligned, axis=-1, keepdims=True), 1.0)
        return -ops.sum(wanted * ops.log(ops.cast(y_pred, "float32") + _LEAST_WEIGHT), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}


def _check_smoothing(epsilon: float, form: str) -> None:
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must be at least 0 and below 1. Received: epsilon={epsilon}.")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}. Received: form={form!r}.")


def _mean_over_replicas(total: Any, tokens: Any) -> Any:
    """`total` / `tokens`; under `tf.distribute` the part of each replica, see `LabelSmoothedCrossEntropy`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        context, reduce_op = tf.distribute.get_replica_context(), tf.distribute.ReduceOp
        if context is not None and context.num_replicas_in_sync > 1:
            share = total / ops.maximum(context.all_reduce(reduce_op.SUM, tokens), 1.0)
            # Keras weights the values by the replicas' rows, so that unequal values would count too much or too little.
            return tf.grad_pass_through(lambda value: context.all_reduce(reduce_op.MEAN, value))(share)
    return total / ops.maximum(tokens, 1.0)
