"""`kformer serve`."""

import contextlib
import gc
import logging
import os
import sys
import urllib.parse
from typing import TYPE_CHECKING

from kformer.cli.progress import status
from kformer.cli.serve_options import AccessOptions, AddressOptions, LimitOptions, MonitoringOptions, ServedOptions
from kformer.wording import count

if TYPE_CHECKING:
    from kformer.serving.server import Server
    from kformer.serving.settings import ServerSettings


def serve(
    served: ServedOptions,
    limits: LimitOptions,
    monitoring: MonitoringOptions,
    addresses: AddressOptions,
    access: AccessOptions,
) -> None:
    """Serve an export over REST and gRPC as TensorFlow Serving does, with a page to try it at /.

    The server loads new versions while it runs. After SIGTERM it answers the requests that have arrived, and ends.
    """
    for options in (served, monitoring, access):
        options.check()
    _check_packages()
    with status("starting the server"):
        from kformer.serving.accepting import raise_descriptor_limit
        from kformer.serving.logs import start_logging
        from kformer.serving.server import Server

    settings = _settings(served, limits, monitoring, addresses, access)
    raise_descriptor_limit()
    start_logging(monitoring.log_level)
    # What the imports have made stays. Python would look through it for circles again and again, while no request is
    # answered; and so seldom that the circles of errors, with their requests, would pile up.
    gc.freeze()
    is_busy = Server(settings).run(_tell)
    if is_busy or not _has_written():
        logging.shutdown()  # writes the lines that still wait
        os._exit(0)


def _settings(
    served: ServedOptions,
    limits: LimitOptions,
    monitoring: MonitoringOptions,
    addresses: AddressOptions,
    access: AccessOptions,
) -> "ServerSettings":
    """The settings of the server, from the options and the files that they name."""
    from kformer.serving.hosts import check_names, check_origins
    from kformer.serving.settings import ReloadSettings, ServerSettings

    check_names(access.hosts)
    check_origins(access.origins)
    batching = limits.batching(served.directory)
    metrics_path = monitoring.metrics_path(served.directory)
    models, config_file = served.models()
    token, reload_token = access.tokens()
    bases = access.reload_base or [model.base_path for model in models]
    return ServerSettings(
        models=models,
        host=addresses.host,
        rest_port=addresses.rest_port,
        grpc_port=addresses.grpc_port,
        batching=batching,
        limits=limits.limits(batching.max_batch_size),
        connections=limits.max_connections,
        load_seconds=limits.load_timeout,
        metrics_path=metrics_path,
        token=token,
        reload=ReloadSettings(bases, reload_token) if reload_token is not None else None,
        model_config_file=config_file,
        model_config_poll_seconds=served.model_config_poll_seconds,
        trust=served.trust,
        allowed_hosts=access.hosts,
        origins=access.origins,
        certificate=access.tls_certificate,
        key=access.tls_key,
    )


def _tell(server: "Server") -> None:
    """Prints what is served, and where."""
    settings = server.settings
    scheme, secure = ("http", "grpc") if settings.certificate is None else ("https", "grpcs")
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    names = [model.name for model in settings.models]
    with contextlib.suppress(OSError):  # a full disk must not stop the server
        print(
            f"Serving {count(len(names), 'model')} ({', '.join(names)}): page {scheme}://{shown}:{server.rest_port}/, "
            f"REST {scheme}://{shown}:{server.rest_port}/v1/models/{urllib.parse.quote(names[0])}, gRPC "
            f"{secure}://{shown}:{server.grpc_port}",
            flush=True,
        )


def _has_written() -> bool:
    """Whether all output is written. If not, Python would try again at exit, and change the exit status."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return False
    return True


def _check_packages() -> None:
    """Tells how to install the packages of the server if they are missing."""
    try:
        import grpc  # noqa: F401
        import grpc_health  # noqa: F401
        import grpc_reflection  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`kformer serve` needs the package {error.name}: pip install 'kformer[serving]'."
        ) from None
