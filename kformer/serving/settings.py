"""The settings of a server."""

import dataclasses
import pathlib
from collections.abc import Sequence

from kformer.serving.config_files import DEFAULT_METRICS_PATH, Batching, ModelSettings


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a request.

    Args:
        request_bytes: The most bytes of its body.
        text_bytes: The most bytes of a text.
        texts: The most texts.
        seconds: The longest time from its arrival to its answer.
    """

    request_bytes: int = 64 * 1024
    text_bytes: int = 16 * 1024
    texts: int = 32
    seconds: float = 30.0


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """How a server is set up.

    Args:
        models: What it serves.
        host: The address it listens on.
        rest_port: The port of REST and the page; 0: any free port.
        grpc_port: The port of gRPC; 0: any free port.
        batching: How requests share batches.
        limits: The limits of a request.
        metrics_path: Where Prometheus finds the metrics; None: nowhere.
        poll_seconds: How often the folders are looked at for new versions.
        token: What clients must send (`Authorization: Bearer TOKEN`); None: nothing.
        certificate, key: Files for TLS, in PEM form; None: without TLS.
    """

    models: Sequence[ModelSettings]
    host: str = "127.0.0.1"
    rest_port: int = 8501
    grpc_port: int = 8500
    batching: Batching = dataclasses.field(default_factory=Batching)
    limits: Limits = dataclasses.field(default_factory=Limits)
    metrics_path: str | None = DEFAULT_METRICS_PATH
    poll_seconds: float = 1.0
    token: str | None = None
    certificate: pathlib.Path | None = None
    key: pathlib.Path | None = None

    @property
    def drain_seconds(self) -> float:
        """How long the server waits after a SIGTERM: by then, all requests that had arrived are answered."""
        return self.limits.seconds + 1
