"""gRPC, as TensorFlow Serving has it: `PredictionService` and `ModelService`."""

import asyncio
import functools
import logging
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from kformer.runtime.status_codes import Code
from kformer.serving.config_files import model_settings
from kformer.serving.errors import SERVER_FAILED, ServingError
from kformer.serving.model_manager import ModelManager
from kformer.serving.predict import Answerer
from kformer.serving.protos import inputs_of, metadata_response, predict_response, status_response
from kformer.serving.reloading import reload_within
from kformer.serving.settings import ReloadSettings

log = logging.getLogger(__name__)
_ANSWERED = (
    "This server supports only Predict and GetModelMetadata: exported translators have no signatures for the other "
    "methods."
)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """`PredictionService`: Predict and GetModelMetadata.

    Args:
        answerer: Answers predict requests.
    """

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    async def Predict(self, request: predict_pb2.PredictRequest, context: Any) -> predict_pb2.PredictResponse:
        async def answer() -> predict_pb2.PredictResponse:
            began = time.monotonic()
            with self._answerer.counted(request.model_spec.name):
                spec = _named(request.model_spec)
                servable, signature, outputs = await self._answerer.predict(
                    spec.name,
                    functools.partial(inputs_of, request),
                    *_version(spec),
                    spec.signature_name,
                    context.time_remaining(),
                    request.output_filter,
                    client_address(context.peer()),
                )
            fields = {"protocol": "grpc", "model": spec.name, "version": servable.version, "signature": signature.name}
            log.debug("predict", extra={"fields": {**fields, "seconds": round(time.monotonic() - began, 6)}})
            return predict_response(servable, signature, outputs)

        return await _with_errors_answered(answer, context)

    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: Any
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        async def answer() -> get_model_metadata_pb2.GetModelMetadataResponse:
            spec, fields = _named(request.model_spec), request.metadata_field
            if {*fields} != {"signature_def"}:
                raise ServingError(
                    Code.INVALID_ARGUMENT,
                    f"The metadata_field must be signature_def. Received: {', '.join(fields)[:100] or 'none'}.",
                )
            return metadata_response(self._answerer.manager.servable(spec.name, *_version(spec)))

        return await _with_errors_answered(answer, context)

    async def Classify(self, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _ANSWERED)

    async def Regress(self, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _ANSWERED)

    async def MultiInference(self, request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _ANSWERED)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """`ModelService`: GetModelStatus and HandleReloadConfigRequest.

    Args:
        manager: The models.
        reload: How clients may change them; None: not at all.
    """

    def __init__(self, manager: ModelManager, reload: ReloadSettings | None = None) -> None:
        self._manager = manager
        self._reload = reload

    async def GetModelStatus(
        self, request: get_model_status_pb2.GetModelStatusRequest, context: Any
    ) -> get_model_status_pb2.GetModelStatusResponse:
        async def answer() -> get_model_status_pb2.GetModelStatusResponse:
            spec = _named(request.model_spec)
            version, label = _version(spec)
            if label is not None:
                version = self._manager.servable(spec.name, label=label).version
            return status_response(self._manager.status(spec.name, version))

        return await _with_errors_answered(answer, context)

    async def HandleReloadConfigRequest(
        self, request: model_management_pb2.ReloadConfigRequest, context: Any
    ) -> model_management_pb2.ReloadConfigResponse:
        """Serves the models of the request from now on. The answer comes when they are loaded."""
        response = model_management_pb2.ReloadConfigResponse()
        try:
            models = model_settings(request.config)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, reload_within, self._manager, models, self._reload)
        except ServingError as error:
            _tell(response, error.code, str(error))
        except ValueError as error:
            _tell(response, Code.INVALID_ARGUMENT, str(error))
        except Exception:
            log.exception("failed", extra={"fields": {"protocol": "grpc"}})
            _tell(response, Code.INTERNAL, SERVER_FAILED)
        return response


def _tell(response: model_management_pb2.ReloadConfigResponse, code: Code, message: str) -> None:
    response.status.error_code = code.number
    response.status.error_message = message


async def _with_errors_answered(answer: Callable[[], Awaitable[Any]], context: Any) -> Any:
    """Waits for an answer, and turns its errors into those of gRPC."""
    try:
        return await answer()
    except ServingError as error:
        log.info("refused", extra={"fields": {"protocol": "grpc", "code": error.code.name}})
        await context.abort(grpc.StatusCode[error.code.name], str(error))
    except Exception:
        log.exception("failed", extra={"fields": {"protocol": "grpc"}})
        await context.abort(grpc.StatusCode.INTERNAL, SERVER_FAILED)


def _named(spec: model_pb2.ModelSpec) -> model_pb2.ModelSpec:
    """The `ModelSpec` of a request, which must name a model.

    Raises:
        ServingError: It does not, or it is missing.
    """
    if not spec.name:
        raise ServingError(Code.INVALID_ARGUMENT, "The request names no model. Set its model_spec.name.")
    return spec


def client_address(peer: str) -> str:
    """The address of a client, as REST has it: gRPC gives `ipv4:ADDRESS:PORT`, or `ipv6:%5BADDRESS%5D:PORT`."""
    return urllib.parse.unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")


def _version(spec: Any) -> tuple[int | None, str | None]:
    """Version and label of a `ModelSpec`."""
    choice = spec.WhichOneof("version_choice")
    return (
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
    )
