"""Who may change the models of a running server, and to what: by gRPC where that is allowed, or by the file."""

import dataclasses
import logging
import pathlib
import threading
from collections.abc import Sequence

from kformer.runtime.status_codes import Code
from kformer.serving.config_files import ModelConfigFile
from kformer.serving.errors import ServingError
from kformer.serving.model_manager import ModelManager
from kformer.serving.model_settings import ModelSettings
from kformer.serving.settings import ReloadSettings

log = logging.getLogger(__name__)


def reload_within(manager: ModelManager, models: Sequence[ModelSettings], settings: ReloadSettings | None) -> None:
    """Serves other models, as a client asks.

    Args:
        manager: The server's models.
        models: What to serve.
        settings: What clients may do; None: nothing.

    Raises:
        ServingError: It is not allowed, or the models cannot be served: then nothing changes.
    """
    if settings is None:
        raise ServingError(
            Code.PERMISSION_DENIED,
            "This server does not let clients change its models. Start it with --allow-reload, or edit the file of "
            "--model-config-file and start it with --model-config-poll-seconds.",
        )
    manager.reload([_confined(model, settings.bases) for model in models])


def _confined(model: ModelSettings, bases: Sequence[pathlib.Path]) -> ModelSettings:
    """The same model, its folder without links.

    Raises:
        ServingError: Its folder is not under one of the bases.
    """
    path = model.base_path.resolve()
    if not any(path.is_relative_to(base.resolve()) for base in bases):
        raise ServingError(
            Code.PERMISSION_DENIED,
            f"The base_path of {model.name} must lie in {', '.join(map(str, bases))}. Received: {model.base_path}. "
            "Move the model, or start the server with --reload-base.",
        )
    return dataclasses.replace(model, base_path=path)


class ConfigWatch:
    """Reads the file of `--model-config-file` again from time to time, and serves what it names once it has changed.

    A file that is wrong, or names a model that cannot be loaded, changes nothing; the log says why, once. It is tried
    again when somebody writes the file again, or touches it; where a folder does not answer, at each look until it
    does.

    Args:
        manager: The server's models.
        file: The file, whose models are served as they were read last.
        seconds: Between two looks.
    """

    def __init__(self, manager: ModelManager, file: ModelConfigFile, seconds: float) -> None:
        self._manager = manager
        self._file = file
        self._seconds = seconds
        self._waited_for = ""  # what did not answer at the last look
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="config", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends it; a change that is being made is not waited for."""
        self._stop.set()

    def look(self) -> None:
        """Serves what the file names, if it has changed, or a folder did not answer the last time."""
        if not (self._waited_for or self._file.has_changed()):
            return
        before, self._waited_for = self._waited_for, ""
        try:
            self._manager.reload(self._file.models())
        except Exception as error:  # nothing may end the thread
            if isinstance(error.__cause__, OSError):
                self._waited_for = str(error)
            if str(error) != before:
                log.error("config", extra={"fields": {"file": str(self._file.path), "error": str(error)}})

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            self.look()
