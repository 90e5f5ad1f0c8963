"""What a model is trained to do better, and the metrics that tell how well it does."""

from typing import NamedTuple

import keras

from kformer.config import TrainingConfig, TransformerConfig
from kformer.losses import LabelSmoothedCrossEntropy, RDropCrossEntropy, WordLevelCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenLoss


class Objective(NamedTuple):
    """What `model.compile` gets of a task.

    Attributes:
        loss: Of the model's output and the labels of the task's `arrangement`. With `TrainingConfig.r_drop`, a model in
            training has the output of `kformer.models.TwoPasses`; with `word_level`, that of `WithTeacher`.
        metrics: Those of a validation, by the names in `kformer.config.MONITORS`. One of them is named "token_loss": by
            default it decides which weights are the best.
    """

    loss: keras.losses.Loss
    metrics: list[keras.metrics.Metric]


def cross_entropy(transformer: TransformerConfig, training: TrainingConfig) -> Objective:
    """The label-smoothed loss of section 5.4 over all tokens, with accuracy and perplexity.

    Examples:
        >>> objective = cross_entropy(kformer.TransformerConfig(), kformer.TrainingConfig(label_smoothing=0.1))
        >>> [metric.name for metric in objective.metrics]
        ['token_loss', 'accuracy', 'perplexity']
    """
    pad_id, epsilon, form = transformer.target_pad_id, training.label_smoothing, training.label_smoothing_form
    metrics = [TokenLoss(epsilon, pad_id, form), TokenAccuracy(pad_id), Perplexity(pad_id)]
    if training.r_drop:
        return Objective(RDropCrossEntropy(training.r_drop, epsilon, pad_id, form), metrics)
    if training.word_level:
        return Objective(WordLevelCrossEntropy(training.word_level, epsilon, pad_id, form), metrics)
    return Objective(LabelSmoothedCrossEntropy(epsilon, pad_id, form), metrics)
