"""The paper's optimizer ("Attention Is All You Need", section 5.3)."""

import keras

from kformer.config import TrainingConfig
from kformer.training.schedules import WarmupInverseSqrt


def build_adam(d_model: int, training_config: TrainingConfig) -> keras.optimizers.Adam:
    """Adam with the schedule of equation 3, both as `training_config` says.

    Under `mixed_float16` `model.compile` wraps it into Keras's `LossScaleOptimizer`; `accumulation_steps` sees
    through that.
    """
    accumulation = training_config.gradient_accumulation_steps
    return keras.optimizers.Adam(
        learning_rate=WarmupInverseSqrt(
            d_model,
            warmup_steps=training_config.warmup_steps,
            scale=training_config.learning_rate_scale,
            gradient_accumulation_steps=accumulation,
        ),
        beta_1=training_config.beta_1,
        beta_2=training_config.beta_2,
        epsilon=training_config.adam_epsilon,
        gradient_accumulation_steps=accumulation if accumulation > 1 else None,
    )


def accumulation_steps(optimizer: keras.optimizers.Optimizer) -> int:
    """Micro-batches an update, 1 without gradient accumulation."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return inner.gradient_accumulation_steps or 1


def update_count(optimizer: keras.optimizers.Optimizer) -> int:
    """Updates done so far, micro-batches not counted."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
