"""Arrays as the tensors of gRPC's messages, and back."""

import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from kformer.runtime.tensors import DATA_TYPES
from kformer.serving.errors import ServingError
from kformer.serving.protos import array_of, inputs_of, predict_response
from kformer.serving.signatures import Signature

pytestmark = pytest.mark.tensorflow_only
SERVABLE = types.SimpleNamespace(name="numbers", version=1)

# As in tensor.proto's comments.
FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "float16": "half_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "int64": "int64_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "object": "string_val",
}


def answered(array):
    """The tensor in which a client finds an output."""
    signature = types.SimpleNamespace(name="serving_default")
    return predict_response(SERVABLE, signature, {"score": array}).outputs["score"]


@pytest.mark.parametrize("values", [[], [1], [1, 0], [[1, 0], [0, 1]]], ids=["none", "one", "two", "matrix"])
@pytest.mark.parametrize("dtype", FIELDS)
def test_an_answer_is_in_the_field_of_its_type(dtype, values):
    """TensorFlow Serving fills this field for any number of values, and clients read it."""
    array = np.array(values, dtype)
    if dtype == "object":
        array = np.vectorize(lambda value: b"\xff" * int(value), otypes=[object])(array) if array.size else array
    tensor = answered(array)
    found = [*getattr(tensor, FIELDS[dtype])]
    expected = array.view(np.uint16) if dtype == "float16" else array
    assert found == expected.ravel().tolist()
    assert tensor.tensor_content == b""
    assert [dim.size for dim in tensor.tensor_shape.dim] == [*array.shape]
    read = tf.make_ndarray(tensor)  # as a client of TensorFlow reads it
    assert (read.dtype, read.shape, read.tolist()) == (array.dtype, array.shape, array.tolist())


def test_every_type_that_a_model_may_have_has_a_field():
    assert {*map(str, DATA_TYPES)} <= {*FIELDS}


def tensor(*shape, dtype=types_pb2.DT_FLOAT, **values):
    proto = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    "given",
    [
        tensor(1 << 20, float_val=[1.0]),
        tensor(1 << 10, 1 << 10, float_val=[1.0]),
        tensor(4097, float_val=[1.0] * 4096),
        tensor(1 << 20),
        tensor(1 << 20, tensor_content=b"1234"),
        tensor(1 << 20, dtype=types_pb2.DT_STRING, string_val=[b"one"]),
    ],
    ids=["a vector", "a matrix", "all but one", "no value", "bytes", "a string"],
)
def test_a_few_bytes_do_not_become_a_large_array(given):
    with pytest.raises(ServingError, match="One value may stand for at most 4096"):
        array_of("x", given)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (tensor(3, float_val=[1.0]), [1.0, 1.0, 1.0]),
        (tensor(3, float_val=[1.0, 2.0]), [1.0, 2.0, 2.0]),
        (tensor(2), [0.0, 0.0]),
        (tensor(4096, float_val=[5.0]), [5.0] * 4096),
        (tensor(5000, float_val=range(5000)), [*range(5000)]),
        (tensor(2, tensor_content=np.array([1, 2], np.float32).tobytes()), [1.0, 2.0]),
        (tensor(2, dtype=types_pb2.DT_STRING, string_val=[b"one"]), [b"one", b"one"]),
    ],
    ids=["one value", "the last value", "no value", "the most", "all values", "bytes", "a string"],
)
def test_the_last_value_stands_for_those_that_are_missing(given, values):
    assert array_of("x", given).tolist() == values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor(2, float_val=[1, 2, 3]), r"must be 2 values for the shape \[2\]. Received: 3 values"),
        (tensor(3, dtype=types_pb2.DT_STRING, string_val=[b"x", b"y"]), r"must be 3 values .* Received: 2 values"),
        (tensor(1, dtype=types_pb2.DT_UINT8, int_val=[256]), "must be a tensor. Received: "),
        (tensor(2, tensor_content=b"123456789"), "must be a tensor. Received: "),
        (tensor(-1), r"must be a tensor of known size. Received: the shape \[-1\]"),
        (tensor(0, 2**62, 2**62), "must be a tensor. Received: "),
        (tensor(dtype=types_pb2.DT_RESOURCE), "must be a tensor. Received: the type 20"),
        (tensor(dtype=99), "must be a tensor. Received: the type 99"),
        (tensor(dtype=types_pb2.DT_COMPLEX64), "must be of float32, .* Received: complex64"),
    ],
    ids=["too many", "strings", "overflow", "bytes", "negative", "too large", "resource", "unknown", "complex"],
)
def test_a_tensor_that_is_none_is_refused(given, message):
    with pytest.raises(ServingError, match=message):
        array_of("x", given)


def test_type_and_shape_are_looked_at_before_the_values(monkeypatch):
    definition = meta_graph_pb2.SignatureDef()
    definition.inputs["text"].dtype = types_pb2.DT_STRING
    definition.inputs["text"].tensor_shape.dim.add(size=-1)
    request = predict_pb2.PredictRequest()
    request.inputs["text"].CopyFrom(tensor(4096, float_val=[1.0]))
    monkeypatch.setattr(tf, "make_ndarray", None)
    with pytest.raises(ServingError, match=r"must be string of shape \(any\). Received: float32 of shape \(4096\)"):
        inputs_of(request, Signature("serving_default", definition))
