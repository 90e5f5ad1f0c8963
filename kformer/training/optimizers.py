"""The paper's optimizer ("Attention Is All You Need", section 5.3)."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

from kformer.config import TrainingConfig
from kformer.schedules import WarmupInverseSqrt


@keras.saving.register_keras_serializable(package="kformer")
class Adam(keras.optimizers.Adam):
    """Adam as in Keras, which also keeps the norm of the last gradient and a moving average of the weights.

    With the gradient g_t and the learning rate r_t of update t = 1, 2, ..., and m_0 = v_0 = 0, the weights are

        m_t = beta_1 m_(t-1) + (1 - beta_1) g_t
        v_t = beta_2 v_(t-1) + (1 - beta_2) g_t^2
        w_t = w_(t-1) - r_t sqrt(1 - beta_2^t) / (1 - beta_1^t) m_t / (sqrt(v_t) + epsilon)

    on every backend. This is the form at the end of section 2 of Kingma and Ba (2015), and `epsilon` is what they call
    epsilon hat. Their Algorithm 1, which PyTorch follows, adds epsilon to the corrected sqrt(v_t / (1 - beta_2^t))
    instead. An `epsilon` here has the effect of epsilon / sqrt(1 - beta_2^t) there. With beta_2 = 0.98 this is
    7.1 times as large at the first update, and nearly the same after a few hundred updates.

    The average is a_t = d_t a_(t-1) + (1 - d_t) w_t with d_t = min(ema_decay, (t - 1) / (t + 8)). At first it is a
    mean of about the last ninth of the updates (polynomial-decay averaging, Shamir and Zhang 2013, section 4, eta = 8),
    later an exponential moving average. The trained weights are kept beside it. (Keras's `use_ema` begins its average
    with the random weights and counts micro-batches as updates. At the end of `fit` it replaces the weights by
    their averages, so that training could not be continued.)

    Args:
        ema_decay: The largest d_t, from 0 up to below 1. With 0 no averages are kept.
        arguments: The arguments of `keras.optimizers.Adam`.

    Attributes:
        gradient_norm: () float32 variable: the L2 norm of the last batch's gradient over all weights (with gradient
            accumulation, of the last micro-batch's). Under `tf.distribute` it is the norm of the first replica's share
            of the gradient, because the optimizer does not see the sum of the shares.
        averages_in_model: () bool variable, if there are averages: whether `put_averages` has put them into the model,
            and the trained weights into their place. It is saved with the optimizer, so that a file tells which are
            which. An update makes it False: the weights are trained ones then, and the average begins with them.
    """

    def __init__(self, *, ema_decay: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ema_decay = ema_decay

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        # All replicas of a distribution strategy hold the same values. Without a strategy this has no effect.
        same = "only_first_replica"
        self.gradient_norm = self.add_variable((), name="gradient_norm", dtype="float32", aggregation=same)
        self._averages = []
        if self.ema_decay > 0:
            self.averages_in_model = self.add_variable((), name="averages_in_model", dtype="bool", aggregation=same)
            self._averages = [
                self.add_variable(weight.shape, name="average", dtype=weight.dtype, aggregation=same)
                for weight in variables
            ]

    def apply(self, grads: list[Any], trainable_variables: list[keras.Variable] | None = None) -> Any:
        squares = [ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in grads if gradient is not None]
        iterations = super().apply(grads, trainable_variables)  # builds what is not built yet
        self.gradient_norm.assign(ops.sqrt(sum(squares)))
        self._average()
        return iterations

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

    def _weights_and_averages(self) -> Iterable[tuple[keras.Variable, keras.Variable]]:
        # The list of the weights is Keras's. If this class kept a list of its own, Keras would count the weights among
        # the optimizer's variables.
        return zip(self._trainable_variables if self._averages else (), self._averages, strict=True)

    def _average(self) -> None:
        """Updates the averages with the weights if the last micro-batch has completed an update."""
        if not self._averages:
            return
        is_update = ops.equal(self._iterations % accumulation_steps(self), 0)
        updates = ops.cast(self.iterations, "float32")
        kept = ops.minimum(self.ema_decay, (updates - 1) / (updates + 8))
        in_model = ops.convert_to_tensor(self.averages_in_model)
        kept = ops.where(in_model, 0.0, kept)
        kept = ops.where(is_update, kept, 1.0)
        self.averages_in_model.assign(ops.logical_and(in_model, ops.logical_not(is_update)))
        for weight, average in self._weights_and_averages():
            share = ops.cast(kept, average.dtype)
            average.assign(share * average + (1 - share) * weight)

    def _has_averages(self) -> bool:
        """Whether there are averages, and was an update. Before it, the averages are zeros."""
        return self.built and bool(self._averages) and int(ops.convert_to_numpy(self.iterations)) > 0

    def put_averages(self, in_model: bool) -> None:
        """Lets the weights and their averages change places, or back. Nothing is rounded.

        Args:
            in_model: Whether the averages are to be in the model. If they are where they should be, if there was no
                update yet, or if no averages are kept, nothing happens.
        """
        if not self._has_averages() or bool(ops.convert_to_numpy(self.averages_in_model)) == in_model:
            return
        for weight, average in self._weights_and_averages():
            value = ops.copy(weight)
            weight.assign(average)
            average.assign(value)
        self.averages_in_model.assign(in_model)

    def assign_averages(self) -> None:
        """Replaces the weights by their averages, if there was an update. The averages stay as they are."""
        if not self._has_averages():
            return
        for weight, average in self._weights_and_averages():
            weight.assign(average)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ema_decay": self.ema_decay}


@keras.saving.register_keras_serializable(package="kformer")
class AccumulatingAdam(Adam):
    """Adam that accumulates gradients under `tf.distribute`.

    Keras decides in a `cond` whether to accumulate or to update, and lets the replicas communicate inside it, which
    TensorFlow does not allow. This class sums the gradients over the replicas at every micro-batch, and then each
    replica decides by itself. So the accumulators of all replicas are equal, too, and a checkpoint between two
    micro-batches is complete. Clipping and weight decay are those of Keras: once for each update, of the mean gradient.

    Raises:
        ValueError: `use_ema` is given: `ema_decay` keeps averages that count updates, not micro-batches.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        if self.use_ema:
            raise ValueError("AccumulatingAdam has no use_ema. Received: use_ema=True. Give ema_decay instead.")

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        import tensorflow as tf

        steps = self.gradient_accumulation_steps

        def apply_to(variable: Any, gradient: Any, accumulator: Any, is_update: Any, rate: Any) -> None:
            def update() -> None:
                if self.weight_decay is not None and self._use_weight_decay(variable):
                    variable.assign_sub(variable * tf.cast(self.weight_decay * rate, variable.dtype))
                self.update_step(gradient, variable, rate)
                accumulator.assign(tf.zeros_like(accumulator))

            def accumulate() -> None:
                accumulator.assign(gradient)

            tf.cond(is_update, update, accumulate)

        variables = [variable.value for variable in trainable_variables]
        accumulators = [self._accumulated_gradients[self._get_variable_index(v)].value for v in variables]

        def apply_to_all(strategy: tf.distribute.Strategy, gradients: Sequence[Any], *decision: Any) -> None:
            for variable, gradient, accumulator in zip(variables, gradients, accumulators, strict=True):
                strategy.extended.update(variable, apply_to, args=(gradient, accumulator, *decision), group=False)

        pairs = self._all_reduce_sum_gradients(list(zip(grads, variables, strict=True)))
        sums = [gradient + accumulator for (gradient, _), accumulator in zip(pairs, accumulators, strict=True)]
        is_update = tf.equal((self._iterations.value + 1) % steps, 0)
        gradients = tf.cond(is_update, lambda: self._clip_gradients([s / steps for s in sums]), lambda: sums)
        tf.distribute.get_replica_context().merge_call(apply_to_all, args=(gradients, is_update, self.learning_rate))


def _has_replicas() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def build_adam(d_model: int, training_config: TrainingConfig) -> Adam:
    """Adam with the learning rate of equation 3, with the settings in `training_config`.

    The rate follows a schedule, so Keras's callbacks `LearningRateScheduler` and `ReduceLROnPlateau` cannot set it: a
    TypeError tells it when they try. Change the settings instead, or give `Adam` a number as `learning_rate`.

    Under the policy `mixed_float16`, `model.compile` wraps it in Keras's `LossScaleOptimizer`. `inner_adam`,
    `accumulation_steps` and `update_count` accept both.
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
    """The number of micro-batches that make an update: 1 without gradient accumulation."""
    steps = inner_adam(optimizer).gradient_accumulation_steps
    return 1 if steps is None else steps


def update_count(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of updates so far. Micro-batches that have not completed an update are not counted."""
    return int(keras.ops.convert_to_numpy(optimizer.iterations))
