"""The peaks of this machine, and the least time that a translation can take.

    python -m benchmarks.decoding.hardware_limits

Operations are multiplications and additions of matrix products with weights; bytes are the weights, which every step
of a decoder reads once for the whole batch.
"""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


class Limits(NamedTuple):
    """Measured peaks."""

    float32: float  # operations a second
    bfloat16: float
    int8: float
    bandwidth: float  # bytes a second, read from memory

    def operations(self, precision: str) -> float:
        return getattr(self, precision)


def measure(threads: int) -> Limits:
    """Measures in a separate process, so that its threads and memory are gone afterwards."""
    command = [sys.executable, "-m", __spec__.name, str(threads)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return Limits(*map(float, found.stdout.split()))


def seconds(config: dict[str, Any], cell: Any, precision: str, limits: Limits, source_length: int) -> float:
    """The least time for a batch: encoder, keys and values of the cross-attention, then one step a target token.

    Args:
        config: of the Transformer.
        cell: has batch_size, beam_size and length.
        precision: of the products.
        limits: from `measure`.
        source_length: tokens of a source.
    """
    width, inner = config["d_model"], config["d_ff"]
    attention, feed_forward = 4 * width * width, 2 * width * inner
    encoder = config["num_encoder_layers"] * (attention + feed_forward)
    memory = config["num_decoder_layers"] * 2 * width * width
    step = config["num_decoder_layers"] * (2 * attention - 2 * width * width + feed_forward)
    step += config["target_vocab_size"] * width

    def least(weights: int, rows: int) -> float:
        return max(2 * weights * rows / limits.operations(precision), weights * BYTES[precision] / limits.bandwidth)

    once = least(encoder + memory, cell.batch_size * source_length)
    return once + cell.length * least(step, cell.batch_size * cell.beam_size)


def _measure_here(threads: int) -> Limits:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    import numpy as np
    import tensorflow as tf

    from kformer.export.quantization import MATRICES
    from kformer.export.variables import Weights

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    size = 2048
    matrix = np.random.default_rng(0).normal(size=(size, size)).astype("float32")
    inputs, rates = tf.constant(matrix), {}
    for precision, kind in MATRICES.items():
        product = kind(matrix, Weights(), input_range=(-4.0, 4.0)).multiply
        multiply = tf.function(functools.partial(product, bias=None, activation=keras.activations.linear))
        rates[precision] = 2 * size**3 / _best(lambda multiply=multiply: multiply(inputs).numpy())
    numbers = tf.zeros([2**27])  # 512 MiB, far beyond any cache
    return Limits(**rates, bandwidth=4 * 2**27 / _best(lambda: tf.reduce_sum(numbers).numpy()))


def _best(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(9):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    print(*_measure_here(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
