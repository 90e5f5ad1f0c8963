"""Refuses requests that do not arrive in time, over REST and gRPC, and those over gRPC that cannot be read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES = 64 * 1024  # of a request's headers


class Connection(HttpToolsProtocol):
    """Closes itself when a request's headers do not arrive in time, or are too long: uvicorn waits without end.

    Headers may take as long as a connection may be idle between two requests, uvicorn's `timeout_keep_alive`.
    """

    _late: asyncio.TimerHandle | None = None  # while headers are awaited
    _bytes = 0  # that have arrived since then

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_headers()

    def on_headers_complete(self) -> None:
        self._stop_awaiting()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._bytes += len(data)
        if self._late is not None and self._bytes > _MOST_BYTES:
            self._stop_awaiting()
            self.send_400_response("The headers of the request are too long.")

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_awaiting()
        super().connection_lost(error)

    def _await_headers(self) -> None:
        self._stop_awaiting()
        self._bytes = 0
        self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_awaiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class RequestsInTime(grpc.aio.ServerInterceptor):
    """Refuses a call over gRPC whose request does not arrive in time, or cannot be read.

    grpc reads the request of a unary call before any Python code runs, and waits for it without end. So each unary call
    is answered as a streaming call, whose request Python code reads. A client sees no difference.

    Args:
        seconds: How long a request may take to arrive.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def answer(requests: Any, context: Any) -> Any:
            try:
                request = await asyncio.wait_for(anext(requests), self._seconds)
            except (TimeoutError, StopAsyncIteration):
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The request did not arrive in time.")
            except DecodeError:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"The bytes of the request are no message that {details.method} takes. Make them with the classes "
                    "of the package tensorflow-serving-api.",
                )
            return await handler.unary_unary(request, context)

        return grpc.stream_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)
