"""Access control: if the server has a token, only clients that send it get answers."""

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

PAGE_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css", "/icon.svg": "icon.svg"}
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
# Anybody may see the health of the server, and the page, which has a field for the token.
OPEN_PATHS = frozenset({*PAGE_FILES, *HEALTH_PATHS})
OPEN_METHODS = "/grpc.health.v1.Health/"  # probes of Kubernetes send no token
_CROWDED = "The server has as many connections as it can have. Send the request again later."
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
                await refuse(send, 401, _REFUSED, {"WWW-Authenticate": "Bearer"})
                return
        await self._app(scope, receive, send)


class HealthAlone:
    """ASGI middleware of a connection for which there was no room: it tells the server's health, and nothing else.

    Args:
        app: The application behind it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
        else:
            await refuse(send, 503, _CROWDED, {"Retry-After": "1", "Connection": "close"})


async def refuse(send: Any, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
    """Answers a request by an error, in the form of all errors of REST.

    Args:
        send: ASGI's.
        status: HTTP's.
        message: What is wrong, and how to mend it.
        headers: More headers.
    """
    body = json.dumps({"error": message}).encode()
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    encoded = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


class TokenForGrpc(grpc.aio.ServerInterceptor):
    """Refuses calls without the token.

    Args:
        token: What clients must send as the metadata `authorization`; None: nothing.
        reload_token: What they must send instead to change the models; None: such calls are refused in any case.
    """

    def __init__(self, token: str | None, reload_token: str | None = None) -> None:
        self._token = token
        self._reload_token = reload_token

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        if details.method.startswith(OPEN_METHODS):
            return await continuation(details)
        given = dict(details.invocation_metadata).get("authorization", "")
        is_reload = details.method.endswith("/HandleReloadConfigRequest") and self._reload_token is not None
        token = self._reload_token if is_reload else self._token
        if token is None or _is_right(given if isinstance(given, bytes) else given.encode(), token):
            return await continuation(details)
        return grpc.stream_unary_rpc_method_handler(_refuse)  # it does not wait for the request


async def _refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSED)


def _is_right(given: bytes, token: str) -> bool:
    scheme, _, value = given.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(value.strip(), token.encode())
