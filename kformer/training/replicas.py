"""Optimizers under `tf.distribute`: gradient accumulation and clipping see the gradient of the whole batch."""

from collections.abc import Callable, Sequence
from typing import Any

import keras


class SumOverReplicas(keras.optimizers.Optimizer):
    """The part of an optimizer that sums gradients over the replicas of `tf.distribute` before it uses them.

    A class of an optimizer names it before the class of Keras that updates the weights. Without a distribution
    strategy, and without accumulation and clipping, everything is Keras's.

    - Accumulation: Keras decides in a `cond` whether to accumulate or to update, and lets the replicas communicate
      inside it, which TensorFlow does not allow. Here the gradients are summed at every micro-batch, and then each
      replica decides by itself. So the accumulators of all replicas are equal, too, and a checkpoint between two
      micro-batches is complete.
    - Clipping: Keras clips the share of each replica by the norm of this share. Here the sum of the shares is clipped:
      once for each update, and with accumulation the mean gradient of all micro-batches, as Keras does without a
      strategy.
    """

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        steps = self.gradient_accumulation_steps
        clips = (self.clipnorm, self.global_clipnorm, self.clipvalue) != (None, None, None)
        if not _has_replicas() or not (steps or clips):
            super()._backend_apply_gradients(grads, trainable_variables)
            return
        variables = [variable.value for variable in trainable_variables]
        pairs = self._all_reduce_sum_gradients(list(zip(grads, variables, strict=True)))
        sums = [gradient for gradient, _ in pairs]
        if steps:
            self._accumulate(variables, sums, steps)
        else:
            columns = [self._clip_gradients(sums)]
            _in_each_replica(variables, columns, self._decay_and_update, self.learning_rate)

    def _accumulate(self, variables: list[Any], gradients: list[Any], steps: int) -> None:
        """Adds the gradients of a micro-batch to those before, and updates the weights by the mean of the last one."""
        import tensorflow as tf

        def apply_to(variable: Any, gradient: Any, accumulator: Any, is_update: Any, rate: Any) -> None:
            def update() -> None:
                self._decay_and_update(variable, gradient, rate)
                accumulator.assign(tf.zeros_like(accumulator))

            def accumulate() -> None:
                accumulator.assign(gradient)

            tf.cond(is_update, update, accumulate)

        accumulators = [self._accumulated_gradients[self._get_variable_index(v)].value for v in variables]
        sums = [gradient + accumulator for gradient, accumulator in zip(gradients, accumulators, strict=True)]
        is_update = tf.equal((self._iterations.value + 1) % steps, 0)
        used = tf.cond(is_update, lambda: self._clip_gradients([s / steps for s in sums]), lambda: sums)
        _in_each_replica(variables, [used, accumulators], apply_to, is_update, self.learning_rate)

    def _decay_and_update(self, variable: Any, gradient: Any, rate: Any) -> None:
        import tensorflow as tf

        if self.weight_decay is not None and self._use_weight_decay(variable):
            variable.assign_sub(variable * tf.cast(self.weight_decay * rate, variable.dtype))
        self.update_step(gradient, variable, rate)


def _in_each_replica(
    variables: Sequence[Any], columns: Sequence[Sequence[Any]], update: Callable[..., None], *shared: Any
) -> None:
    """Calls `update(variable, *its values in the columns, *shared)` for each variable, in each replica."""
    import tensorflow as tf

    def in_all(strategy: tf.distribute.Strategy, columns: Sequence[Sequence[Any]], *shared: Any) -> None:
        for variable, *values in zip(variables, *columns, strict=True):
            strategy.extended.update(variable, update, args=(*values, *shared), group=False)

    tf.distribute.get_replica_context().merge_call(in_all, args=(columns, *shared))


def _has_replicas() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()
