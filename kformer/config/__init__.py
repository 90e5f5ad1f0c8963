"""Configurations of the model (`TransformerConfig`), of training (`TrainingConfig`) and of decoding (`DecodingConfig`).

All are frozen dataclasses with a default for every field. What stands beside a field says what it means, with its
symbol in "Attention Is All You Need" (Vaswani et al., 2017), if it has one. Layers do not use these
objects: `kformer.models.build_transformer` unpacks them into plain keywords.
"""

from kformer.config.decoding import DecodingConfig
from kformer.config.monitors import BLEU_TOKENIZERS, MONITORS, Monitor
from kformer.config.optimization import OPTIMIZERS, SCHEDULES, ends_with_budget
from kformer.config.reading import errors_name, read_mapping, read_parts
from kformer.config.sizes import SIZES
from kformer.config.tasks import TASKS, TaskKind, answer_outputs, check_first_weights, task_kind
from kformer.config.training import (
    LABEL_SMOOTHING_FORMS,
    SAMPLING_FIELDS,
    TrainingConfig,
    check_aligned,
    check_guided_alignment,
    check_positions,
    check_scores,
    check_subword_sampling,
)
from kformer.config.transformer import DEPTHS, POSITIONAL_ENCODINGS, TransformerConfig, check_layers, check_special_ids

__all__ = [
    "BLEU_TOKENIZERS",
    "DEPTHS",
    "LABEL_SMOOTHING_FORMS",
    "MONITORS",
    "OPTIMIZERS",
    "POSITIONAL_ENCODINGS",
    "SAMPLING_FIELDS",
    "SCHEDULES",
    "SIZES",
    "TASKS",
    "DecodingConfig",
    "Monitor",
    "TaskKind",
    "TrainingConfig",
    "TransformerConfig",
    "answer_outputs",
    "check_aligned",
    "check_first_weights",
    "check_guided_alignment",
    "check_layers",
    "check_positions",
    "check_scores",
    "check_special_ids",
    "check_subword_sampling",
    "ends_with_budget",
    "errors_name",
    "read_mapping",
    "read_parts",
    "task_kind",
]
