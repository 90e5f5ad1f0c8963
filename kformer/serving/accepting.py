"""Accepts connections of REST: only as many as there is room for, and also where the system has no descriptor left.

asyncio accepts any number. Where descriptors run out, it tries again so often that its log fills the disk, and nobody
is told the server's health meanwhile.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Sized
from typing import Any

from kformer.serving.connections import Connection
from kformer.serving.logs import Rarely

log = logging.getLogger(__name__)
_AT_ONCE = 32  # connections accepted in one turn of the event loop
_BEYOND = 64  # connections beyond the limit that are told the server's health
_SPARE = 8  # descriptors that are kept for connections of REST
_PAUSE = 0.1  # seconds until it tries again where the system has no room
_OTHER_DESCRIPTORS = 128  # files, threads and sockets of everything but connections
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def raise_descriptor_limit() -> None:
    """Lets this process have as many descriptors as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def room_for(connections: int) -> int:
    """So many connections, or fewer if descriptors would not be enough: REST may have half of them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, (soft - _OTHER_DESCRIPTORS) // 2))


class Acceptor:
    """Accepts connections until `close`.

    Where there is no room for a connection, the one is closed that has waited longest for its client. If every other
    one is being answered, some more connections are told the server's health, and nothing else.

    Args:
        listening: The socket, which listens.
        most: How many connections there may be.
        opened: Those that there are.
        make: Makes the object of a new connection. Its arguments: the connections that may be closed, whether there was
            no room for this one, and what it calls once it is opened.
        tls: None: without TLS.
        seconds: How long the handshake of TLS may take.
    """

    def __init__(
        self,
        listening: socket.socket,
        most: int,
        opened: Sized,
        make: Callable[[dict[Connection, None], bool, Callable[[], None]], Connection],
        tls: ssl.SSLContext | None,
        seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._most = most
        self._opened = opened
        self._make = make
        self._tls = tls
        self._seconds = seconds
        self._handshakes: dict[Any, None] = {}  # those of them under way with TLS, the oldest first
        self._tasks: set[asyncio.Task[None]] = set()  # of connections accepted and not yet opened
        self._waiting: dict[Connection, None] = {}
        self._spare: list[int] = []
        self._retry: asyncio.TimerHandle | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._rarely = Rarely(log)
        listening.setblocking(False)
        self._keep_spare()
        self._resume()

    def close(self) -> None:
        """Accepts no more."""
        for later in (self._retry, self._keeping):
            if later is not None:
                later.cancel()
        self._loop.remove_reader(self._listening)
        for task in self._handshakes:
            task.cancel()
        while self._spare:
            os.close(self._spare.pop())

    async def wait_closed(self) -> None:
        """As asyncio's servers have it: nothing is left to wait for."""

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(_PAUSE, self._resume)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if self._beyond() >= 0 and len(self._tasks) > len(self._handshakes):
                return  # until these are opened: then one of them can be closed for the next one
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._make_descriptor(error)
                else:  # of the network, such as an address that is no longer there
                    self._rarely.warning("not accepted", error=str(error.strerror))
                    self._pause()
                return
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        """Begins to serve a connection, if there is or can be room."""
        if self._beyond() >= 0:
            self._rarely.warning("crowded", connections=self._most)
        while self._beyond() >= 0 and self._close_one():
            pass
        beyond = self._beyond()
        is_crowded = beyond >= 0
        if beyond >= _BEYOND:
            connection.close()
            return
        connection.setblocking(False)
        self._tasks.add(task := self._loop.create_task(self._open(connection, is_crowded)))
        task.add_done_callback(self._has_opened)

    def _beyond(self) -> int:
        """Connections over the limit, if one more comes, less 1; negative: there is room for it."""
        return len(self._opened) + len(self._tasks) - self._most

    async def _open(self, connection: socket.socket, is_crowded: bool) -> None:
        task = asyncio.current_task()
        patience = None
        if self._tls is not None:
            patience = self._seconds
            self._handshakes[task] = None
        with contextlib.suppress(OSError):  # of a handshake that fails
            await self._loop.connect_accepted_socket(
                lambda: self._make(self._waiting, is_crowded, lambda: self._has_opened(task)),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=patience,
            )

    def _has_opened(self, task: Any) -> None:
        """Counts a connection no more as one that is not yet opened: it is, or it never will be."""
        self._tasks.discard(task)
        self._handshakes.pop(task, None)

    def _close_one(self) -> bool:
        """Closes the connection that has waited longest. False if none waits."""
        if len(self._handshakes) > len(self._waiting):
            task = next(iter(self._handshakes))
            del self._handshakes[task]
            task.cancel()
            self._tasks.discard(task)
        elif self._waiting:
            next(iter(self._waiting)).give_up()
        else:
            return False
        return True

    def _make_descriptor(self, error: OSError) -> None:
        """Gives the next connection a descriptor where the system has none: a spare one, or another connection's."""
        self._rarely.warning("no descriptor", error=str(error.strerror))
        if self._spare:
            os.close(self._spare.pop())
            self._keep_spare_later()
            return
        self._close_one()
        self._pause()

    def _keep_spare(self) -> None:
        """Takes descriptors that may be given away when there are no others."""
        with contextlib.suppress(OSError):
            while len(self._spare) < _SPARE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY))
            return
        self._keep_spare_later()

    def _keep_spare_later(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        self._keeping = self._loop.call_later(_PAUSE, self._keep_spare)
