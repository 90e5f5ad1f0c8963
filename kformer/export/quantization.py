"""The precision of an export: products with weights in float32, in bfloat16, or quantized to 8-bit integers.

Each matrix has the layout in which TensorFlow's oneDNN kernels were measured to be fastest (see docs/decisions.md).

Shape letters: N rows, K inputs, M outputs, V vocabulary, D model size.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kformer.export.calibration import InputRanges
from kformer.export.variables import FrozenScope, Weights
from kformer.layers import TokenEmbedding
from kformer.layers.dense import Arithmetic, Dense

LARGEST = 127  # the largest signed byte; the smallest one used is -127
# The largest weight. Processors without VNNI add two neighbouring products in a signed 16-bit number, which holds
# 32,767 at most. 2 x STEPS x 63 is less.
LARGEST_WEIGHT = 63
STEPS = 255  # the largest unsigned byte
TINY = 1e-12  # the upper end of the range where all inputs are 0, as nothing can be divided by 0
ZERO_STEP = 128  # the unsigned byte that stands for 0 where there are negative numbers

Activation = Callable[[tf.Tensor], tf.Tensor]


class Matrix(abc.ABC):
    """A stored matrix of M rows, made of (M, K) floats.

    Args:
        matrix: (M, K) floats.
        weights: Stores the matrix.
        input_range: The lowest and the highest number in the rows that the matrix will be multiplied with. Only int8
            needs it; None: not known.
    """

    def __init__(self, matrix: np.ndarray, weights: Weights, input_range: tuple[float, float] | None = None) -> None:
        self._array = self._converted(np.asarray(matrix))
        self._weights = weights
        self._input_range = input_range

    @abc.abstractmethod
    def _converted(self, matrix: np.ndarray) -> np.ndarray:
        """What is stored."""

    @abc.abstractmethod
    def multiply(self, rows: tf.Tensor, bias: np.ndarray | None, activation: Activation) -> tf.Tensor:
        """(N, K) float32 to (N, M) float32: the activation of the rows times the transposed matrix, plus the bias."""

    def multiply_twice(
        self,
        rows: tf.Tensor,
        bias: np.ndarray | None,
        activation: Activation,
        second: Self,
        second_bias: np.ndarray | None,
    ) -> tf.Tensor:
        """Multiplies with this matrix, and the result with the matrix `second`, without a second activation."""
        return second.multiply(self.multiply(rows, bias, activation), second_bias, keras.activations.linear)

    @abc.abstractmethod
    def take(self, indices: tf.Tensor) -> tf.Tensor:
        """(...) integers to (..., K) float32: rows of the matrix."""

    def _stored(self) -> tf.Tensor:
        return self._weights.read(self._array)


class Float32Matrix(Matrix):
    """Products in float32. The matrix is stored as K by M, so that the kernel reads memory in order.

    Rows are gathered from the same memory, number by number. This is slower than from a second, M by K copy, but fast
    compared with a product, and a copy of the embedding would add a quarter to the size of a base model.
    """

    def _converted(self, matrix: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.asarray(matrix, "float32").T)

    def multiply(self, rows: tf.Tensor, bias: np.ndarray | None, activation: Activation) -> tf.Tensor:
        return activation(_with_bias(tf.matmul(rows, self._stored()), bias))

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        columns = tf.gather(self._stored(), tf.reshape(indices, [-1]), axis=1)  # (K, n)
        return tf.reshape(tf.transpose(columns), tf.concat([tf.shape(indices), [self._array.shape[0]]], axis=0))


class Bfloat16Matrix(Matrix):
    """Products of numbers rounded to bfloat16, sums in float32, results rounded to bfloat16."""

    def _converted(self, matrix: np.ndarray) -> np.ndarray:
        return matrix.astype(tf.bfloat16.as_numpy_dtype)

    def multiply(self, rows: tf.Tensor, bias: np.ndarray | None, activation: Activation) -> tf.Tensor:
        products = tf.matmul(tf.cast(rows, tf.bfloat16), self._stored(), transpose_b=True)
        return activation(_with_bias(tf.cast(products, tf.float32), bias))

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.gather(self._stored(), indices), tf.float32)


class Int8Matrix(Matrix):
    """Products of bytes, summed in 32-bit integers.

    Weights are rounded to multiples of 1/63 of each output's largest weight. Inputs are rounded to multiples of 1/127
    of the largest input that the sample texts gave, see `calibration`; to multiples of 1/255 if no input was below 0.
    Larger inputs are clipped. So one operation computes a product with its scales and bias, and no row's result depends
    on another row.
    """

    def _converted(self, matrix: np.ndarray) -> np.ndarray:
        self._scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12).astype("float32")  # (M,)
        return np.round(matrix / self._scales[:, None] * LARGEST_WEIGHT).astype("int8")  # (M, K)

    def multiply(self, rows: tf.Tensor, bias: np.ndarray | None, activation: Activation) -> tf.Tensor:
        relu = activation is keras.activations.relu
        product = self._product(self._in_steps(rows), bias, relu)
        return product if relu else activation(product)

    def multiply_twice(
        self,
        rows: tf.Tensor,
        bias: np.ndarray | None,
        activation: Activation,
        second: Self,
        second_bias: np.ndarray | None,
    ) -> tf.Tensor:
        if activation is not keras.activations.relu:
            return super().multiply_twice(rows, bias, activation, second, second_bias)
        # The first product writes the bytes that the second one reads: no conversion is needed between them.
        steps = self._product(self._in_steps(rows), bias, relu=True, output_range=second._steps_range()[:2])
        return second._product(steps, second_bias, relu=False)

    def take(self, indices: tf.Tensor) -> tf.Tensor:
        scales = tf.gather(tf.constant(self._scales / LARGEST_WEIGHT), indices)[..., tf.newaxis]
        return tf.cast(tf.gather(self._stored(), indices), tf.float32) * scales

    def _steps_range(self) -> tuple[float, float, int]:
        """The numbers that the steps 0 and 255 stand for, and the step that stands for 0."""
        if self._input_range is None:
            raise ValueError(
                "int8 needs the range of the inputs of each product. The range is missing for a product of "
                f"{self._array.shape[1]} inputs and {self._array.shape[0]} outputs. "
                "Pass ranges from kformer.export.calibration.input_ranges for this model."
            )
        lowest, highest = self._input_range
        if lowest < 0:  # Zero must be one of the steps: if it were half a step off, the errors of many zeros add up.
            highest = max(-lowest, highest)
            return -highest * ZERO_STEP / LARGEST, highest, ZERO_STEP
        return 0.0, max(highest, TINY), 0

    def _in_steps(self, rows: tf.Tensor) -> tf.Tensor:
        """(N, K) float32 to the steps (N, K) quint8 that are nearest."""
        _, highest, zero = self._steps_range()
        scaled = rows * ((STEPS - zero) / highest) + (zero + 0.5)  # The cast truncates, so 0.5 makes it round.
        clipped = tf.raw_ops.ClipByValue(t=scaled, clip_value_min=0.0, clip_value_max=float(STEPS))
        return tf.bitcast(tf.cast(clipped, tf.uint8), tf.quint8)

    def _product(
        self, steps: tf.Tensor, bias: np.ndarray | None, relu: bool, output_range: tuple[float, float] | None = None
    ) -> tf.Tensor:
        """Steps (N, K) times the matrix, plus the bias: (N, M) float32, or quint8 steps of the output range.

        TensorFlow has no Python function for this operation; its graph rewrites make it for oneDNN. Because the range
        of the steps is constant, the kernel combines it with the weights only once.
        """
        lowest, highest, _ = self._steps_range()
        output = tf.float32 if output_range is None else tf.quint8
        largest = self._scales * np.float32(LARGEST / LARGEST_WEIGHT)  # what a weight of 127 would stand for
        ranges = [np.float32(lowest), np.float32(highest), -largest, largest]
        ranges += [np.float32(end) for end in output_range or ()]
        ends = [] if output_range is None else [tf.float32] * 2  # The operation gives the range of its steps, too.
        fused = [b"BiasAdd", *([b"Relu"] if relu else []), b"Dequantize" if output_range is None else b"Requantize"]
        attributes = {
            "Tdevice_inputs": _types(tf.quint8, tf.qint8, tf.float32),
            "Thost_inputs": _types(*[tf.float32] * len(ranges)),
            "Tdevice_outputs": _types(output),
            "Thost_outputs": _types(*ends),
            "T1": attr_value_pb2.AttrValue(type=tf.quint8.as_datatype_enum),
            "T2": attr_value_pb2.AttrValue(type=tf.qint8.as_datatype_enum),
            "Tbias": attr_value_pb2.AttrValue(type=tf.float32.as_datatype_enum),
            "Tout": attr_value_pb2.AttrValue(type=output.as_datatype_enum),
            "U": attr_value_pb2.AttrValue(type=tf.bfloat16.as_datatype_enum),
            "transpose_b": attr_value_pb2.AttrValue(b=True),
            "fused_ops": attr_value_pb2.AttrValue(list={"s": fused}),
            "input_quant_mode": attr_value_pb2.AttrValue(s=b"MIN_FIRST"),
            "output_quant_mode": attr_value_pb2.AttrValue(s=b"MIN_FIRST"),
        }
        matrix = self._weights.read(self._array, tf.qint8)
        bias = np.zeros_like(self._scales) if bias is None else bias
        inputs = [tf.convert_to_tensor(one) for one in (steps, matrix, bias, *ranges)]
        graph = tf.compat.v1.get_default_graph()
        operation = graph.create_op("_QuantizedMatMul", inputs, [output, *ends], attrs=attributes, name="product")
        product = operation.outputs[0]
        product.set_shape([None, len(self._scales)])
        return product


MATRICES: dict[str, type[Matrix]] = {"float32": Float32Matrix, "bfloat16": Bfloat16Matrix, "int8": Int8Matrix}


def _with_bias(rows: tf.Tensor, bias: np.ndarray | None) -> tf.Tensor:
    return rows if bias is None else tf.nn.bias_add(rows, tf.constant(bias))


class ServedArithmetic(Arithmetic):
    """The dtype policy of a model that an export holds: products with stored matrices, in one of the formats above.

    A model that is built under this policy must be frozen before use. It runs in TensorFlow graphs only and cannot be
    trained.

    Args:
        precision: Key of `MATRICES`.
        weights: Where the matrices are stored.
        ranges: For int8, the ranges of the products' inputs, from `calibration.input_ranges`.
    """

    def __init__(self, precision: str, weights: Weights, ranges: InputRanges | None = None) -> None:
        super().__init__("float32")
        self._kind = MATRICES[precision]
        self._precision = precision
        self._weights = weights
        self._ranges = ranges or {}
        self._matrices: dict[tuple[int, ...], Matrix] = {}  # by the ids of variables, which the model keeps alive

    def freeze(self, model: keras.Model) -> FrozenScope:
        """Takes the present weights of a model that was built under this policy.

        Returns:
            The scope in which the model computes.
        """
        self._frozen = FrozenScope(model.variables, self._weights)
        self._numbers = {id(variable): number for number, variable in enumerate(model.variables)}
        return self._frozen

    def dense(self, layers: Sequence[Dense], inputs: tf.Tensor) -> list[tf.Tensor]:
        matrix, bias = self._matrix_and_bias(layers)
        rows = matrix.multiply(_as_rows(inputs), bias, layers[0].activation)
        parts = [rows] if len(layers) == 1 else tf.split(rows, [layer.units for layer in layers], axis=1)
        return [_shaped_like(part, inputs) for part in parts]

    def dense_twice(self, first: Dense, second: Dense, inputs: tf.Tensor) -> tf.Tensor:
        (matrix, bias), (second_matrix, second_bias) = (self._matrix_and_bias([layer]) for layer in (first, second))
        rows = matrix.multiply_twice(_as_rows(inputs), bias, first.activation, second_matrix, second_bias)
        return _shaped_like(rows, inputs)

    def _matrix_and_bias(self, layers: Sequence[Dense]) -> tuple[Matrix, np.ndarray | None]:
        matrix = self._stored([layer.kernel for layer in layers], transposed=True)
        if layers[0].bias is None:
            return matrix, None
        return matrix, np.concatenate([self._frozen.array(layer.bias) for layer in layers])

    def normalize(self, layer: keras.layers.LayerNormalization, inputs: tf.Tensor) -> tf.Tensor:
        if self._precision != "int8":
            return keras.layers.LayerNormalization.call(layer, inputs)
        gamma, beta = (tf.constant(self._frozen.array(variable)) for variable in (layer.gamma, layer.beta))
        return _shaped_like(_normalize(_as_rows(inputs), gamma, beta, layer.epsilon), inputs)

    def embed(self, layer: TokenEmbedding, ids: tf.Tensor) -> tf.Tensor:
        return self._stored([layer.embeddings]).take(ids)

    def project(self, layer: TokenEmbedding, inputs: tf.Tensor) -> tf.Tensor:
        if layer.tie_weights:
            matrix = self._stored([layer.embeddings])
        else:
            matrix = self._stored([layer.reverse_embeddings], transposed=True)
        return _shaped_like(matrix.multiply(_as_rows(inputs), None, keras.activations.linear), inputs)

    def _stored(self, variables: Sequence[keras.Variable], transposed: bool = False) -> Matrix:
        """One matrix of the rows of all variables, or of their columns if `transposed`."""
        key = tuple(id(variable) for variable in variables)
        if key not in self._matrices:
            values = [self._frozen.array(variable) for variable in variables]
            matrix = np.concatenate([value.T if transposed else value for value in values])
            input_range = self._ranges.get(tuple(self._numbers[one] for one in key))
            self._matrices[key] = self._kind(matrix, self._weights, input_range)
        return self._matrices[key]


def _as_rows(inputs: tf.Tensor) -> tf.Tensor:
    return inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, inputs.shape[-1]])


def _shaped_like(rows: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
    """(N, M) rows as (..., M), with the leading dimensions of the inputs."""
    if inputs.shape.rank == 2:
        return rows
    return tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [rows.shape[-1]]], axis=0))


def _normalize(rows: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Layer normalization of (N, D) float32 in operations of Eigen.

    oneDNN's operation was measured to be slower. Graph rewrites do not insert it here: they look for a layer norm in
    another form, with an epsilon of 0.001.
    """
    centred = rows - tf.reduce_mean(rows, axis=1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=1, keepdims=True)
    return centred * tf.math.rsqrt(variance + epsilon) * gamma + beta


def _types(*types: tf.DType) -> attr_value_pb2.AttrValue:
    return attr_value_pb2.AttrValue(list={"type": [kind.as_datatype_enum for kind in types]})
