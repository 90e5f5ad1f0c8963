"""Access control: if the server has a token, only clients that send it get answers."""

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

PAGE_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css", "/icon.svg": "icon.svg"}
# Anybody may see the health of the server, and the page, which has a field for the token.
OPEN_PATHS = frozenset({*PAGE_FILES, "/healthz", "/readyz"})
_REFUSED = "The token is missing or wrong. Send the header: Authorization: Bearer TOKEN."


class TokenForRest:
    """ASGI middleware that refuses requests without the token.

    Args:
        app: The application behind it.
        token: What clients must send.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not _is_right(given, self._token):
                body = json.dumps({"error": _REFUSED}).encode()
                headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                return
        await self._app(scope, receive, send)


class TokenForGrpc(grpc.aio.ServerInterceptor):
    """Refuses calls without the token.

    Args:
        token: What clients must send as the metadata `authorization`.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        given = dict(details.invocation_metadata).get("authorization", "")
        if _is_right(given if isinstance(given, bytes) else given.encode(), self._token):
            return await continuation(details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSED)


def _is_right(given: bytes, token: str) -> bool:
    scheme, _, value = given.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(value.strip(), token.encode())
