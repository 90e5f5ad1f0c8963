"""The options of `kformer serve`, in groups, and what they refuse."""

import dataclasses
import os
import ssl
from typing import TYPE_CHECKING, Annotated

import typer

from kformer.cli.bearer_token import RELOAD_TOKEN_VARIABLE, TOKEN_VARIABLE, read_token
from kformer.cli.options import Path, Trust
from kformer.runtime.versions import find_saved_model, versions
from kformer.serving.model_names import check_model_name

if TYPE_CHECKING:  # what needs the packages of the server is imported when they are known to be there
    from kformer.serving.config_files import ModelConfigFile
    from kformer.serving.model_settings import Batching, ModelSettings
    from kformer.serving.settings import Limits

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclasses.dataclass(frozen=True)
class ServedOptions:
    """What is served."""

    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="The base folder of an export's versions. The newest one is served."),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="The model's name in URLs; by default the folder's name.", rich_help_panel="Model"),
    ] = None
    model_config_file: Annotated[
        Path | None,
        typer.Option(help="A model config file of TensorFlow Serving, instead of DIR.", rich_help_panel="Model"),
    ] = None
    model_config_poll_seconds: Annotated[
        float,
        typer.Option(min=0, help="How often the model config file is read again; 0: never.", rich_help_panel="Model"),
    ] = 0.0
    trust: Trust = False

    def check(self) -> None:
        """Refuses what cannot be served."""
        file = self.model_config_file
        if self.directory is None and file is not None:
            if self.name is not None:
                raise ValueError(f"--name is for one model, and {file} names its models. Leave out --name.")
            return
        if self.directory is None or file is not None:
            raise ValueError("Name what to serve: the base folder of an export, or --model-config-file FILE.")
        if self.model_config_poll_seconds:
            raise ValueError(
                "--model-config-poll-seconds reads the file of --model-config-file again. Name that file, too."
            )
        _check_base(self.directory)
        _check_name(self._name_of(self.directory))

    def models(self) -> "tuple[list[ModelSettings], ModelConfigFile | None]":
        """The models, and the file that names them, if there is one."""
        from kformer.serving.config_files import ModelConfigFile
        from kformer.serving.model_settings import ModelSettings

        if self.directory is not None:
            return [ModelSettings(self._name_of(self.directory), self.directory)], None
        file = ModelConfigFile(self.model_config_file or Path())  # `check` has refused to go without both
        models = file.models()
        if not models:
            raise ValueError(f"{self.model_config_file} names no model. Add a `config` with a name and a base_path.")
        return models, file

    def _name_of(self, directory: Path) -> str:
        return self.name or directory.resolve().name


@dataclasses.dataclass(frozen=True)
class LimitOptions:
    """How requests share batches, and their limits."""

    batching_parameters_file: Annotated[
        Path | None,
        typer.Option(
            help="A file on how requests share batches; by default DIR/batching.config.",
            rich_help_panel="Batches and limits",
        ),
    ] = None
    max_request_bytes: Annotated[
        int, typer.Option(min=1, max=2**31 - 1, help="Largest size of a request.", rich_help_panel="Batches and limits")
    ] = 64 * 1024
    max_text_bytes: Annotated[
        int, typer.Option(min=1, help="Largest size of a text.", rich_help_panel="Batches and limits")
    ] = 16 * 1024
    max_texts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest number of texts of a request; by default as large as a batch.",
            rich_help_panel="Batches and limits",
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001, max=86400, help="Seconds until a request must be answered.", rich_help_panel="Batches and limits"
        ),
    ] = 30.0
    max_queue_seconds: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Seconds that a request may have to wait; it is refused if it would be more.",
            rich_help_panel="Batches and limits",
        ),
    ] = 10.0
    load_timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Seconds until a version must be loaded; then an older one takes its place.",
            rich_help_panel="Batches and limits",
        ),
    ] = 600.0
    max_connections: Annotated[
        int, typer.Option(min=1, help="Largest number of connections over REST.", rich_help_panel="Batches and limits")
    ] = 1000

    def batching(self, directory: Path | None) -> "Batching":
        """How requests share batches, by the file that is given or lies in a base folder."""
        from kformer.serving.config_files import read_batching
        from kformer.serving.model_settings import Batching

        file = _file(self.batching_parameters_file, directory, "batching.config")
        batching = read_batching(file) if file is not None else Batching()
        return dataclasses.replace(batching, max_queue_seconds=self.max_queue_seconds)

    def limits(self, batch_size: int) -> "Limits":
        """The limits of a request."""
        from kformer.serving.settings import Limits

        return Limits(self.max_request_bytes, self.max_text_bytes, self.max_texts or batch_size, self.timeout)


@dataclasses.dataclass(frozen=True)
class MonitoringOptions:
    """What is told of the server."""

    monitoring_config_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the path of the metrics; by default DIR/monitoring.config.", rich_help_panel="Monitoring"
        ),
    ] = None
    log_level: Annotated[
        str, typer.Option(help=f"{', '.join(LOG_LEVELS)}; debug shows every request.", rich_help_panel="Monitoring")
    ] = "info"

    def check(self) -> None:
        """Refuses an unknown level."""
        if self.log_level not in LOG_LEVELS:
            raise ValueError(f"--log-level must be one of {', '.join(LOG_LEVELS)}. Received: {self.log_level!r}.")

    def metrics_path(self, directory: Path | None) -> str | None:
        """Where the metrics are, by the file that is given or lies in a base folder; None: nowhere."""
        from kformer.serving.config_files import DEFAULT_METRICS_PATH, read_metrics_path

        file = _file(self.monitoring_config_file, directory, "monitoring.config")
        return read_metrics_path(file) if file is not None else DEFAULT_METRICS_PATH


@dataclasses.dataclass(frozen=True)
class AddressOptions:
    """Where the server listens."""

    host: Annotated[
        str,
        typer.Option(help="The address to listen on; 0.0.0.0 for all of this machine.", rich_help_panel="Addresses"),
    ] = "127.0.0.1"
    rest_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of REST and the page; 0 for any.", rich_help_panel="Addresses")
    ] = 8501
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of gRPC; 0 for any.", rich_help_panel="Addresses")
    ] = 8500


@dataclasses.dataclass(frozen=True)
class AccessOptions:
    """Who may ask the server, and how."""

    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file whose content clients must send as a bearer token; or ${TOKEN_VARIABLE}.",
            rich_help_panel="Access",
        ),
    ] = None
    allow_reload: Annotated[
        bool,
        typer.Option(
            "--allow-reload",
            help="Let clients change the models by gRPC (HandleReloadConfigRequest).",
            rich_help_panel="Access",
        ),
    ] = False
    reload_base: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder in which their models must lie; by default the base folders that are served.",
            rich_help_panel="Access",
        ),
    ] = None
    reload_token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"A file with the bearer token that such clients must send; or ${RELOAD_TOKEN_VARIABLE}.",
            rich_help_panel="Access",
        ),
    ] = None
    allowed_hosts: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Names by which REST may be asked, besides localhost and IP addresses; * for any. With a token, the "
            "default is any name.",
            rich_help_panel="Access",
        ),
    ] = ""
    enable_cors: Annotated[
        str,
        typer.Option(
            metavar="ORIGIN,ORIGIN...",
            help="Origins of other pages that may use REST; * for any.",
            rich_help_panel="Access",
        ),
    ] = ""
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A certificate chain in PEM form, for TLS.", rich_help_panel="Access")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's private key in PEM form.", rich_help_panel="Access")
    ] = None

    def check(self) -> None:
        """Refuses tokens that cannot be used, and files that are no certificate and its key."""
        self.tokens()
        _check_tls(self.tls_certificate, self.tls_key)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which REST may be asked."""
        return _parts(self.allowed_hosts)

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins of pages that may use REST."""
        return _parts(self.enable_cors)

    def tokens(self) -> tuple[str | None, str | None]:
        """The token of all clients, and that of clients that may change the models; None where there is none."""
        token = read_token(self.token_file)
        if not self.allow_reload:
            if self.reload_base or self.reload_token_file is not None:
                raise ValueError(
                    "--reload-base and --reload-token-file are for --allow-reload. Give it, too, or neither."
                )
            return token, None
        reload_token = read_token(self.reload_token_file, RELOAD_TOKEN_VARIABLE)
        if reload_token is None:
            raise ValueError(
                "--allow-reload needs a token of its own: whoever may change the models decides what this machine "
                f"runs. Give --reload-token-file FILE, or set {RELOAD_TOKEN_VARIABLE}."
            )
        if reload_token == token:
            raise ValueError("The token of --allow-reload must be another one than that of the other clients.")
        return token, reload_token


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


def _parts(given: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part.strip() for part in given.split(",") if part.strip())


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
