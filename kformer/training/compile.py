"""Compiles a model as every training run does."""

import keras

from kformer.config import TrainingConfig, TransformerConfig
from kformer.metrics import TokenCount
from kformer.process.hardware import has_gpu
from kformer.tasks import task_of
from kformer.training.optimizers import build_adam


def compile_model(model: keras.Model, transformer: TransformerConfig, training: TrainingConfig) -> None:
    """Compiles the model with the paper's optimizer, the objective of its task, and a count of the tokens."""
    objective = task_of(transformer.task).objective(transformer, training)
    optimizer = build_adam(transformer.d_model, training)
    if training.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=objective.loss,
        metrics=[*objective.metrics, TokenCount(transformer.target_pad_id)],
        # On a CPU, TensorFlow's own kernels (oneDNN) train faster than XLA's.
        jit_compile="auto" if compiled_by_xla() else False,
    )
    # Keras would build it while TensorFlow traces the first training step, which would then be traced twice.
    optimizer.build(model.trainable_variables)


def compiled_by_xla() -> bool:
    """Whether XLA compiles the training step, once for each batch shape."""
    return has_gpu() or keras.backend.backend() != "tensorflow"
