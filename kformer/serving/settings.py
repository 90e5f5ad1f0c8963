"""The settings of a server."""

import dataclasses
import pathlib
from collections.abc import Sequence

from kformer.serving.config_files import DEFAULT_METRICS_PATH, Batching, ModelSettings


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one client may ask for.

    Args:
        request_bytes: Of a request's body.
        text_bytes: Of a text.
        texts: Of a request.
        seconds: From the arrival of a request to its answer.
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
        rest_port: Of REST and the page; 0 for one that is free.
        grpc_port: Of gRPC; 0 for one that is free.
        batching: How requests share batches.
        limits: What one client may ask for.
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
        """After a SIGTERM: by then every request that has arrived has its answer."""
        return self.limits.seconds + 1
