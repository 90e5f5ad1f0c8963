"""Compiles a model as every training run does."""

import keras

from kformer.config import TrainingConfig, TransformerConfig
from kformer.metrics import TokenCount
from kformer.process.hardware import has_gpu
from kformer.tasks import task_of
from kformer.training.optimizers import build_optimizer


def compile_model(
    model: keras.Model, transformer: TransformerConfig, training: TrainingConfig, updates: int | None = None
) -> None:
    """Compiles the model with the optimizer of its training, the objective of its task, and a count of the tokens.

    Args:
        model: The model.
        transformer, training: Its configurations.
        updates: The last update of the run, see `kformer.training.learning_rate.build_schedule`.
    """
    objective = task_of(transformer.task).objective(transformer, training)
    optimizer = build_optimizer(transformer.d_model, training, updates)
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
