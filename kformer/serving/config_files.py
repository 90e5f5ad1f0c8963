"""The configuration files of TensorFlow Serving: which models, how to batch, where the metrics are.

They are protocol buffers in text form. The messages of batching and monitoring are declared here, because no Python
package has them: field names and numbers are those of `session_bundle_config.proto` and `monitoring_config.proto`.
"""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config import model_server_config_pb2

from kformer.serving.access import OPEN_PATHS
from kformer.serving.model_names import check_model_name
from kformer.serving.model_settings import Batching, ModelSettings

_FIELD = descriptor_pb2.FieldDescriptorProto
_INT64 = ".google.protobuf.Int64Value"
DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"


class ConfigError(ValueError):
    """A configuration file is wrong; the message names it."""


def read_batching(path: pathlib.Path) -> Batching:
    """Reads a file for TensorFlow Serving's `--batching_parameters_file`.

    Raises:
        ConfigError: The file is missing, or has an unknown parameter or an invalid value.
    """
    message = _parse(path, _messages()["BatchingParameters"]())
    given = {field.name: value for field, value in message.ListFields()}
    given.pop("thread_pool_name", None)  # of no meaning here: threads are not shared
    if given.pop("pad_variable_length_inputs", False):
        raise ConfigError(f"{path}: pad_variable_length_inputs is not supported. Leave it out.")
    sizes = tuple(given.pop("allowed_batch_sizes", ()))
    try:
        return Batching(**{name: wrapper.value for name, wrapper in given.items()}, allowed_batch_sizes=sizes)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_metrics_path(path: pathlib.Path) -> str | None:
    """Reads a file for `--monitoring_config_file`: the path of the metrics; None where they are switched off.

    Raises:
        ConfigError: As `read_batching`.
    """
    prometheus = _parse(path, _messages()["MonitoringConfig"]()).prometheus_config
    if not prometheus.enable:
        return None
    metrics_path = prometheus.path or DEFAULT_METRICS_PATH
    has_form = re.fullmatch(r"(/[\w.~-]+)+", metrics_path, re.ASCII)
    if not has_form or metrics_path.startswith("/v1/") or metrics_path in OPEN_PATHS:
        raise ConfigError(
            f"{path}: the path of the metrics must begin with / and hold names of letters, digits, and . _ ~ -, with / "
            f"between them; /v1/ is for models, and {', '.join(sorted(OPEN_PATHS))} are taken. "
            f"Received: {metrics_path!r}."
        )
    return metrics_path


def read_models(path: pathlib.Path) -> list[ModelSettings]:
    """Reads a file for `--model_config_file`.

    Raises:
        ConfigError: As `read_batching`.
    """
    message = _parse(path, model_server_config_pb2.ModelServerConfig())
    try:
        return model_settings(message)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


class ModelConfigFile:
    """A file for `--model_config_file` that may change while its models are served.

    Args:
        path: The file.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._content: tuple[int, bytes] | None = None  # when it was last read

    def models(self) -> list[ModelSettings]:
        """Reads the models. A pipe, such as that of a shell's `<(...)`, can only be read the first time.

        Raises:
            ConfigError: As `read_batching`, or the file has become something else.
        """
        before = self._content
        self._content = self._read()  # first: what is written while the models are read is a change
        if before is not None and os.path.exists(self.path) and not os.path.isfile(self.path):
            raise ConfigError(f"{self.path} is no regular file any more. Write a file of this name.")
        return read_models(self.path)

    def has_changed(self) -> bool:
        """Whether somebody has written or touched the file since its models were read."""
        return self._read() != self._content

    def _read(self) -> tuple[int, bytes] | None:
        """The time of a regular file and what it holds."""
        try:
            return (self.path.stat().st_mtime_ns, self.path.read_bytes()) if self.path.is_file() else None
        except OSError:
            return None


def model_settings(message: Any) -> list[ModelSettings]:
    """The models of a `ModelServerConfig`.

    Raises:
        ValueError: It has no list of models, a model without a name or a path, or the same name twice.
    """
    if message.WhichOneof("config") != "model_config_list":
        raise ValueError("There is no model_config_list.")
    models = [_model(config) for config in message.model_config_list.config]
    names = [model.name for model in models]
    if len({*names}) < len(names):
        raise ValueError(f"Each model must have a name of its own. Received: {', '.join(names)}.")
    return models


def _model(config: Any) -> ModelSettings:
    if not config.name or not config.base_path:
        raise ValueError(f"A model needs name and base_path. Received: {config.name!r}, {config.base_path!r}.")
    check_model_name(config.name)
    if config.model_platform not in ("", "tensorflow"):
        raise ValueError(f"model_platform must be tensorflow. Received: {config.model_platform!r}.")
    policy = config.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    latest: int | None = 1
    if choice == "all":
        latest = None
    elif choice == "latest":
        latest = policy.latest.num_versions or 1
    specific: Sequence[int] = policy.specific.versions if choice == "specific" else ()
    if choice == "specific" and not specific:
        raise ValueError(f"The policy `specific` of {config.name} names no version.")
    base_path = pathlib.Path(config.base_path)
    return ModelSettings(config.name, base_path, latest, tuple(specific), dict(config.version_labels))


def _parse(path: pathlib.Path, message: Any) -> Any:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8-sig"), message)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} cannot be read as a {message.DESCRIPTOR.name}: {reason}.") from error


def _messages() -> dict[str, Any]:
    """The classes of the messages that no package has."""
    file = descriptor_pb2.FileDescriptorProto(
        name="kformer/serving.proto",
        package="kformer.serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    batching = file.message_type.add(name="BatchingParameters")
    numbers = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(numbers, 1):
        _add(batching, name, number, _FIELD.TYPE_MESSAGE, _INT64)
    _add(batching, "thread_pool_name", 5, _FIELD.TYPE_MESSAGE, ".google.protobuf.StringValue")
    _add(batching, "allowed_batch_sizes", 6, _FIELD.TYPE_INT64, label=_FIELD.LABEL_REPEATED)
    _add(batching, "pad_variable_length_inputs", 7, _FIELD.TYPE_BOOL)
    prometheus = file.message_type.add(name="PrometheusConfig")
    _add(prometheus, "enable", 1, _FIELD.TYPE_BOOL)
    _add(prometheus, "path", 2, _FIELD.TYPE_STRING)
    monitoring = file.message_type.add(name="MonitoringConfig")
    _add(monitoring, "prometheus_config", 1, _FIELD.TYPE_MESSAGE, ".kformer.serving.PrometheusConfig")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    names = (message.name for message in file.message_type)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kformer.serving.{name}")) for name in names
    }


def _add(
    message: Any, name: str, number: int, kind: int, type_name: str | None = None, label: int = _FIELD.LABEL_OPTIONAL
) -> None:
    message.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)
