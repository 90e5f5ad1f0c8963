"""The paper's optimizer ("Attention Is All You Need", section 5.3)."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

from kformer.config import TrainingConfig
from kformer.schedules import WarmupInverseSqrt


@keras.saving.register_keras_serializable(package="kformer")
class Adam(keras.optimizers.Adam):
    """Keras's Adam, which also remembers the norm of the last gradient, and averages the weights.

    With w_t the weights after update t, the average is a_t = d_t a_(t-1) + (1 - d_t) w_t,
    d_t = min(decay, (t - 1) / (t + 8)): at first of about the last ninth of the updates (polynomial-decay averaging,
    Shamir and Zhang 2013, section 4, eta = 8), then exponential. It stays beside the trained weights. (Keras's
    `use_ema` begins with the random ones, counts micro-batches, and puts the averages in the weights' place when `fit`
    ends, so that a run could not go on.)

    Args:
        ema_decay: From 0 up to below 1; 0: no averages.
        arguments: Of `keras.optimizers.Adam`.

    Attributes:
        gradient_norm: () float32 variable: L2 norm over all weights of the last batch's gradient (a micro-batch's, with
            gradient accumulation). Under `tf.distribute`, of the first replica's share of it, as Keras adds up the
            shares where nobody sees them.
    """

    def __init__(self, *, ema_decay: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ema_decay = ema_decay

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        # All replicas of a distribution strategy hold the same; under none this says nothing.
        same = "only_first_replica"
        self.gradient_norm = self.add_variable((), name="gradient_norm", dtype="float32", aggregation=same)
        self._averages = [
            self.add_variable(weight.shape, name="average", dtype=weight.dtype, aggregation=same)
            for weight in (variables if self.ema_decay else ())
        ]

    def apply(self, grads: list[Any], trainable_variables: list[keras.Variable] | None = None) -> Any:
        squares = [ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in grads if gradient is not None]
        iterations = super().apply(grads, trainable_variables)  # builds what is not built yet
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        self._average()
        return iterations

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Keras's; on TensorFlow in the one operation that it has for this: one pass over memory, not a dozen."""
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

    def _weights_and_averages(self) -> Iterable[tuple[keras.Variable, keras.Variable]]:
        # The weights are Keras's list: it would take one of our own for variables of the optimizer.
        return zip(self._trainable_variables if self._averages else (), self._averages, strict=True)

    def _average(self) -> None:
        """Takes the weights into their averages, after the last micro-batch of an update."""
        is_update = ops.equal(self._iterations % (self.gradient_accumulation_steps or 1), 0)
        updates = ops.cast(self.iterations, "float32")
        kept = ops.minimum(self.ema_decay, (updates - 1) / (updates + 8))
        kept = ops.where(is_update, kept, 1.0)
        for weight, average in self._weights_and_averages():
            share = ops.cast(kept, average.dtype)
            average.assign(share * average + (1 - share) * weight)

    def swap_averages(self) -> None:
        """Weights and their averages change places, bit for bit."""
        for weight, average in self._weights_and_averages():
            value = ops.copy(weight)
            weight.assign(average)
            average.assign(value)

    def assign_averages(self) -> None:
        """The weights become their averages; the averages stay."""
        for weight, average in self._weights_and_averages():
            weight.assign(average)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ema_decay": self.ema_decay}


@keras.saving.register_keras_serializable(package="kformer")
class AccumulatingAdam(Adam):
    """Adam that accumulates gradients under `tf.distribute`.

    Keras's decides between adding up and updating around what the replicas do together, which TensorFlow does not
    allow. This one sums the gradients over the replicas at every micro-batch and decides in each replica alone. So the
    accumulators of all replicas are alike, too, and a checkpoint between two micro-batches is whole.
    """

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        import tensorflow as tf

        steps = self.gradient_accumulation_steps

        def apply_to(variable: Any, gradient: Any, accumulator: Any, is_update: Any, rate: Any) -> None:
            def update() -> None:
                self.update_step((gradient + accumulator) / steps, variable, rate)
                accumulator.assign(tf.zeros_like(accumulator))

            def accumulate() -> None:
                accumulator.assign_add(gradient)

            tf.cond(is_update, update, accumulate)

        def apply_to_all(strategy: tf.distribute.Strategy, pairs: Sequence[tuple], *decision: Any) -> None:
            for gradient, variable in pairs:
                accumulator = self._accumulated_gradients[self._get_variable_index(variable)].value
                strategy.extended.update(variable, apply_to, args=(gradient, accumulator, *decision), group=False)

        pairs = self._all_reduce_sum_gradients(list(zip(grads, [v.value for v in trainable_variables], strict=True)))
        is_update = tf.equal((self._iterations.value + 1) % steps, 0)
        tf.distribute.get_replica_context().merge_call(apply_to_all, args=(pairs, is_update, self.learning_rate))


def _has_replicas() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def build_adam(d_model: int, training_config: TrainingConfig) -> Adam:
    """Adam with the schedule of equation 3, both as `training_config` says.

    Under `mixed_float16` `model.compile` wraps it into Keras's `LossScaleOptimizer`; `accumulation_steps` sees
    through that.
    """
    accumulation = training_config.gradient_accumulation_steps
    adam = AccumulatingAdam if accumulation > 1 and _has_replicas() else Adam
    return adam(
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
        ema_decay=training_config.ema_decay,
    )


def inner_adam(optimizer: keras.optimizers.Optimizer) -> Adam:
    """The optimizer of `build_adam`, with or without Keras's loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def accumulation_steps(optimizer: keras.optimizers.Optimizer) -> int:
    """Micro-batches an update, 1 without gradient accumulation."""
    return inner_adam(optimizer).gradient_accumulation_steps or 1


def update_count(optimizer: keras.optimizers.Optimizer) -> int:
    """Updates done so far, micro-batches not counted."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
