"""The products of a Transformer with its weights, as an export computes them: in float32, bfloat16 or 8-bit integers.

Each has the memory layout in which TensorFlow's oneDNN kernels were measured to be fastest (see CONTRIBUTING.md).

Shape letters: N rows, K inputs, M outputs, V vocabulary, D model size.
"""

from collections.abc import Callable
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kformer.export.variables import FrozenScope, Weights
from kformer.layers import TokenEmbedding
from kformer.layers.arithmetic import Arithmetic, Dense

LARGEST = 127  # the largest signed byte; the smallest one used is -127
# The lowest of 256 steps; the highest is 1. Zero must be one of the steps: if it were half a step off, the errors of
# the many zeros in a sparse row would add up.
LOWEST = -128 / 127


class Matrix(Protocol):
    """A stored matrix of M rows, made of (M, K) floats."""

    def multiply(self, rows: tf.Tensor, nonnegative: bool = False) -> tf.Tensor:
        """(N, K) float32 to (N, M) float32: the rows times the transposed matrix.

        With `nonnegative` no number in `rows` may be below 0, which gives integers twice the resolution.
        """

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        """(...) integers to (..., K) float32: rows of the matrix."""


class Float32Matrix:
    """Products in float32. The matrix is stored as K by M, so that the kernel reads memory in order.

    Rows are gathered from the same memory, number by number. This is slower than from a second, M by K copy, but fast
    compared with a product, and a copy of the embedding would add a quarter to the size of a base model.
    """

    def __init__(self, matrix: np.ndarray, weights: Weights) -> None:
        self._array = np.ascontiguousarray(np.asarray(matrix, "float32").T)
        self._weights = weights

    def multiply(self, rows: tf.Tensor, nonnegative: bool = False) -> tf.Tensor:
        return tf.matmul(rows, self._weights.read(self._array))

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        columns = tf.gather(self._weights.read(self._array), tf.reshape(indices, [-1]), axis=1)  # (K, n)
        return tf.reshape(tf.transpose(columns), tf.concat([tf.shape(indices), [self._array.shape[0]]], axis=0))


class Bfloat16Matrix:
    """Products of numbers rounded to bfloat16, sums in float32, results rounded to bfloat16."""

    def __init__(self, matrix: np.ndarray, weights: Weights) -> None:
        self._array = np.asarray(matrix).astype(tf.bfloat16.as_numpy_dtype)
        self._weights = weights

    def multiply(self, rows: tf.Tensor, nonnegative: bool = False) -> tf.Tensor:
        products = tf.matmul(tf.cast(rows, tf.bfloat16), self._weights.read(self._array), transpose_b=True)
        return tf.cast(products, tf.float32)

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.gather(self._weights.read(self._array), indices), tf.float32)


class Int8Matrix:
    """Products of signed bytes, summed in 32-bit integers.

    Weights are rounded to multiples of 1/127 of each output's largest weight. Inputs are rounded at run time to
    multiples of 1/127 of each row's largest value (1/255 if the row has no negative value). So no calibration data is
    needed, and no row's result depends on another row.
    """

    def __init__(self, matrix: np.ndarray, weights: Weights) -> None:
        self._scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12).astype("float32")  # (M,)
        self._array = np.round(matrix / self._scales[:, None] * LARGEST).astype("int8")  # (M, K)
        self._weights = weights

    def multiply(self, rows: tf.Tensor, nonnegative: bool = False) -> tf.Tensor:
        steps, largest = self._weights.once(rows, _in_positive_steps if nonnegative else _in_steps)
        matrix = tf.bitcast(self._weights.read(self._array), tf.qint8)
        return _quantized_product(steps, 0.0 if nonnegative else LOWEST, matrix, self._scales) * largest

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        scales = tf.gather(tf.constant(self._scales / LARGEST), indices)[..., tf.newaxis]
        return tf.cast(tf.gather(self._weights.read(self._array), indices), tf.float32) * scales


MATRICES: dict[str, Callable[[np.ndarray, Weights], Matrix]] = {
    "float32": Float32Matrix,
    "bfloat16": Bfloat16Matrix,
    "int8": Int8Matrix,
}


class ServedArithmetic(Arithmetic):
    """The dtype policy of a model that an export holds: products with stored matrices, in one of the formats above.

    A model that is built under it must be frozen before use. It runs in TensorFlow graphs only and cannot be trained.

    Args:
        precision: Key of `MATRICES`.
        weights: Where the matrices are stored.
    """

    def __init__(self, precision: str, weights: Weights) -> None:
        super().__init__("float32")
        self._kind = MATRICES[precision]
        self._weights = weights
        self._matrices: dict[int, Matrix] = {}  # by the id of the variable, which the model keeps alive
        self._nonnegative: dict[int, tf.Tensor] = {}  # results of activations that are never below 0

    def freeze(self, model: keras.Model) -> FrozenScope:
        """Takes the present weights of a model that was built under this policy.

        Returns:
            The scope in which the model computes.
        """
        self._frozen = FrozenScope(model.variables, self._weights)
        return self._frozen

    def dense(self, layer: Dense, inputs: tf.Tensor) -> tf.Tensor:
        matrix = self._stored(layer.kernel, transposed=True)
        rows = matrix.multiply(_as_rows(inputs), nonnegative=id(inputs) in self._nonnegative)
        if layer.bias is not None:
            rows = tf.nn.bias_add(rows, tf.constant(self._frozen.array(layer.bias)))
        outputs = _shaped_like(layer.activation(rows), inputs)
        if layer.activation is keras.activations.relu:
            self._nonnegative[id(outputs)] = outputs  # Keeps the tensor alive, as its id is the key.
        return outputs

    def embed(self, layer: TokenEmbedding, ids: tf.Tensor) -> tf.Tensor:
        return self._stored(layer.embeddings).take(ids)

    def project(self, layer: TokenEmbedding, inputs: tf.Tensor) -> tf.Tensor:
        if layer.tie_weights:
            matrix = self._stored(layer.embeddings)
        else:
            matrix = self._stored(layer.reverse_embeddings, transposed=True)
        return _shaped_like(matrix.multiply(_as_rows(inputs)), inputs)

    def _stored(self, variable: keras.Variable, transposed: bool = False) -> Matrix:
        if id(variable) not in self._matrices:
            values = self._frozen.array(variable)
            self._matrices[id(variable)] = self._kind(values.T if transposed else values, self._weights)
        return self._matrices[id(variable)]


def _as_rows(inputs: tf.Tensor) -> tf.Tensor:
    return inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, inputs.shape[-1]])


def _shaped_like(rows: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
    """(N, M) rows in the shape (..., M) of the inputs that they were made of."""
    if inputs.shape.rank == 2:
        return rows
    return tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [rows.shape[-1]]], axis=0))


def _in_steps(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows (N, K) as quint8, in steps of 1/127 of their largest value, with 128 for 0; and these values (N, 1).

    It does not use TensorFlow's QuantizeV2, whose oneDNN kernel is slow to start.
    """
    highest, lowest = (reduce(rows, axis=1, keepdims=True) for reduce in (tf.reduce_max, tf.reduce_min))
    largest = tf.maximum(highest, -lowest)
    steps = tf.cast(rows * tf.math.divide_no_nan(127.0, largest) + 128.5, tf.uint8)
    return tf.bitcast(steps, tf.quint8), largest


def _in_positive_steps(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The same for rows without negative numbers, in steps of 1/255, with 0 for 0."""
    largest = tf.reduce_max(rows, axis=1, keepdims=True)
    steps = tf.cast(rows * tf.math.divide_no_nan(255.0, largest) + 0.5, tf.uint8)
    return tf.bitcast(steps, tf.quint8), largest


def _quantized_product(steps: tf.Tensor, lowest: float, matrix: tf.Tensor, scales: np.ndarray) -> tf.Tensor:
    """Steps (N, K) of numbers from `lowest` to 1, times bytes (M, K), as float32 (N, M).

    TensorFlow has no Python function for this operation; its graph rewrites make it for oneDNN. Because the range of
    the numbers is constant, the kernel combines it with the weights only once.
    """
    attributes = {
        "Tdevice_inputs": _types(tf.quint8, tf.qint8, tf.float32),
        "Thost_inputs": _types(*[tf.float32] * 4),
        "Tdevice_outputs": _types(tf.float32),
        "Thost_outputs": _types(),
        "T1": attr_value_pb2.AttrValue(type=tf.quint8.as_datatype_enum),
        "T2": attr_value_pb2.AttrValue(type=tf.qint8.as_datatype_enum),
        "Tbias": attr_value_pb2.AttrValue(type=tf.float32.as_datatype_enum),
        "Tout": attr_value_pb2.AttrValue(type=tf.float32.as_datatype_enum),
        "U": attr_value_pb2.AttrValue(type=tf.bfloat16.as_datatype_enum),
        "transpose_b": attr_value_pb2.AttrValue(b=True),
        "fused_ops": attr_value_pb2.AttrValue(list={"s": [b"BiasAdd", b"Dequantize"]}),
        "input_quant_mode": attr_value_pb2.AttrValue(s=b"MIN_FIRST"),
    }
    bias = tf.zeros(len(scales))
    ranges = [tf.constant(lowest), tf.constant(1.0), tf.constant(-scales), tf.constant(scales)]
    operation = tf.compat.v1.get_default_graph().create_op(
        "_QuantizedMatMul", [steps, matrix, bias, *ranges], [tf.float32], attrs=attributes, name="product"
    )
    product = operation.outputs[0]
    product.set_shape([None, len(scales)])
    return product


def _types(*types: tf.DType) -> attr_value_pb2.AttrValue:
    return attr_value_pb2.AttrValue(list={"type": [kind.as_datatype_enum for kind in types]})
