"""Matrix products in 8-bit integers, by the operation that TensorFlow's oneDNN kernels have for them.

Weights are rounded to 255 steps of each output's largest weight, inputs to 255 steps of each row's largest value, when
it is known: no calibration data, and no row's result depends on another row. Products sum in 32-bit integers.

Shape letters: N rows, K inputs, M outputs, V vocabulary, D model size.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kformer.layers import FeedForward, MultiHeadAttention, TokenEmbedding

LARGEST = 127  # of a signed byte, and as far below zero


def quantize_products(model: keras.Model) -> None:
    """Replaces the products with weights in a Transformer's layers by 8-bit ones, at its present weights.

    The model computes in TensorFlow graphs from then on, and no longer learns.
    """
    for layer in model._flatten_layers():
        if isinstance(layer, MultiHeadAttention):
            for name in ("query", "key", "value", "output"):
                _replace(layer, f"{name}_projection")
        elif isinstance(layer, FeedForward):
            _replace(layer, "inner")
            _replace(layer, "outer")
        elif isinstance(layer, TokenEmbedding):
            _replace_embedding(layer)


class QuantizedMatrix:
    """A matrix of signed bytes with one scale an output.

    Args:
        matrix: (M, K) floats, one row an output.
    """

    def __init__(self, matrix: np.ndarray) -> None:
        self.scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12).astype("float32")  # (M,)
        self.bytes = np.round(matrix / self.scales[:, None] * LARGEST).astype("int8")  # (M, K)
        self._constants: dict[int, tuple[tf.Graph, tf.Tensor]] = {}

    def multiply(self, inputs: tf.Tensor) -> tf.Tensor:
        """(..., K) floats to (..., M) float32: the inputs times the transposed matrix."""
        rows = tf.reshape(inputs, [-1, self.bytes.shape[1]])  # (N, K)
        largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)  # (N, 1)
        # A range known beforehand: the kernel works it into the weights once, not at every step.
        steps = tf.quantization.quantize(tf.math.divide_no_nan(rows, largest), -1.0, 1.0, tf.quint8, mode="MIN_FIRST")
        products = _quantized_product(steps, tf.bitcast(self._constant(), tf.qint8), self.scales) * largest  # (N, M)
        return tf.reshape(products, tf.concat([tf.shape(inputs)[:-1], [len(self.scales)]], axis=0))

    def rows(self, indices: tf.Tensor) -> tf.Tensor:
        """(...) integers to (..., K) float32: rows of the matrix."""
        scales = tf.gather(tf.constant(self.scales / LARGEST), indices)[..., tf.newaxis]
        return tf.cast(tf.gather(self._constant(), indices), tf.float32) * scales

    def _constant(self) -> tf.Tensor:
        """One constant a graph, see `FrozenScope`."""
        graph = tf.compat.v1.get_default_graph()
        if id(graph) not in self._constants:
            self._constants[id(graph)] = graph, tf.constant(self.bytes)
        return self._constants[id(graph)][1]


class QuantizedDense:
    """What a `keras.layers.Dense` computes, with a quantized kernel."""

    def __init__(self, layer: keras.layers.Dense) -> None:
        self.matrix = QuantizedMatrix(keras.ops.convert_to_numpy(layer.kernel).T)
        self.bias = None if layer.bias is None else keras.ops.convert_to_numpy(layer.bias)
        self.activation = layer.activation

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = self.matrix.multiply(inputs)
        if self.bias is not None:
            outputs = outputs + self.bias
        return self.activation(outputs)


def _replace(layer: Any, name: str) -> None:
    # Not a Keras layer, so that the layer takes it though it is built.
    setattr(layer, name, QuantizedDense(getattr(layer, name)))


def _replace_embedding(layer: TokenEmbedding) -> None:
    embeddings = QuantizedMatrix(keras.ops.convert_to_numpy(layer.embeddings))  # (V, D)
    logits = embeddings
    if not layer.tie_weights:
        logits = QuantizedMatrix(keras.ops.convert_to_numpy(layer.reverse_embeddings).T)
    layer.embed = embeddings.rows
    layer.project = logits.multiply


def _quantized_product(steps: Any, matrix: tf.Tensor, scales: np.ndarray) -> tf.Tensor:
    """TensorFlow has no Python function for this operation; its graph rewrites make it for oneDNN."""
    numbers = _types(tf.float32)
    attributes = {
        "Tdevice_inputs": _types(tf.quint8, tf.qint8, tf.float32),
        "Thost_inputs": _types(*[tf.float32] * 4),
        "Tdevice_outputs": numbers,
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
    ranges = [steps.output_min, steps.output_max, tf.constant(-scales), tf.constant(scales)]
    operation = tf.compat.v1.get_default_graph().create_op(
        "_QuantizedMatMul", [steps.output, matrix, bias, *ranges], [tf.float32], attrs=attributes, name="product"
    )
    product = operation.outputs[0]
    product.set_shape([None, len(scales)])
    return product


def _types(*types: tf.DType) -> attr_value_pb2.AttrValue:
    return attr_value_pb2.AttrValue(list={"type": [kind.as_datatype_enum for kind in types]})
