"""The optimizers of training: the paper's Adam ("Attention Is All You Need", section 5.3), AdamW and Adafactor."""

from collections.abc import Mapping
from typing import Any

import keras

from kformer.config import TrainingConfig
from kformer.training.learning_rate import build_schedule
from kformer.training.moving_average import MovingAverage
from kformer.training.replicas import SumOverReplicas


@keras.saving.register_keras_serializable(package="kformer")
class Adam(MovingAverage, SumOverReplicas, keras.optimizers.Adam):
    """Adam as in Keras, with `MovingAverage` and `SumOverReplicas`.

    With the gradient g_t and the learning rate r_t of update t = 1, 2, ..., and m_0 = v_0 = 0, the weights are

        m_t = beta_1 m_(t-1) + (1 - beta_1) g_t
        v_t = beta_2 v_(t-1) + (1 - beta_2) g_t^2
        w_t = w_(t-1) - r_t sqrt(1 - beta_2^t) / (1 - beta_1^t) m_t / (sqrt(v_t) + epsilon)

    on every backend. This is the form at the end of section 2 of Kingma and Ba (2015), and `epsilon` is what they call
    epsilon hat. Their Algorithm 1, which PyTorch follows, adds epsilon to the corrected sqrt(v_t / (1 - beta_2^t))
    instead. An `epsilon` here has the effect of epsilon / sqrt(1 - beta_2^t) there. With beta_2 = 0.98 this is
    7.1 times as large at the first update, and nearly the same after a few hundred updates.

    Args:
        ema_decay: See `MovingAverage`, which has the attributes, too.
        arguments: The arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: `use_ema` is given: `ema_decay` keeps averages that count updates, not micro-batches.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """As in Keras. On TensorFlow it is one operation, which reads the memory once instead of a dozen times."""
        if keras.backend.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        variable = variable.value if isinstance(variable, keras.Variable) else variable
        index, dtype = self._get_variable_index(variable), variable.dtype
        beta_1, beta_2 = tf.cast(self.beta_1, dtype), tf.cast(self.beta_2, dtype)
        step = tf.cast(self.iterations + 1, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )


@keras.saving.register_keras_serializable(package="kformer")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, Algorithm 2, with the schedule as the rate).

    Before the update of Adam, w becomes w - r_t weight_decay w, with the learning rate r_t. Only weights of two or more
    dimensions decay: embeddings and the kernels of products. Biases and the weights of norms, which have one, do not.

    Args:
        weight_decay: The factor.
        arguments: The arguments of `Adam`.
    """

    def __init__(self, *, weight_decay: float = 0.01, **arguments: Any) -> None:
        super().__init__(weight_decay=weight_decay, **arguments)

    def build(self, variables: list[keras.Variable]) -> None:
        self.exclude_from_weight_decay([variable for variable in variables if len(variable.shape) < 2])
        super().build(variables)


@keras.saving.register_keras_serializable(package="kformer")
class Adafactor(MovingAverage, SumOverReplicas, keras.optimizers.Adafactor):
    """Adafactor (Shazeer and Stern 2018, Algorithms 4 and 5) as in Keras, with the other parts of `Adam`.

    There is no momentum. In Keras, the root mean square (RMS) of an update of a weight w is at most
    max(epsilon_2, RMS(w)) min(r_t, t^-0.5). So the learning rate r_t is relative to the size of the weights, and it is
    never above t^-0.5. Besides the factored moments, Keras keeps one number for each weight, where Adam keeps two.

    Args:
        ema_decay: See `MovingAverage`, which has the attributes, too.
        arguments: The arguments of `keras.optimizers.Adafactor`.
    """


_OF_ADAM = {"beta_1": "beta_1", "beta_2": "beta_2", "epsilon": "adam_epsilon"}
# By the names that `TrainingConfig.optimizer` takes: the class, and of its own arguments the fields that they are.
_OPTIMIZERS: Mapping[str, tuple[type[MovingAverage], Mapping[str, str]]] = {
    "adam": (Adam, _OF_ADAM),
    "adamw": (AdamW, {**_OF_ADAM, "weight_decay": "weight_decay"}),
    "adafactor": (Adafactor, {}),
}


def build_optimizer(d_model: int, training_config: TrainingConfig, updates: int | None = None) -> MovingAverage:
    """The optimizer with the learning rate and the other settings of `training_config`: by default the paper's Adam.

    The rate follows a schedule, so Keras's callbacks `LearningRateScheduler` and `ReduceLROnPlateau` cannot set it: a
    TypeError tells it when they try. Change the settings instead, or give `Adam` a number as `learning_rate`.

    Under the policy `mixed_float16`, `model.compile` wraps it in Keras's `LossScaleOptimizer`. `inner_optimizer`,
    `accumulation_steps` and `update_count` accept both.

    Args:
        d_model: Size of the model, which equation 3 needs.
        training_config: The settings.
        updates: The last update of the run, see `kformer.training.learning_rate.build_schedule`.
    """
    accumulation = training_config.gradient_accumulation_steps
    kind, fields = _OPTIMIZERS[training_config.optimizer]
    return kind(
        learning_rate=build_schedule(d_model, training_config, updates),
        global_clipnorm=training_config.gradient_clip_norm,
        gradient_accumulation_steps=accumulation if accumulation > 1 else None,
        ema_decay=training_config.ema_decay,
        **{argument: getattr(training_config, field) for argument, field in fields.items()},
    )


def inner_optimizer(optimizer: keras.optimizers.Optimizer) -> MovingAverage:
    """The optimizer of `build_optimizer`, with or without Keras's loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def accumulation_steps(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of micro-batches that make an update: 1 without gradient accumulation."""
    return inner_optimizer(optimizer).gradient_accumulation_steps or 1


def update_count(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of updates so far. Micro-batches that have not completed an update are not counted."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
