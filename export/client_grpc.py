"""Asks a translator over TensorFlow Serving's gRPC interface, with its official Python stubs alone.

    pip install tensorflow-serving-api
    python client_grpc.py
    python client_grpc.py --server localhost:8500 --model translator "You are witnesses of these things."

It prints the states of the versions, the signatures, the translations, and how a wrong request is refused. For an
export of the preset bible-en-es:

    status: version 1 is AVAILABLE
    signature serving_default: text DT_STRING (-1) -> score DT_FLOAT (-1), translation DT_STRING (-1)
    version 1 translates: You are witnesses of these things. -> Vosotros sois testigos de estas cosas. (-0.643)
    refused: NOT_FOUND Servable not found for request: Latest(no-such-model)

kformer is not needed. The exit status is 1 if the server does not answer, or refuses a valid request.
"""

import argparse
import sys

import grpc
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

SECONDS = 60.0  # that a request may take
MESSAGE_BYTES = 64 * 1024 * 1024  # gRPC's default is 4 MiB for an answer


def show_status(channel: grpc.Channel, model: str) -> None:
    """ModelService.GetModelStatus: every version and its state."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = model
    response = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=SECONDS)
    for version in response.model_version_status:
        state = get_model_status_pb2.ModelVersionStatus.State.Name(version.state)
        print(f"status: version {version.version} is {state} {version.status.error_message}".rstrip())


def show_metadata(channel: grpc.Channel, model: str) -> None:
    """PredictionService.GetModelMetadata: the inputs and outputs of every signature."""
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = model
    request.metadata_field.append("signature_def")
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    response = stub.GetModelMetadata(request, timeout=SECONDS)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    for name, signature in sorted(signatures.signature_def.items()):
        print(f"signature {name}: {_tensors(signature.inputs)} -> {_tensors(signature.outputs)}")


def _tensors(tensors) -> str:
    """Names, types and shapes; -1 is a dimension of any size."""
    shown = []
    for name, tensor in sorted(tensors.items()):
        shape = ", ".join(str(dim.size) for dim in tensor.tensor_shape.dim)
        shown.append(f"{name} {types_pb2.DataType.Name(tensor.dtype)} ({shape})")
    return ", ".join(shown)


def translate(channel: grpc.Channel, model: str, texts: list[str]) -> None:
    """PredictionService.Predict: at most 32 texts in a request, see batching.config."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)
    translations = tf.make_ndarray(response.outputs["translation"])
    scores = tf.make_ndarray(response.outputs["score"])
    version = response.model_spec.version.value
    for text, translation, score in zip(texts, translations, scores, strict=True):
        print(f"version {version} translates: {text} -> {translation.decode('utf-8')} ({score:.3f})")


def show_refusal(channel: grpc.Channel) -> None:
    """Asks for a model that is not served: the error has a code and the server's words."""
    try:
        translate(channel, "no-such-model", ["a text"])
    except grpc.RpcError as error:
        print(f"refused: {error.code().name} {error.details()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="localhost:8500", metavar="HOST:PORT")
    parser.add_argument("--model", default="translator")
    parser.add_argument("texts", nargs="*", default=["You are witnesses of these things."])
    arguments = parser.parse_args()
    options = [("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES)]
    with grpc.insecure_channel(arguments.server, options) as channel:
        try:
            show_status(channel, arguments.model)
            show_metadata(channel, arguments.model)
            translate(channel, arguments.model, arguments.texts)
            show_refusal(channel)
        except grpc.RpcError as error:
            sys.exit(f"client_grpc.py: {error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
