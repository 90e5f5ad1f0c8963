"""A connection of REST: a request that does not arrive in time is refused, and a client that has gone is noticed."""

import asyncio
import collections
import json
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kformer.serving.access import HealthAlone

_MOST_BYTES = 64 * 1024  # of a request beside its body: headers, the sizes of chunks, trailers
_PIECE = 4096  # bytes that are read between two looks at the bound
_TOGETHER = 64 * 1024  # bytes that wait at most for what is written next
_MOST_PIPELINED = 64  # requests of a connection that are not yet answered
_SECONDS_BETWEEN_LOOKS = 0.1
_TCP_CLOSED = 7  # TCP_CLOSE of Linux's tcp_states.h
# In the `state` of a request's scope: a function whose result is a future, which is done when the client has gone.
# ASGI's `receive` tells the same, but only to a task of its own that waits for it.
CLIENT_GONE = "kformer.client_gone"


class Connection(HttpToolsProtocol):
    """Gives each step of a request its time, and one bound to its bytes beside the body: uvicorn has neither.

    The steps are: until the headers have arrived; once the request is answered, until the rest of it has arrived; until
    the next request begins. A step may take uvicorn's `timeout_keep_alive` seconds, whatever arrives meanwhile. Between
    the headers and the answer, the application has limits of its own. A client may send requests before earlier ones
    are answered, but not any number. A request that asks for another protocol is the last one of its connection.

    Args:
        waiting: The connections that may be closed where there is no room for another, the longest waiting first: those
            of which no request is being answered that has arrived. This one notes itself there.
        is_crowded: Whether there was no room for this one: it is told the server's health alone.
        on_open: Called when it is opened.
        options: See `HttpToolsProtocol`.
    """

    def __init__(
        self, waiting: "dict[Connection, None]", is_crowded: bool, on_open: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(**options)
        self._on_open = on_open
        self._waiting = waiting
        self._late: asyncio.TimerHandle | None = None  # ends the step
        self._looking: asyncio.TimerHandle | None = None  # for a client that sends no more
        self._in_body = False  # of a request: its headers have arrived, and its end has not
        self._is_last = False  # what follows the request is not read
        self._bytes = 0  # of the request, beside its body
        self._most = _MOST_BYTES
        self._cycles: collections.deque[Any] = collections.deque()  # uvicorn's requests that are not yet answered
        if is_crowded:
            self.app = HealthAlone(self.app)

    def connection_made(self, transport: Any) -> None:
        self._gone: asyncio.Future[None] = self.loop.create_future()
        self._together = _Together(transport, self.loop)
        super().connection_made(self._together)  # type: ignore[arg-type]
        self._on_open()
        self._begin_step()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._bytes, self._most = 0, _MOST_BYTES
        if self.cycle is None or self.cycle.response_complete:
            self._begin_step()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # trailers are not kept: uvicorn would add them to the headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._stop_clock()
        super().on_headers_complete()
        if self.parser.should_upgrade():  # then httptools would take the body for the next request
            self._is_last = True
            self.cycle.keep_alive = False
        self.scope["state"][CLIENT_GONE] = self._watch_client
        self._cycles.append(self.cycle)
        if len(self._cycles) > _MOST_PIPELINED:
            self.give_up()

    def on_body(self, body: bytes) -> None:
        self._bytes -= len(body)
        self._most += len(body)  # a body in small chunks has as many bytes beside it
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._bytes, self._most = 0, _MOST_BYTES
        if self.cycle.response_complete:
            self._begin_step()
        else:
            self._waiting.pop(self, None)

    def on_response_complete(self) -> None:
        self._together.send()
        self._cycles.popleft()
        super().on_response_complete()
        self._unset_keepalive_if_required()  # uvicorn's clock, which any byte stops
        if self.cycle.response_complete and not self.transport.is_closing():
            self._begin_step()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE):
            if self._is_last:
                return
            piece = data[start : start + _PIECE]
            self._bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if self._bytes > self._most:
                self._refuse()
                return

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection of a client that sends no more, and waits for its answer."""
        if self.scheme == "https" or self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False  # asyncio ends TLS as a whole
        if self._looking is not None:
            return True
        self.cycle.keep_alive = False
        first = self._cycles[0]
        if first.scope["http_version"] == "1.1" and not first.response_started:
            # A client that has gone looks alike. But its system answers this by a reset, and clients take no notice.
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._look_for_client()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_clock()
        self._waiting.pop(self, None)
        if self._looking is not None:
            self._looking.cancel()
        for cycle in self._cycles:  # uvicorn tells the newest alone
            cycle.disconnected = True
            cycle.message_event.set()
        self._gone.set_result(None)
        super().connection_lost(error)

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's own, but in JSON, as all other errors are."""
        if len(self._cycles) > self._in_body:  # it would be taken for the answer to an earlier request
            self.give_up()
            return
        body = json.dumps({"error": msg}).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def give_up(self) -> None:
        """Closes the connection at once, though its client may wait for something."""
        self._waiting.pop(self, None)
        self.connections.discard(self)  # its place is free at once, before `connection_lost`
        self.transport.abort()

    def _begin_step(self) -> None:
        self._stop_clock()
        self._waiting.pop(self, None)
        self._waiting[self] = None  # as the last one
        self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _watch_client(self) -> "asyncio.Future[None]":
        self.flow.resume_reading()  # or else nobody would notice that the client has gone
        return self._gone

    def _refuse(self) -> None:
        if not self._in_body and (self.cycle is None or self.cycle.response_complete):
            self.send_400_response("The headers of the request are too long.")
        else:  # trailers, or behind a request whose answer would come after this one
            self.give_up()

    def _look_for_client(self) -> None:
        """Asks the system whether the client of a request that is being answered is still there."""
        connection = self.transport.get_extra_info("socket")
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSED:
            self.give_up()
        else:
            self._looking = self.loop.call_later(_SECONDS_BETWEEN_LOOKS, self._look_for_client)


class _Together:
    """A transport that sends headers and body together: when an answer or the turn of the event loop ends."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self.send)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _TOGETHER:
            self.send()

    def close(self) -> None:
        self.send()
        self._transport.close()

    def send(self) -> None:
        """Sends what was written and has not been sent."""
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(b"".join(parts))
