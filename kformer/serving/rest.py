"""REST, as TensorFlow Serving has it; the page; health, readiness and metrics."""

import asyncio
import json
import logging
import pathlib
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from kformer.client.proto_json import metadata_json, status_json
from kformer.runtime.status import Code
from kformer.runtime.versions import LARGEST_VERSION
from kformer.serving.access import PAGE_FILES
from kformer.serving.errors import SERVER_FAILED, ServingError, too_large
from kformer.serving.json_tensors import read_body, write_body
from kformer.serving.metrics import Metrics
from kformer.serving.predict import Predictor
from kformer.serving.protos import metadata_response, status_response

log = logging.getLogger(__name__)
# A model, which of its versions, and what is asked of it.
_MODEL = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?P<part>/metadata|:predict|:classify|:regress|)",
    re.ASCII | re.IGNORECASE,
)
_PAGE = pathlib.Path(__file__).parent / "page"
# The page loads nothing from other servers, and no other page may embed it.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
Returned = TypeVar("Returned")
Endpoint = Callable[[Request], Awaitable[Response]]


class Rest:
    """The endpoints over one server's models.

    Args:
        predictor: Answers predict requests.
        metrics: What is counted.
        metrics_path: Where the metrics are; None: nowhere.
        is_ready: Whether requests can be answered now.
    """

    def __init__(
        self, predictor: Predictor, metrics: Metrics, metrics_path: str | None, is_ready: Callable[[], bool]
    ) -> None:
        self._predictor = predictor
        self._manager = predictor.manager
        self._limits = predictor.limits
        self._metrics = metrics
        self._metrics_path = metrics_path
        self._is_ready = is_ready

    def app(self) -> Starlette:
        """The application for an ASGI server."""
        routes = [
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
            *(
                Route(f"/{version}/{{rest:path}}", _with_errors_answered(self._v1), methods=["GET", "POST", "OPTIONS"])
                for version in ("v1", "V1")
            ),
            *(Route(path, _file(_PAGE / file)) for path, file in PAGE_FILES.items()),
        ]
        if self._metrics_path is not None:
            routes.insert(0, Route(self._metrics_path, self._show_metrics))
        app = Starlette(routes=routes, exception_handlers={HTTPException: _starlette_error})
        app.router.redirect_slashes = False  # TensorFlow Serving has no redirects
        return app

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        ready = self._is_ready()
        return JSONResponse({"status": "ready" if ready else "not ready"}, status_code=200 if ready else 503)

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _v1(self, request: Request) -> Response:
        """TensorFlow Serving's API, and the list of models, which it does not have."""
        # The path as it was sent: %2F and %3A in a name do not end it. Letters of both cases are the same.
        path = request.scope["raw_path"].decode("ascii", "replace")
        method = "GET" if request.method == "HEAD" else request.method
        if method == "OPTIONS":
            return _preflight(request)
        if method == "GET" and path.lower() == "/v1/models":
            return JSONResponse({"models": self._manager.names()})
        if found := _MODEL.fullmatch(path):
            model = _spec(found)
            match method, found["part"].lower():
                case "POST", ":predict":
                    return await self._predict(request, *model)
                case "POST", ":classify" | ":regress":
                    raise ServingError(Code.UNIMPLEMENTED, f"This server answers :predict. Received: {found['part']}.")
                case "GET", "/metadata":
                    return self._metadata(*model)
                case "GET", "":
                    return self._status(*model)
        raise ServingError(Code.INVALID_ARGUMENT, f"Malformed request: {request.method} {path[:200]}")

    def _status(self, name: str, version: int | None, label: str | None) -> Response:
        if label is not None:
            version = self._manager.servable(name, label=label).version
        return JSONResponse(status_json(status_response(self._manager.status(name, version))))

    def _metadata(self, name: str, version: int | None, label: str | None) -> Response:
        return JSONResponse(metadata_json(metadata_response(self._manager.servable(name, version, label))))

    async def _predict(self, request: Request, name: str, version: int | None, label: str | None) -> Response:
        began = time.monotonic()
        with self._predictor.counted(name):
            body = read_body(await self._body(request))
            left = self._limits.seconds - (time.monotonic() - began)  # the body may have taken long to arrive
            client = request.client.host if request.client else ""
            predicting = self._predictor.predict(name, body.inputs, version, label, body.signature, left, client=client)
            servable, signature, outputs = await _while_connected(request, predicting)
            written = write_body(outputs, body.by_row)
        log.debug(
            "predict",
            extra={
                "fields": {
                    "protocol": "rest",
                    "model": name,
                    "version": servable.version,
                    "signature": signature.name,
                    "seconds": round(time.monotonic() - began, 6),
                }
            },
        )
        return Response(written, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        """The body of a request.

        Raises:
            ServingError: It is too large, or does not arrive in time.
        """
        most = self._limits.request_bytes
        length = request.headers.get("content-length", "0")
        chunks, size = [], int(length) if length.isdecimal() else 0
        if size <= most:
            size = 0
            try:
                async with asyncio.timeout(self._limits.seconds):
                    async for chunk in request.stream():
                        chunks.append(chunk)
                        size += len(chunk)
                        if size > most:
                            break
            except TimeoutError:
                raise ServingError(
                    Code.DEADLINE_EXCEEDED, "The request's body did not arrive in time.", http_status=408
                ) from None
        if size > most:
            raise too_large(f"A request may have {most} bytes. Received: {size} or more. Send several requests.")
        return b"".join(chunks)


def _file(path: pathlib.Path) -> Endpoint:
    """An endpoint that gives a file of the page."""

    async def answer(request: Request) -> Response:
        # A new response for each request: in some versions of Starlette, a request for a part of the file changes it.
        return FileResponse(path, headers=_PAGE_HEADERS)

    return answer


def _spec(found: re.Match[str]) -> tuple[str, int | None, str | None]:
    """Name, version and label of the model in a path that `_MODEL` fits.

    Raises:
        ServingError: The version is larger than any can be.
    """
    version, label = found["version"], found["label"]
    number = None if version is None else int(version.lstrip("0")[:20] or 0)  # more digits are too many, too
    if number is not None and number > LARGEST_VERSION:
        raise ServingError(
            Code.INVALID_ARGUMENT, f"A version is a number up to {LARGEST_VERSION}. Received: {version[:50]}."
        )
    return urllib.parse.unquote(found["name"]), number, None if label is None else urllib.parse.unquote(label)


def _preflight(request: Request) -> Response:
    """The answer to OPTIONS, by which a browser asks whether a page of another server may send a request: it may not.

    Raises:
        ServingError: There is no origin, without which there is nothing to ask.
    """
    if not re.match("https?://", request.headers.get("origin", "")):
        raise ServingError(Code.FAILED_PRECONDITION, "OPTIONS needs the header Origin with the origin of the page.")
    return Response(headers={"Allow": "GET, HEAD, POST, OPTIONS"})


async def _while_connected(request: Request, answer: Awaitable[Returned]) -> Returned:
    """Waits for an answer.

    If the client goes away, cancels it, so that a request that is still in the queue is not computed.

    Raises:
        ClientDisconnect: The client has gone.
    """
    answering = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(request.receive())  # after the body, only the end of the connection can come
    leaving.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if leaving.done():
            raise ClientDisconnect from None
        raise
    finally:
        answering.cancel()
        leaving.cancel()


def _with_errors_answered(endpoint: Endpoint) -> Endpoint:
    """An endpoint whose errors become answers."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ServingError as error:
            log.info("refused", extra={"fields": {"code": error.code.name, "path": request.scope["path"][:200]}})
            return _error(error.http_status, str(error), retry_seconds=error.retry_seconds)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception:
            log.exception("failed", extra={"fields": {"path": request.scope["path"][:200]}})
            return _error(500, SERVER_FAILED)

    return answer


async def _starlette_error(request: Request, error: Exception) -> Response:
    """An answer to a request that no route takes, such as one for another path."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.scope['path'][:200]}"
    return _error(error.status_code, message, error.headers)


def _error(
    status: int, message: str, more_headers: Mapping[str, str] | None = None, retry_seconds: int = 1
) -> Response:
    headers = dict(more_headers or {})
    if status in (429, 503):
        headers["Retry-After"] = str(retry_seconds)
    if status == 408:
        headers["Connection"] = "close"  # the rest of the body is not read
    return Response(json.dumps({"error": message}), status, headers, "application/json")
