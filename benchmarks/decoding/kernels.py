"""What the operations of a decoding step cost in TensorFlow: the reasons for `kformer/export/quantization.py`.

    python -m benchmarks.decoding.kernels

Each operation runs in a loop inside a TensorFlow graph, as in an export, over so many matrices that none stays in a
cache; microseconds are those of the fastest of three runs.
"""

import functools
import os
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from kformer.export.in_place_cache import InPlaceCache
from kformer.export.quantization import Int8Matrix
from kformer.export.variables import Weights

STEPS = 10
NUMBERS = 60_000_000  # of all matrices of one shape together


def microseconds(step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], start: tf.Tensor, operations: int) -> float:
    """Time of one of the `operations` in `step`, which takes the step's number and a tensor and gives a new tensor."""
    run = tf.function(
        lambda x: tf.while_loop(
            lambda number, _: number < STEPS, lambda number, x: (number + 1, step(number, x)), (0, x)
        )[1]
    )
    run(start)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run(start).numpy()
        times.append(time.perf_counter() - began)
    return min(times) / STEPS / operations * 1e6


def product_microseconds(rows: int, inputs: int, outputs: int, kind: str) -> float:
    """A product of (rows, inputs) with a constant matrix; `kind` is a precision, with "T" for (outputs, inputs)."""
    random = np.random.default_rng(0)
    count = max(1, NUMBERS // (inputs * outputs))
    matrices = [random.normal(0, 0.05, (outputs, inputs)).astype("float32") for _ in range(count)]
    weights = Weights()
    if kind == "int8":  # each product has its own weights and converts its input to bytes
        multiply = [
            functools.partial(
                Int8Matrix(matrix, Weights(), input_range=(-4.0, 4.0)).multiply,
                bias=None,
                activation=keras.activations.linear,
            )
            for matrix in matrices
        ]
    else:
        dtype = tf.as_dtype(kind.removesuffix("T"))
        transposed = kind.endswith("T")
        arrays = [(matrix if transposed else matrix.T).astype(dtype.as_numpy_dtype) for matrix in matrices]
        multiply = [
            lambda x, array=array: tf.matmul(tf.cast(x, dtype), weights.read(array), transpose_b=transposed)
            for array in arrays
        ]

    def step(number: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        moved = x + tf.cast(number, tf.float32)  # other numbers at every step
        return x + 1e-9 * tf.add_n([tf.cast(product(moved)[0, 0], tf.float32) for product in multiply])

    return microseconds(step, tf.constant(random.normal(size=(rows, inputs)).astype("float32")), count)


def cache_microseconds(vectors: int, length: int, write: Callable[..., tf.Tensor]) -> float:
    """Writing one position of a cache of `vectors` x `length` x 64 numbers."""
    update = tf.ones([vectors, 64])
    first = tf.range(vectors) * length

    @tf.function
    def run(steps: tf.Tensor) -> tf.Tensor:
        cache = InPlaceCache.zeros((steps * 0 + vectors * length, 64), "float32")
        return tf.while_loop(
            lambda number, _: number < steps,
            lambda number, x: (number + 1, write(x, first + number, update)),
            (0, cache),
        )[1][0, 0]

    run(tf.constant(1))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run(tf.constant(length)).numpy()
        times.append(time.perf_counter() - began)
    return min(times) / length * 1e6


def main() -> None:
    kinds = ("float32", "float32T", "bfloat16", "bfloat16T", "int8")
    print("Microseconds of a product, matrix inputs by outputs, or T: outputs by inputs\n")
    print(f"| rows | inputs | outputs | {' | '.join(kinds)} |\n|{' --- |' * (3 + len(kinds))}")
    for rows in (1, 4, 32, 128):
        for inputs, outputs in ((512, 512), (512, 2048), (2048, 512), (512, 37000)):
            cells = [f"{product_microseconds(rows, inputs, outputs, kind):,.0f}" for kind in kinds]
            print(f"| {rows} | {inputs} | {outputs} | {' | '.join(cells)} |", flush=True)
    print("\nMicroseconds to write one position of a cache\n")
    print("| vectors | positions | TensorScatterUpdate | InplaceUpdate |\n| --- | --- | --- | --- |")
    for vectors in (8, 256, 1024):
        for length in (32, 512):
            scatter = cache_microseconds(
                vectors, length, lambda x, i, v: tf.tensor_scatter_nd_update(x, i[:, tf.newaxis], v)
            )
            place = cache_microseconds(vectors, length, InPlaceCache.scatter)
            print(f"| {vectors} | {length} | {scatter:,.0f} | {place:,.0f} |", flush=True)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    main()
