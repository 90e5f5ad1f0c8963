"""Which calls over gRPC a server takes, how long their requests may take to arrive, and when answers are held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

MOST_CALLS = 2048  # at once
_BUSY = "The server is busy: it answers as many calls as it can. Send the request again later."


class CallLimits(grpc.aio.ServerInterceptor):
    """Refuses calls beyond a number, and those whose request does not arrive in time or cannot be read.

    grpc reads the request of a unary call before any Python code runs, and waits for it without end. So each unary call
    is answered as a streaming call, whose request Python code reads. A client sees no difference.

    Where there are as many calls as there may be, a new one takes the place of the call that has waited longest for its
    request: clients send a request within milliseconds, so that calls that are begun and never ended keep nobody away.
    grpc's own `maximum_concurrent_rpcs` refuses the new one, and counts wrongly before grpcio 1.79.

    Args:
        seconds: How long a request may take to arrive, and a stream to end.
        most: How many calls there may be at once.
    """

    def __init__(self, seconds: float, most: int = MOST_CALLS) -> None:
        self._seconds = seconds
        self._most = most
        self._calls = 0
        self._arriving: dict[asyncio.Timeout, None] = {}  # the oldest first
        self._answering = asyncio.Event()
        self._answering.set()

    @contextlib.contextmanager
    def answers_held(self) -> Iterator[None]:
        """No unary call is answered, or refused by its handler, before the block ends."""
        self._answering.clear()
        try:
            yield
        finally:
            self._answering.set()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.unary_unary is not None:
            return self._answered_once(handler, details.method)
        if handler.stream_stream is not None:
            return self._answered_often(handler)
        return handler  # a refusal, which reads nothing

    def _answered_once(self, handler: Any, method: str) -> Any:
        async def answer(requests: Any, context: Any) -> Any:
            await self._enter(context)
            request = await self._request(requests, context, method)
            await self._answering.wait()
            response = await handler.unary_unary(request, context)
            await self._answering.wait()
            return response

        return grpc.stream_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)

    def _answered_often(self, handler: Any) -> Any:
        async def answer(requests: Any, context: Any) -> AsyncIterator[Any]:
            await self._enter(context)
            try:
                async with asyncio.timeout(self._seconds):
                    async for response in handler.stream_stream(requests, context):
                        yield response
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The call took too long. Call again.")

        return grpc.stream_stream_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)

    async def _enter(self, context: Any) -> None:
        """Counts a call until its answer is sent, or refuses it."""
        if self._calls >= self._most:
            if not self._arriving:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _BUSY)
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            with contextlib.suppress(RuntimeError):  # its time is over, too
                oldest.reschedule(0)  # which is in the past
        self._calls += 1
        context.add_done_callback(self._leave)

    def _leave(self, context: Any) -> None:
        self._calls -= 1

    async def _request(self, requests: Any, context: Any, method: str) -> Any:
        """The message of a unary call."""
        end = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(end) as limit:
                self._arriving[limit] = None
                try:
                    return await anext(requests)
                finally:
                    self._arriving.pop(limit, None)
        except TimeoutError:
            if limit.when() != end:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _BUSY)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The request did not arrive in time.")
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a request. Send one.")
        except DecodeError:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"The bytes of the request are no message that {method} takes. Make them with the classes of the "
                "package tensorflow-serving-api.",
            )
