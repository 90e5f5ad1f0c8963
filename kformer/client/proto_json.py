"""TensorFlow Serving's answers about models as its REST writes them in JSON."""

from typing import Any

from google.protobuf import json_format, message
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2


def status_json(response: get_model_status_pb2.GetModelStatusResponse) -> dict[str, Any]:
    """`{"model_version_status": [...]}`."""
    return _json(response)


def metadata_json(response: get_model_metadata_pb2.GetModelMetadataResponse) -> dict[str, Any]:
    """`{"model_spec": ..., "metadata": {"signature_def": {"signature_def": {NAME: ...}}}}`.

    The signatures are an `Any` message. TensorFlow Serving writes it without `@type`, which protobuf would add.
    """
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    return {"model_spec": _json(response.model_spec), "metadata": {"signature_def": _json(signatures)}}


def _json(part: message.Message) -> dict[str, Any]:
    return json_format.MessageToDict(part, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
