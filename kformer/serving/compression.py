"""gzip of requests and answers. A request is unpacked up to the limit of its bytes, and no further."""

import re
import zlib
from typing import Any

from starlette.middleware.gzip import GZipMiddleware

from kformer.runtime.status_codes import Code
from kformer.serving.access import refuse
from kformer.serving.errors import ServingError, too_large

_LEAST = 1024  # bytes of an answer that is packed
_LEVEL = 1  # of 9: JSON becomes a fourth by the fastest, and a fifth by the best, which takes ten times as long
_GZIP = 16 + zlib.MAX_WBITS
_REFUSED = "A request's Content-Encoding may be gzip or identity. Send the body in one of them."


class Gzip:
    """ASGI middleware that unpacks the bodies of requests, and packs those of answers for clients that take it.

    Args:
        app: The application behind it.
        most: The most bytes of a request's body, packed and unpacked. The application refuses what is larger.
    """

    def __init__(self, app: Any, most: int) -> None:
        self._plain = app
        self._packing = GZipMiddleware(app, minimum_size=_LEAST, compresslevel=_LEVEL)
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding in (b"gzip", b"x-gzip"):
            # The length is that of the packed body.
            kept = [pair for pair in scope["headers"] if pair[0] not in (b"content-encoding", b"content-length")]
            scope, receive = {**scope, "headers": kept}, _Unpacked(receive, self._most)
        elif encoding not in (b"identity", b""):
            await refuse(send, 415, _REFUSED, {"Accept-Encoding": "gzip"})
            return
        app = self._packing if _takes_gzip(headers.get(b"accept-encoding", b"")) else self._plain
        await app(scope, receive, send)


class _Unpacked:
    """ASGI's `receive` of a body in gzip."""

    def __init__(self, receive: Any, most: int) -> None:
        self._receive = receive
        self._most = most
        self._unpacker = zlib.decompressobj(_GZIP)
        self._packed = 0
        self._unpacked = 0

    async def __call__(self) -> Any:
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        packed = message.get("body", b"")
        self._packed += len(packed)
        if self._packed > self._most:
            raise too_large(f"A request may have {self._most} bytes, also in gzip. Send several requests.")
        body = self._unpack(packed)
        if not message.get("more_body", False) and not self._unpacker.eof:
            raise _damaged("it ends too early")
        return {**message, "body": body}

    def _unpack(self, packed: bytes) -> bytes:
        """At most one byte more than a body may have."""
        if not packed:
            return b""
        if self._unpacker.eof:
            raise _damaged("something stands behind its end")
        try:
            body = self._unpacker.decompress(packed, self._most + 1 - self._unpacked)
        except zlib.error:
            raise _damaged("these bytes are no gzip") from None
        self._unpacked += len(body)
        if self._unpacked > self._most:
            raise too_large(f"A request may have {self._most} bytes. Received: more, in gzip. Send several requests.")
        if self._unpacker.unused_data:
            raise _damaged("something stands behind its end")
        return body


def _damaged(reason: str) -> ServingError:
    return ServingError(
        Code.INVALID_ARGUMENT, f"The body cannot be unpacked, as its Content-Encoding, gzip, asks for: {reason}."
    )


def _takes_gzip(accepted: bytes) -> bool:
    """Whether a client takes gzip, by its header Accept-Encoding."""
    for part in accepted.decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    return False
