"""gRPC reflection: tells programs such as grpcurl what the services and their messages are."""

from collections.abc import Collection
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

PACKAGE = "tensorflow.serving"
# The request and the response of each method, by the name of its service's file.
_SERVICES: dict[str, tuple[str, dict[str, tuple[Any, Any]]]] = {
    "tensorflow_serving/apis/prediction_service.proto": (
        "PredictionService",
        {
            "Classify": (classification_pb2.ClassificationRequest, classification_pb2.ClassificationResponse),
            "Regress": (regression_pb2.RegressionRequest, regression_pb2.RegressionResponse),
            "Predict": (predict_pb2.PredictRequest, predict_pb2.PredictResponse),
            "MultiInference": (inference_pb2.MultiInferenceRequest, inference_pb2.MultiInferenceResponse),
            "GetModelMetadata": (
                get_model_metadata_pb2.GetModelMetadataRequest,
                get_model_metadata_pb2.GetModelMetadataResponse,
            ),
        },
    ),
    "tensorflow_serving/apis/model_service.proto": (
        "ModelService",
        {
            "GetModelStatus": (
                get_model_status_pb2.GetModelStatusRequest,
                get_model_status_pb2.GetModelStatusResponse,
            ),
            "HandleReloadConfigRequest": (
                model_management_pb2.ReloadConfigRequest,
                model_management_pb2.ReloadConfigResponse,
            ),
        },
    ),
}
SERVICE_NAMES = tuple(f"{PACKAGE}.{service}" for service, _ in _SERVICES.values())


def add_reflection(server: Any, more: Collection[str]) -> None:
    """Lets clients ask a server for its services.

    Args:
        server: A server of `grpc.aio`.
        more: The full names of its services beside TensorFlow Serving's and this one.
    """
    # tensorflow-serving-api describes the services in modules that protobuf 4 and newer cannot import.
    for path, (service, methods) in _SERVICES.items():
        file = descriptor_pb2.FileDescriptorProto(name=path, package=PACKAGE, syntax="proto3")
        described = file.service.add(name=service)
        for name, (request, response) in methods.items():
            described.method.add(
                name=name,
                input_type=f".{request.DESCRIPTOR.full_name}",
                output_type=f".{response.DESCRIPTOR.full_name}",
            )
        used = {kind.DESCRIPTOR.file.name for pair in methods.values() for kind in pair}
        file.dependency.extend(sorted(used))
        descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    reflection.enable_server_reflection([*SERVICE_NAMES, *more, reflection.SERVICE_NAME], server)
