"""Compiles a model as every training run does."""

import keras

from kformer.config import TrainingConfig, TransformerConfig
from kformer.losses import LabelSmoothedCrossEntropy
from kformer.metrics import Perplexity, TokenAccuracy, TokenCount, TokenLoss
from kformer.process.hardware import has_gpu
from kformer.training.optimizers import build_adam


def compile_model(model: keras.Model, transformer: TransformerConfig, training: TrainingConfig) -> None:
    """Compiles the model with the paper's optimizer, the label-smoothed loss, and the metrics that judge a run."""
    pad_id = transformer.pad_id
    epsilon, form = training.label_smoothing, training.label_smoothing_form
    optimizer = build_adam(transformer.d_model, training)
    if training.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=LabelSmoothedCrossEntropy(epsilon, pad_id, form),
        metrics=[
            TokenLoss(epsilon, pad_id, form),
            TokenAccuracy(pad_id),
            Perplexity(pad_id),
            TokenCount(pad_id),
        ],
        # On a CPU, TensorFlow's own kernels (oneDNN) train faster than XLA's.
        jit_compile="auto" if compiled_by_xla() else False,
    )
    # Keras would build it while TensorFlow traces the first training step, which would then be traced twice.
    optimizer.build(model.trainable_variables)


def compiled_by_xla() -> bool:
    """Whether XLA compiles the training step, once for each batch shape."""
    return has_gpu() or keras.backend.backend() != "tensorflow"
