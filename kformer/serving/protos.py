"""Converts the messages of TensorFlow Serving's interfaces from and to arrays and other objects of the server."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2, predict_pb2

from kformer.inference.tensors import DATA_TYPES
from kformer.serving.errors import Code, ServingError
from kformer.serving.models import Version
from kformer.serving.servable import Servable
from kformer.serving.signatures import MOST_DIMENSIONS, Signature

_MOST_VALUES = 1 << 20  # of a tensor in a request: a few bytes can declare any shape
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
        response.outputs[name].CopyFrom(tf.make_tensor_proto(array, shape=array.shape))
    return response


def inputs_of(request: predict_pb2.PredictRequest, signature: Signature) -> dict[str, np.ndarray]:
    """The inputs of a request.

    Raises:
        ServingError: They have other names than the signature's, or an input is not a valid tensor.
    """
    signature.check_names(request.inputs)  # first, as a request may have hundreds of thousands of inputs
    return {name: array_of(name, tensor) for name, tensor in request.inputs.items()}


def array_of(name: str, tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """The values of an input in a request.

    Raises:
        ServingError: Its shape, type and values do not go together.
    """
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if len(shape) > MOST_DIMENSIONS:
        raise _invalid(name, f"a tensor of at most {MOST_DIMENSIONS} dimensions", f"{len(shape)} dimensions")
    size = int(np.prod(shape, dtype=object))
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0 or size > _MOST_VALUES:
        raise _invalid(name, f"a shape with at most {_MOST_VALUES} values", f"the shape {shape}")
    try:
        dtype = tf.dtypes.as_dtype(tensor.dtype)
        if np.dtype(dtype.as_numpy_dtype) not in DATA_TYPES:
            raise _invalid(name, f"of {', '.join(map(str, DATA_TYPES))}", dtype.name)
        if dtype == tf.string and len(tensor.string_val) not in (size, 1):
            raise _invalid(name, f"{size} values for the shape {shape}", f"{len(tensor.string_val)} values")
        return tf.make_ndarray(tensor)
    # TensorFlow or NumPy does not know the type, or the values do not have this type or shape.
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise _invalid(name, "a tensor", str(error)[:100]) from None


def _invalid(name: str, expected: str, received: str) -> ServingError:
    return ServingError(Code.INVALID_ARGUMENT, f"The input {name[:50]} must be {expected}. Received: {received}.")


def _name(spec: model_pb2.ModelSpec, servable: Servable) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
