"""`kformer serve`."""

import contextlib
import dataclasses
import gc
import logging
import os
import ssl
import sys
import urllib.parse
from typing import Annotated, NamedTuple

import typer

from kformer.cli.bearer_token import RELOAD_TOKEN_VARIABLE, TOKEN_VARIABLE, read_token
from kformer.cli.options import Path, Trust
from kformer.cli.progress import status
from kformer.runtime.versions import find_saved_model, versions
from kformer.serving.model_names import check_model_name
from kformer.wording import count

LOG_LEVELS = ("debug", "info", "warning", "error")


def serve(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="The base folder of an export's versions. The newest one is served."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The model's name in URLs; by default the folder's name.", rich_help_panel="Model"),
    ] = None,
    model_config_file: Annotated[
        Path | None,
        typer.Option(help="A model config file of TensorFlow Serving, instead of DIR.", rich_help_panel="Model"),
    ] = None,
    batching_parameters_file: Annotated[
        Path | None,
        typer.Option(
            help="A file on how requests share batches; by default DIR/batching.config.",
            rich_help_panel="Batches and limits",
        ),
    ] = None,
    monitoring_config_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the path of the metrics; by default DIR/monitoring.config.", rich_help_panel="Monitoring"
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; 0.0.0.0 for all of this machine.", rich_help_panel="Addresses"),
    ] = "127.0.0.1",
    rest_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of REST and the page; 0 for any.", rich_help_panel="Addresses")
    ] = 8501,
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of gRPC; 0 for any.", rich_help_panel="Addresses")
    ] = 8500,
    max_request_bytes: Annotated[
        int, typer.Option(min=1, max=2**31 - 1, help="Largest size of a request.", rich_help_panel="Batches and limits")
    ] = 64 * 1024,
    max_text_bytes: Annotated[
        int, typer.Option(min=1, help="Largest size of a text.", rich_help_panel="Batches and limits")
    ] = 16 * 1024,
    max_texts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest number of texts of a request; by default as large as a batch.",
            rich_help_panel="Batches and limits",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001, max=86400, help="Seconds until a request must be answered.", rich_help_panel="Batches and limits"
        ),
    ] = 30.0,
    max_queue_seconds: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Seconds that a request may have to wait; it is refused if it would be more.",
            rich_help_panel="Batches and limits",
        ),
    ] = 10.0,
    load_timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Seconds until a version must be loaded; then an older one takes its place.",
            rich_help_panel="Batches and limits",
        ),
    ] = 600.0,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Largest number of connections over REST.", rich_help_panel="Batches and limits")
    ] = 1000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file whose content clients must send as a bearer token; or ${TOKEN_VARIABLE}.",
            rich_help_panel="Access",
        ),
    ] = None,
    allow_reload: Annotated[
        bool,
        typer.Option(
            "--allow-reload",
            help="Let clients change the models by gRPC (HandleReloadConfigRequest).",
            rich_help_panel="Access",
        ),
    ] = False,
    reload_base: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder in which their models must lie; by default the base folders that are served.",
            rich_help_panel="Access",
        ),
    ] = None,
    reload_token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the bearer token that such clients must send; or ${RELOAD_TOKEN_VARIABLE}.",
            rich_help_panel="Access",
        ),
    ] = None,
    model_config_poll_seconds: Annotated[
        float,
        typer.Option(min=0, help="How often the model config file is read again; 0: never.", rich_help_panel="Model"),
    ] = 0.0,
    allowed_hosts: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Names by which REST may be asked, besides localhost and IP addresses; * for any. With a token, the "
            "default is any name.",
            rich_help_panel="Access",
        ),
    ] = "",
    enable_cors: Annotated[
        str,
        typer.Option(
            metavar="ORIGIN,ORIGIN...",
            help="Origins of other pages that may use REST; * for any.",
            rich_help_panel="Access",
        ),
    ] = "",
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A certificate chain in PEM form, for TLS.", rich_help_panel="Access")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's private key in PEM form.", rich_help_panel="Access")
    ] = None,
    trust: Trust = False,
    log_level: Annotated[
        str, typer.Option(help=f"{', '.join(LOG_LEVELS)}; debug shows every request.", rich_help_panel="Monitoring")
    ] = "info",
) -> None:
    """Serve an export over REST and gRPC as TensorFlow Serving does, with a page to try it at /.

    The server loads new versions while it runs. After SIGTERM it answers the requests that have arrived, and ends.
    """
    served = _served(directory, name, model_config_file)
    if log_level not in LOG_LEVELS:
        raise ValueError(f"--log-level must be one of {', '.join(LOG_LEVELS)}. Received: {log_level!r}.")
    token = read_token(token_file)
    reload_token = _reload_token(allow_reload, reload_base, reload_token_file, token)
    if model_config_poll_seconds and isinstance(served, _Base):
        raise ValueError(
            "--model-config-poll-seconds reads the file of --model-config-file again. Name that file, too."
        )
    _check_tls(tls_certificate, tls_key)
    _check_packages()
    hosts, origins = _parts(allowed_hosts), _parts(enable_cors)

    with status("starting the server"):
        from kformer.serving.accepting import raise_descriptor_limit
        from kformer.serving.config_files import DEFAULT_METRICS_PATH, ModelConfigFile, read_batching, read_metrics_path
        from kformer.serving.hosts import check_names, check_origins
        from kformer.serving.logs import start_logging
        from kformer.serving.model_settings import Batching, ModelSettings
        from kformer.serving.server import Server
        from kformer.serving.settings import Limits, ReloadSettings, ServerSettings

    check_names(hosts)
    check_origins(origins)
    batching_file = _file(batching_parameters_file, directory, "batching.config")
    monitoring_file = _file(monitoring_config_file, directory, "monitoring.config")
    batching = read_batching(batching_file) if batching_file else Batching()
    if isinstance(served, _Base):
        config_file = None
        models = [ModelSettings(served.name, served.directory)]
    else:
        config_file = ModelConfigFile(served)
        models = config_file.models()
        if not models:
            raise ValueError(f"{served} names no model. Add a `config` with a name and a base_path.")
    bases = reload_base or [model.base_path for model in models]
    settings = ServerSettings(
        models=models,
        host=host,
        rest_port=rest_port,
        grpc_port=grpc_port,
        batching=dataclasses.replace(batching, max_queue_seconds=max_queue_seconds),
        limits=Limits(max_request_bytes, max_text_bytes, max_texts or batching.max_batch_size, timeout),
        connections=max_connections,
        load_seconds=load_timeout,
        metrics_path=read_metrics_path(monitoring_file) if monitoring_file else DEFAULT_METRICS_PATH,
        token=token,
        reload=ReloadSettings(bases, reload_token) if reload_token is not None else None,
        model_config_file=config_file,
        model_config_poll_seconds=model_config_poll_seconds,
        trust=trust,
        allowed_hosts=hosts,
        origins=origins,
        certificate=tls_certificate,
        key=tls_key,
    )
    raise_descriptor_limit()
    start_logging(log_level)

    def tell(server: Server) -> None:
        scheme, secure = ("http", "grpc") if tls_certificate is None else ("https", "grpcs")
        shown = f"[{host}]" if ":" in host else host
        names = ", ".join(model.name for model in models)
        with contextlib.suppress(OSError):  # a full disk must not stop the server
            print(
                f"Serving {count(len(models), 'model')} ({names}): page {scheme}://{shown}:{server.rest_port}/, REST "
                f"{scheme}://{shown}:{server.rest_port}/v1/models/{urllib.parse.quote(models[0].name)}, gRPC "
                f"{secure}://{shown}:{server.grpc_port}",
                flush=True,
            )

    # What the imports have made stays. Python would look through it for circles again and again, while no request is
    # answered; and so seldom that the circles of errors, with their requests, would pile up.
    gc.freeze()
    is_busy = Server(settings).run(tell)
    if is_busy or not _has_written():
        logging.shutdown()  # writes the lines that still wait
        os._exit(0)


def _reload_token(allowed: bool, bases: list[Path] | None, file: Path | None, token: str | None) -> str | None:
    """The token of clients that may change the models; None where nobody may."""
    if not allowed:
        if bases or file is not None:
            raise ValueError("--reload-base and --reload-token-file are for --allow-reload. Give it, too, or neither.")
        return None
    reload_token = read_token(file, RELOAD_TOKEN_VARIABLE)
    if reload_token is None:
        raise ValueError(
            "--allow-reload needs a token of its own: whoever may change the models decides what this machine runs. "
            f"Give --reload-token-file FILE, or set {RELOAD_TOKEN_VARIABLE}."
        )
    if reload_token == token:
        raise ValueError("The token of --allow-reload must be another one than that of the other clients.")
    return reload_token


def _has_written() -> bool:
    """Whether all output is written. If not, Python would try again at exit, and change the exit status."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return False
    return True


def _parts(given: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part.strip() for part in given.split(",") if part.strip())


class _Base(NamedTuple):
    """The base folder of a model, and the model's name."""

    directory: Path
    name: str


def _served(directory: Path | None, name: str | None, model_config_file: Path | None) -> _Base | Path:
    """What to serve: one model, or those of a model config file."""
    if directory is None and model_config_file is not None:
        if name is not None:
            raise ValueError(f"--name is for one model, and {model_config_file} names its models. Leave out --name.")
        return model_config_file
    if directory is None or model_config_file is not None:
        raise ValueError("Name what to serve: the base folder of an export, or --model-config-file FILE.")
    _check_base(directory)
    name = name or directory.resolve().name
    _check_name(name)
    return _Base(directory, name)


def _check_base(directory: Path) -> None:
    """Refuses a folder in which there is nothing to serve."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is no folder. Name the base folder of an export.")
    if (directory / "saved_model.pb").is_file():
        raise ValueError(f"{directory} is a version. Name the folder above it, {directory.resolve().parent}.")
    if not versions(directory) or find_saved_model(directory) is None:
        raise ValueError(f"{directory} holds no version of an export. Make one: kformer export RUN {directory}.")


def _check_name(name: str) -> None:
    """Refuses a name with which no client could ask for the model."""
    try:
        check_model_name(name)
    except ValueError as error:
        raise ValueError(f"{error} Give another one by --name NAME.") from error


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise ValueError("TLS needs both --tls-certificate and --tls-key.")
    for file in (certificate, key):
        if file is not None and not file.is_file():
            raise FileNotFoundError(f"{file} is no file. Name a file in PEM form.")
    if certificate is not None and key is not None:
        try:
            # An empty password, because a server that starts by itself cannot ask for one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ValueError(
                f"{certificate} and {key} are not a certificate and its private key: {error}. Give both in PEM form, "
                "the key without a password."
            ) from error


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


def _file(given: Path | None, directory: Path | None, name: str) -> Path | None:
    """The given file, or else the file `name` that an export has written; None if there is none."""
    if given is not None or directory is None:
        return given
    file = directory / name
    if not os.path.lexists(file):
        return None
    if not file.is_file():  # a folder, a pipe, a link to nothing
        raise ValueError(f"{file} is no file. Remove it, or name another one by its option.")
    return file
