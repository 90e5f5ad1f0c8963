"""Means over all tokens of a batch, also where several devices have a part of its rows each."""

from typing import Any

import keras
from keras import ops


def mean_over_replicas(total: Any, tokens: Any) -> Any:
    """`total` / `tokens`; under `tf.distribute` the part of each replica, see `LabelSmoothedCrossEntropy`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        context, reduce_op = tf.distribute.get_replica_context(), tf.distribute.ReduceOp
        if context is not None and context.num_replicas_in_sync > 1:
            share = total / ops.maximum(context.all_reduce(reduce_op.SUM, tokens), 1.0)
            # Keras weights the values by the replicas' rows, so that unequal values would count too much or too little.
            return tf.grad_pass_through(lambda value: context.all_reduce(reduce_op.MEAN, value))(share)
    return total / ops.maximum(tokens, 1.0)
