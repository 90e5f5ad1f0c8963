"""The settings of a server."""

import dataclasses
import pathlib
from collections.abc import Sequence

from kformer.serving.config_files import DEFAULT_METRICS_PATH, ModelConfigFile
from kformer.serving.model_settings import Batching, ModelSettings


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
class ReloadSettings:
    """What clients may change of the models that are served.

    Args:
        bases: Folders in which a model's base folder must lie.
        token: What such a client must send (`Authorization: Bearer TOKEN`), in place of the token of the others.
    """

    bases: Sequence[pathlib.Path]
    token: str


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
        connections: The most connections over REST.
        metrics_path: Where Prometheus finds the metrics; None: nowhere.
        poll_seconds: How often the folders are looked at for new versions.
        load_seconds: How long a version may take to load, before an older one takes its place.
        token: What clients must send (`Authorization: Bearer TOKEN`); None: nothing.
        reload: How clients may change the models; None: not at all.
        model_config_file: The file from which `models` were read, where it is read again while the server runs.
        model_config_poll_seconds: How often it is read; 0: never.
        trust: Load models whatever operations they have; see `kformer.runtime.c_api.SavedModel`.
        allowed_hosts: Names by which REST may be asked, besides localhost and `host`; "*" for any.
        origins: Of pages of other servers that may use REST (CORS), such as https://example.org; "*" for any.
        certificate, key: Files for TLS, in PEM form; None: without TLS.

    Raises:
        ValueError: Both protocols have one port.
    """

    models: Sequence[ModelSettings]
    host: str = "127.0.0.1"
    rest_port: int = 8501
    grpc_port: int = 8500
    batching: Batching = dataclasses.field(default_factory=Batching)
    limits: Limits = dataclasses.field(default_factory=Limits)
    connections: int = 1000
    metrics_path: str | None = DEFAULT_METRICS_PATH
    poll_seconds: float = 1.0
    load_seconds: float = 600.0
    token: str | None = None
    reload: ReloadSettings | None = None
    model_config_file: ModelConfigFile | None = None
    model_config_poll_seconds: float = 0.0
    trust: bool = False
    allowed_hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    certificate: pathlib.Path | None = None
    key: pathlib.Path | None = None

    def __post_init__(self) -> None:
        if self.rest_port == self.grpc_port != 0:
            raise ValueError(
                f"REST and gRPC need a port each. Received for both: {self.rest_port}. Change one of them."
            )

    @property
    def drain_seconds(self) -> float:
        """How long the server waits after a SIGTERM: by then, all requests that had arrived are answered."""
        return self.limits.seconds + 1
