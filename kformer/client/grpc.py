"""TensorFlow Serving's gRPC interface, as `Client` uses it. Its messages hold tensors, so it imports TensorFlow."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np
import requests.utils
import tensorflow as tf
from google.protobuf import message
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from urllib3.exceptions import MaxRetryError

from kformer.client.errors import TOO_LARGE, ServerError
from kformer.client.proto_json import metadata_json, status_json
from kformer.client.retries import retries
from kformer.client.settings import ClientSettings, ServerAddress
from kformer.runtime.status_codes import Code

_OPTIONS = (
    # Otherwise answers have at most 4 MiB.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The longest waits before gRPC connects again. With its usual ones, a try could fail without asking the server.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # variables in the order in which gRPC looks for them
# In the words of gRPC's own client, and of proxies, on UNAVAILABLE.
_OF_CONNECTIONS = (
    *("failed to connect", "socket closed", "stream removed", "connection reset", "broken pipe", "goaway"),
    *("received http2 header", "upstream connect error", "reset reason"),
)
_TRIED_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


class GrpcTransport:
    """Asks a model over gRPC; see `Client`."""

    def __init__(self, address: ServerAddress, settings: ClientSettings) -> None:
        self._address = address
        self._timeout = settings.timeout
        self._retries = retries(settings.tries, settings.backoff_factor)
        self._token = () if settings.token is None else (("authorization", f"Bearer {settings.token}"),)
        if address.is_encrypted:
            trusted = None if settings.ca_file is None else settings.ca_file.read_bytes()
            self._channel = grpc.secure_channel(address.host, grpc.ssl_channel_credentials(trusted), _OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address.host, _OPTIONS)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `Transport`."""
        tensors = {name: tf.make_tensor_proto(array) for name, array in inputs.items()}
        answer = self._ask(
            self._predictions.Predict, predict_pb2.PredictRequest(model_spec=self._model(signature), inputs=tensors)
        )
        return {name: tf.make_ndarray(tensor) for name, tensor in answer.outputs.items()}

    def status(self) -> dict[str, Any]:
        """See `Transport`."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._model())
        return status_json(self._ask(self._models.GetModelStatus, request))

    def metadata(self) -> dict[str, Any]:
        """See `Transport`."""
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._model(), metadata_field=["signature_def"]
        )
        return metadata_json(self._ask(self._predictions.GetModelMetadata, request))

    def close(self) -> None:
        """See `Transport`."""
        self._channel.close()

    def _model(self, signature: str = "") -> model_pb2.ModelSpec:
        spec = model_pb2.ModelSpec(name=self._address.model, signature_name=signature)
        if self._address.version is not None:
            spec.version.value = self._address.version
        elif self._address.label is not None:
            spec.version_label = self._address.label
        return spec

    def _ask(self, method: Callable[..., Any], request: message.Message) -> Any:
        """The server's answer. gRPC's own retries would try five times at most, and not after a timeout.

        Raises:
            ServerError: The server does not answer, or answers with an error.
        """
        attempts = self._retries
        while True:
            try:
                return method(request, timeout=self._timeout, metadata=self._token)
            except grpc.RpcError as error:
                if not _may_succeed_later(error):
                    raise self._refused(error) from error
                try:
                    attempts = attempts.increment(response=None)
                except MaxRetryError:
                    raise self._refused(error) from error
            attempts.sleep()

    def _refused(self, error: grpc.RpcError) -> ServerError:
        code = error.code()
        http_status = TOO_LARGE if _is_too_large(error) else Code.of_number(code.value[0]).http_status
        told = f"{self._address.url} answers {code.name}: {error.details()}{self._remedy(error)}"
        return ServerError(told, code=http_status, is_answer=not _is_of_connection(error))

    def _remedy(self, error: grpc.RpcError) -> str:
        """A sentence for errors whose cause is mostly a certificate, the URL or a proxy."""
        if "CERTIFICATE_VERIFY_FAILED" in (error.details() or ""):
            return (
                ". Trust its authority: ca_file of the client, or the variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, names "
                "a file in PEM form."
            )
        if _is_of_tls(error):
            return ". If the server has no TLS, name it by grpc."
        proxy = next((name for name in _PROXIES if os.environ.get(name)), None)
        if error.code() == grpc.StatusCode.UNAVAILABLE and proxy and not _is_direct(self._address.host):
            return f". The variable {proxy} names a proxy, by which gRPC connects. Set no_proxy for a host without one."
        return ""


def _is_direct(host: str) -> bool:
    """Whether `no_proxy` says that this host is reached without a proxy."""
    return requests.utils.should_bypass_proxies(f"http://{host}", no_proxy=None)


def _may_succeed_later(error: grpc.RpcError) -> bool:
    return error.code() in _TRIED_AGAIN and not _is_too_large(error) and not _is_of_tls(error)


def _is_of_tls(error: grpc.RpcError) -> bool:
    """Whether the two sides do not agree on TLS, such as a certificate that is not trusted. gRPC says UNAVAILABLE."""
    return "handshake failed" in (error.details() or "").lower()


def _is_of_connection(error: grpc.RpcError) -> bool:
    """Whether there is no connection, or it has ended. gRPC has the same status for this as for a busy server."""
    words = (error.details() or "").lower()
    return error.code() == grpc.StatusCode.UNAVAILABLE and any(known in words for known in _OF_CONNECTIONS)


def _is_too_large(error: grpc.RpcError) -> bool:
    """Whether a request is larger than the server's limit. gRPC has the same status for this as for a full queue."""
    return "message larger than max" in (error.details() or "").lower()
