"""Losses over token ids: what `model.compile` takes as `loss`."""

from kformer.losses.alignment import AlignmentCrossEntropy
from kformer.losses.label_smoothing import LabelSmoothedCrossEntropy, label_smoothed_cross_entropy, smoothed
from kformer.losses.r_drop import RDropCrossEntropy, mean_divergence
from kformer.losses.word_level import WordLevelCrossEntropy, teacher_cross_entropy

__all__ = [
    "AlignmentCrossEntropy",
    "LabelSmoothedCrossEntropy",
    "RDropCrossEntropy",
    "WordLevelCrossEntropy",
    "label_smoothed_cross_entropy",
    "mean_divergence",
    "smoothed",
    "teacher_cross_entropy",
]
