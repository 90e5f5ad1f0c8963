"""By which names REST may be asked, and by pages of which origins (CORS).

A page of a stranger may have its own name lead to this machine (DNS rebinding). A browser then takes the server's
answers for those of the stranger, who can read them. Such a request has the stranger's name in its header Host, never
an IP address.
"""

import ipaddress
import re
from collections.abc import Collection
from typing import Any

from kformer.serving.access import HEALTH_PATHS, refuse

ANY = "*"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(?::\d{0,5})?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*", re.IGNORECASE)
_ONE = "A request needs one header Host, with the name or the address of the server."
_FOREIGN = (
    "This server does not answer by the name in the header Host. Ask by its IP address, or start it with that name in "
    "--allowed-hosts."
)


class AllowedHosts:
    """ASGI middleware that refuses requests by a name which is not the server's. Health is told to everybody.

    Args:
        app: The application behind it.
        names: The server's names; None: requests may have any. IP addresses are always allowed.
    """

    def __init__(self, app: Any, names: Collection[str] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        is_old = not given and scope["http_version"] == "1.0"  # no browser; some health checks are
        if scope["path"] in HEALTH_PATHS or is_old:
            await self._app(scope, receive, send)
            return
        found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if found is None:
            await refuse(send, 400, _ONE)
        elif not self._is_own(found[1]):
            await refuse(send, 421, _FOREIGN)
        else:
            await self._app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        return self._names is None or host.lower().rstrip(".") in self._names or _is_address(host.strip("[]"))


def allowed_names(host: str, given: Collection[str], has_token: bool) -> frozenset[str] | None:
    """The names by which a server may be asked; None for any.

    Args:
        host: The name or address that it listens on.
        given: By its operator. Empty: where a token is needed, names say nothing, because a stranger's page has none.
        has_token: Whether clients need a token.
    """
    if ANY in given or (has_token and not given):
        return None
    return frozenset(name.lower().rstrip(".") for name in ("localhost", host, *given))


def check_names(names: Collection[str]) -> None:
    """Refuses what cannot be a name in the header Host.

    Raises:
        ValueError: A name is none.
    """
    for name in names:
        if name != ANY and not _NAME.fullmatch(name.rstrip(".")):
            raise ValueError(
                "--allowed-hosts takes names such as translate.example.org, with commas between them and without "
                f"ports, or * for any name. Received: {name!r}."
            )


def check_origins(origins: Collection[str]) -> None:
    """Refuses what cannot be the origin of a page.

    Raises:
        ValueError: An origin is none.
    """
    for origin in origins:
        if origin != ANY and not re.fullmatch(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", origin):
            raise ValueError(
                "--enable-cors takes origins such as https://example.org, in small letters, with commas between them "
                f"and without a path, or * for any origin. Received: {origin!r}."
            )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
