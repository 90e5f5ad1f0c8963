"""`model.compile` as every training run calls it."""

import keras

from kformer import losses, metrics
from kformer.config import TrainingConfig, TransformerConfig
from kformer.hardware import has_gpu
from kformer.training.optimizers import build_adam


def compile_transformer(model: keras.Model, transformer: TransformerConfig, training: TrainingConfig) -> None:
    """With the paper's optimizer, the label-smoothed loss, and the metrics that a run is judged by."""
    pad_id = transformer.pad_id
    smoothing = (training.label_smoothing, pad_id, training.label_smoothing_form)
    optimizer = build_adam(transformer.d_model, training)
    if training.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=losses.LabelSmoothedCrossEntropy(*smoothing),
        metrics=[
            metrics.TokenLoss(*smoothing),
            metrics.TokenAccuracy(pad_id),
            metrics.Perplexity(pad_id),
            metrics.TokenCount(pad_id),
        ],
        # On a CPU, TensorFlow's own kernels (oneDNN) train faster than XLA's.
        jit_compile="auto" if compiled_by_xla() else False,
    )


def compiled_by_xla() -> bool:
    """Whether training steps are compiled, once for every shape of a batch."""
    return has_gpu() or keras.backend.backend() != "tensorflow"
