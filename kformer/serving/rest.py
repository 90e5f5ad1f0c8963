"""REST, as TensorFlow Serving has it; the page; health, readiness and metrics."""

import asyncio
import json
import logging
import pathlib
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response

from kformer.client.proto_json import metadata_json, status_json
from kformer.runtime.status_codes import Code
from kformer.runtime.versions import LARGEST_VERSION
from kformer.serving.access import PAGE_FILES
from kformer.serving.connections import CLIENT_GONE
from kformer.serving.errors import SERVER_FAILED, ServingError, too_large
from kformer.serving.json_tensors import read_body, write_body
from kformer.serving.metrics import Metrics
from kformer.serving.predict import Answerer
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
_WRITTEN_AT_ONCE = 2000  # numbers or texts, which takes some milliseconds
_READ, _ALL = ("GET", "HEAD"), ("GET", "HEAD", "OPTIONS", "POST")  # methods
Endpoint = Callable[[Request], Awaitable[Response]]


def application(endpoint: Endpoint) -> Any:
    """An application for an ASGI server, which answers all requests by one endpoint, and its errors, too."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            response = await endpoint(Request(scope, receive))
        except ServingError as error:
            log.info("refused", extra={"fields": {"code": error.code.name, "path": scope["path"][:200]}})
            # Who waits for leave to send a body does not send it now: what comes next is no body.
            waits = any(name == b"expect" for name, _ in scope.get("headers", ()))
            headers = {"Connection": "close"} if waits else {}
            response = _error(error.http_status, str(error), headers, retry_seconds=error.retry_seconds)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("failed", extra={"fields": {"path": scope["path"][:200]}})
            response = _error(500, SERVER_FAILED)
        await response(scope, receive, send)

    return answer


class Rest:
    """The endpoint for all paths, over one server's models.

    It finds the endpoint of a path by itself: the layers of an application of Starlette cost time in each request.

    Args:
        answerer: Answers predict requests.
        metrics: What is counted.
        metrics_path: Where the metrics are; None: nowhere.
        is_ready: Whether requests can be answered now.
    """

    def __init__(
        self, answerer: Answerer, metrics: Metrics, metrics_path: str | None, is_ready: Callable[[], bool]
    ) -> None:
        self._answerer = answerer
        self._manager = answerer.manager
        self._limits = answerer.limits
        self._metrics = metrics
        self._is_ready = is_ready
        self._endpoints: dict[str, Endpoint] = {"/healthz": self._health, "/readyz": self._ready}
        self._endpoints |= {path: _file(_PAGE / file) for path, file in PAGE_FILES.items()}
        if metrics_path is not None:
            self._endpoints[metrics_path] = self._show_metrics

    async def __call__(self, request: Request) -> Response:
        """Answers a request of any path."""
        path, method = request.scope["path"], request.method
        is_v1 = path.startswith(("/v1/", "/V1/"))
        endpoint: Endpoint | None = self._v1 if is_v1 else self._endpoints.get(path)
        if endpoint is None:
            return _error(404, f"Not Found: {method} {path[:200]}")
        methods = _ALL if is_v1 else _READ
        if method not in methods:
            return _error(405, f"Method Not Allowed: {method} {path[:200]}", {"Allow": ", ".join(methods)})
        return await endpoint(request)

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
        with self._answerer.counted(name):
            body = read_body(await self._body(request))
            left = self._limits.seconds - (time.monotonic() - began)  # the body may have taken long to arrive
            client = request.client.host if request.client else ""
            gone = request.scope["state"][CLIENT_GONE]()
            servable, signature, outputs = await self._answerer.predict(
                name, body.inputs, version, label, body.signature, left, client=client, gone=gone
            )
            written = await _body_of(outputs, body.by_row)
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
        chunks, size = [], int(length.lstrip("0")[:20] or 0) if length.isdecimal() else 0
        if size <= most:
            size, is_whole = 0, False
            try:
                async with asyncio.timeout(self._limits.seconds):
                    while not is_whole and size <= most:
                        message = await request.receive()
                        if message["type"] == "http.disconnect":
                            raise ClientDisconnect
                        chunks.append(message.get("body", b""))
                        size += len(chunks[-1])
                        is_whole = not message.get("more_body", False)
            except TimeoutError:
                raise ServingError(
                    Code.DEADLINE_EXCEEDED, "The request's body did not arrive in time.", http_status=408
                ) from None
        if size > most:
            raise too_large(f"A request may have {most} bytes. Received: {size} or more. Send several requests.")
        if size == 0 and (protocol := request.headers.get("upgrade")):  # httptools has not read the body
            raise ServingError(
                Code.INVALID_ARGUMENT,
                f"A request with a body cannot ask for another protocol. Received: Upgrade: {protocol[:50]}. Send it "
                "without this header, over HTTP/1.1.",
            )
        return b"".join(chunks)


async def _body_of(outputs: Mapping[str, np.ndarray], by_row: bool) -> bytes:
    """An answer's body. A large one is written in a thread: meanwhile other requests, and probes, are answered."""
    if sum(array.size for array in outputs.values()) <= _WRITTEN_AT_ONCE:
        return write_body(outputs, by_row)
    return await asyncio.to_thread(write_body, outputs, by_row)


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


def _error(
    status: int, message: str, more_headers: Mapping[str, str] | None = None, retry_seconds: int = 1
) -> Response:
    headers = dict(more_headers or {})
    if status in (429, 503):
        headers["Retry-After"] = str(retry_seconds)
    if status == 408:
        headers["Connection"] = "close"  # the rest of the body is not read
    return Response(json.dumps({"error": message}), status, headers, "application/json")
