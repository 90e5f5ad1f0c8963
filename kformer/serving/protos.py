"""Converts the messages of TensorFlow Serving's interfaces from and to arrays and other objects of the server."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2, predict_pb2

from kformer.runtime.status_codes import Code
from kformer.runtime.tensors import DATA_TYPES, TYPE_NAMES
from kformer.serving.errors import ServingError
from kformer.serving.servable import Servable
from kformer.serving.signatures import MOST_DIMENSIONS, Signature, Tensor
from kformer.serving.version import Version

# The field of a TensorProto that holds the values of each type.
_FIELDS = {
    np.dtype(name): field
    for field, names in {
        "float_val": ("float32",),
        "double_val": ("float64",),
        "int_val": ("int32", "int16", "int8", "uint8", "uint16"),
        "int64_val": ("int64",),
        "uint32_val": ("uint32",),
        "uint64_val": ("uint64",),
        "bool_val": ("bool",),
        "string_val": ("object",),
        "half_val": ("float16",),
    }.items()
    for name in names
}
# In a request, the last value also stands for those that are missing. A few bytes could declare a tensor of any size.
_MOST_REPEATED = 4096
_UNKNOWN = 2  # the canonical code of a version that could not be loaded


def status_response(versions: Sequence[Version]) -> get_model_status_pb2.GetModelStatusResponse:
    """The states of a model's versions."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        entry = response.model_version_status.add(version=version.number, state=version.state.value)
        entry.status.error_code = _UNKNOWN if version.error else 0
        entry.status.error_message = version.error
    return response


def metadata_response(servable: Servable) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """The signatures of a version."""
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    _name(response.model_spec, servable)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in servable.signatures.items():
        signatures.signature_def[name].CopyFrom(signature.definition)
    response.metadata["signature_def"].Pack(signatures)
    return response


def predict_response(
    servable: Servable, signature: Signature, outputs: Mapping[str, np.ndarray]
) -> predict_pb2.PredictResponse:
    """The outputs of a signature."""
    response = predict_pb2.PredictResponse()
    _name(response.model_spec, servable)
    response.model_spec.signature_name = signature.name
    for name, array in outputs.items():
        _fill(response.outputs[name], array)
    return response


def _fill(tensor: tensor_pb2.TensorProto, array: np.ndarray) -> None:
    """Writes an array into the field of its type, as TensorFlow Serving does.

    `tf.make_tensor_proto` writes more than one number into `tensor_content`, where clients that read `float_val` do not
    look.
    """
    tensor.dtype = tf.dtypes.as_dtype(array.dtype).as_datatype_enum
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    field = _FIELDS[array.dtype]
    values = array.view(np.uint16) if field == "half_val" else array
    getattr(tensor, field).extend(values.ravel().tolist())


def inputs_of(request: predict_pb2.PredictRequest, signature: Signature) -> dict[str, np.ndarray]:
    """The inputs of a request.

    Raises:
        ServingError: They have other names than the signature's, or an input is not a valid tensor.
    """
    signature.check_names(request.inputs)  # first, as a request may have hundreds of thousands of inputs
    for name, tensor in request.inputs.items():
        signature.check(name, declared(name, tensor))
    return {name: array_of(name, tensor) for name, tensor in request.inputs.items()}


def declared(name: str, tensor: tensor_pb2.TensorProto) -> Tensor:
    """Type and shape of an input in a request, before its values are read.

    Raises:
        ServingError: There is no such type or shape.
    """
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if len(shape) > MOST_DIMENSIONS:
        raise _invalid(name, f"a tensor of at most {MOST_DIMENSIONS} dimensions", f"{len(shape)} dimensions")
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise _invalid(name, "a tensor of known size", f"the shape {[*shape]}")
    try:
        dtype = np.dtype(tf.dtypes.as_dtype(tensor.dtype).as_numpy_dtype)
    except (TypeError, KeyError):  # TensorFlow or NumPy does not know the type
        raise _invalid(name, "a tensor", f"the type {tensor.dtype}") from None
    if dtype not in DATA_TYPES:
        raise _invalid(name, f"of {TYPE_NAMES}", str(dtype))
    return Tensor(dtype, shape)


def array_of(name: str, tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """The values of an input in a request.

    Raises:
        ServingError: Its shape, type and values do not go together.
    """
    dtype = declared(name, tensor).dtype
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size = math.prod(shape)
    given = len(tensor.tensor_content) // dtype.itemsize or len(getattr(tensor, _FIELDS[dtype]))
    few = (1,) if dtype.hasobject else range(size)  # TensorFlow does not repeat strings, but a single one
    if given != size and not (given in few and size <= _MOST_REPEATED):
        received = f"{given} values. One value may stand for at most {_MOST_REPEATED}"
        raise _invalid(name, f"{size} values for the shape {shape}", received)
    try:
        return tf.make_ndarray(tensor)
    except (TypeError, ValueError, OverflowError) as error:  # such as 256 in a tensor of bytes
        raise _invalid(name, "a tensor", str(error)[:100]) from None


def _invalid(name: str, expected: str, received: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"The input {name[:50]} must be {expected}. Received: {received}.")


def _name(spec: model_pb2.ModelSpec, servable: Servable) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
