"""Where a server is, and how it is asked."""

import dataclasses
import pathlib
import re
import urllib.parse

_MODEL = r"(?P<model>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PATHS = {"http": re.compile(rf".*/v1/models/{_MODEL}"), "grpc": re.compile(rf"/{_MODEL}")}


@dataclasses.dataclass(frozen=True)
class ServerAddress:
    """A model on a server.

    Args:
        url: As it was given, without a slash at its end.
        is_rest: REST; otherwise gRPC.
        is_encrypted: TLS.
        host: `HOST:PORT`; for REST the port may be missing.
        model: The model's name.
        version: Its version; None: the one that the label names, or else the latest.
        label: The name of a version, such as "stable".
    """

    url: str
    is_rest: bool
    is_encrypted: bool
    host: str
    model: str
    version: int | None
    label: str | None

    @classmethod
    def of_url(cls, url: str) -> "ServerAddress":
        """Reads a URL.

        Raises:
            ValueError: The URL has neither of the two forms.
        """
        url = url.removesuffix("/")
        parts = urllib.parse.urlsplit(url)
        path = _PATHS.get(parts.scheme.removesuffix("s"))
        found = path.fullmatch(parts.path) if path else None
        is_rest = parts.scheme in ("http", "https")
        if found is None or not _names_host(parts, needs_port=not is_rest) or parts.query or parts.fragment:
            raise ValueError(
                "The URL of a model on a server must be http://HOST:8501/v1/models/NAME for REST, or "
                "grpc://HOST:8500/NAME for gRPC; https and grpcs are with TLS, and /versions/3 or /labels/stable may "
                f"stand behind NAME. Received: {url}"
            )
        model, version, label = found["model"], found["version"], found["label"]
        return cls(
            url=url,
            is_rest=is_rest,
            is_encrypted=parts.scheme.endswith("s"),
            host=parts.netloc,
            model=urllib.parse.unquote(model),
            version=None if version is None else int(version),
            label=None if label is None else urllib.parse.unquote(label),
        )


def _names_host(parts: urllib.parse.SplitResult, needs_port: bool) -> bool:
    """Whether there is a host, without a user's name and password."""
    try:
        has_port = parts.port is not None
        is_zero = parts.port == 0  # to which nobody can connect; libraries ask the default port in its place
    except ValueError:  # no number, or too large a one
        return False
    return bool(parts.hostname) and "@" not in parts.netloc and (has_port or not needs_port) and not is_zero


@dataclasses.dataclass(frozen=True)
class ClientSettings:
    """How a server is asked; the fields are arguments of `Client`.

    Raises:
        ValueError: A field is invalid.
        FileNotFoundError: There is no `ca_file`.
    """

    token: str | None = dataclasses.field(default=None, repr=False)  # so that no log shows it
    timeout: float = 60.0
    tries: int = 6
    backoff_factor: float = 1.0
    ca_file: pathlib.Path | None = None

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise ValueError(f"timeout must be more than 0 seconds. Received: {self.timeout}.")
        if self.tries < 1:
            raise ValueError(f"tries must be at least 1. Received: {self.tries}.")
        if self.backoff_factor < 0:
            raise ValueError(f"backoff_factor must be at least 0 seconds. Received: {self.backoff_factor}.")
        if self.token is not None and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", self.token):
            raise ValueError(
                "A token is one line of ASCII characters, without blanks around it. "
                "The token received has another form."
            )
        if self.ca_file is not None and not self.ca_file.is_file():
            raise FileNotFoundError(f"{self.ca_file} is not a regular file. Name one with certificates in PEM form.")
