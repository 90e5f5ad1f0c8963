"""REST's side of a server: its socket, its connections, and what stands between them and the endpoints."""

import contextlib
import errno
import math
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from kformer.serving.accepting import Acceptor, room_for
from kformer.serving.access import TokenForRest
from kformer.serving.compression import Gzip
from kformer.serving.connections import Connection
from kformer.serving.hosts import AllowedHosts, allowed_names
from kformer.serving.settings import ServerSettings

_CORS_HEADERS = ("Authorization", "Content-Encoding", "Content-Type")
_BACKLOG = 2048  # connections that the system keeps until they are accepted


class RestServer(uvicorn.Server):
    """Answers requests over REST.

    Args:
        app: The endpoints.
        settings: Those of the server.
    """

    def __init__(self, app: Any, settings: ServerSettings) -> None:
        app = Gzip(app, settings.limits.request_bytes)
        if settings.token is not None:
            app = TokenForRest(app, settings.token)
        if settings.origins:
            app = CORSMiddleware(app, settings.origins, allow_methods=("GET", "POST"), allow_headers=_CORS_HEADERS)
        app = AllowedHosts(app, allowed_names(settings.host, settings.allowed_hosts, settings.token is not None))
        self._room = room_for(settings.connections)
        super().__init__(
            uvicorn.Config(
                app,
                proxy_headers=False,  # otherwise clients on this machine could choose their address
                http="httptools",
                timeout_keep_alive=max(1, round(settings.limits.seconds)),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept connections, in the place of uvicorn, which accepts any number."""
        await self.lifespan.startup()
        acceptors = [
            Acceptor(
                listening,
                self._room,
                self.server_state.connections,
                self._connection,
                self.config.ssl,
                self.config.timeout_keep_alive,
            )
            for listening in sockets or []
        ]
        self.servers: list[Any] = [*acceptors]
        self.started = True

    def _connection(self, waiting: dict[Connection, None], is_crowded: bool, on_open: Callable[[], None]) -> Connection:
        return Connection(
            waiting,
            is_crowded,
            on_open,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `Server`, which also stops gRPC."""
        yield


@contextlib.contextmanager
def listening(settings: ServerSettings) -> Iterator[socket.socket]:
    """The socket of REST, opened before anything is loaded, so that a port that is taken is an error at once.

    Raises:
        OSError: The server cannot listen there.
    """
    with bound(settings.host, settings.rest_port) as listening:
        # Connections inherit this: if a client reads nothing for this time, its connection ends. gRPC has its own.
        patience = max(1000, round(settings.limits.seconds * 1000))  # milliseconds
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        listening.listen(_BACKLOG)
        yield listening


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that has this address.

    Raises:
        OSError: It cannot have it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be named: asyncio looks at it, and sends small answers at once (TCP_NODELAY) for TCP alone.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, port))
        except OSError as error:
            is_of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            remedy = "Name an address of this machine by --host" if is_of_host else "Choose another port, or 0 for any"
            raise OSError(f"The server cannot listen on {host}, port {port}: {error.strerror}. {remedy}.") from error
        yield opened
