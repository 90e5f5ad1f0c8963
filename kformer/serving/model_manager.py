"""Decides which versions of models are served: watches their folders, loads new versions, and unloads old ones.

A new version is loaded and warmed up before the old one is unloaded. If it is broken, the newest that works is served.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from kformer.process.memory import give_back
from kformer.runtime.status_codes import Code
from kformer.serving.errors import ServingError
from kformer.serving.loading import Load, Loader, OnChange
from kformer.serving.model_settings import ModelSettings
from kformer.serving.servable import Servable
from kformer.serving.served_model import ServedModel
from kformer.serving.version import State, Version, newest

log = logging.getLogger(__name__)

# Giving memory back takes up to 20 ms of a processor. A burst of requests leaves at most a few tens of MB.
_SECONDS_OF_MEMORY = 10.0


class ModelManager:
    """Keeps models loaded.

    Args:
        models: What is served.
        load: Loads a version from its name, number and folder. It raises an exception if it cannot.
        on_change: Called with name, number, new state and error, when a version's state changes.
        on_forget: Called with name and number, when a version leaves the status.
        load_seconds: How long a version may take to load, before an older one takes its place.
    """

    def __init__(
        self,
        models: Sequence[ModelSettings],
        load: Load,
        on_change: OnChange,
        on_forget: Callable[[str, int], None] = lambda name, number: None,
        load_seconds: float = 600.0,
    ) -> None:
        self._on_change = on_change
        self._on_forget = on_forget
        self._loader = Loader(load, on_change, load_seconds)
        self._models = {model.name: ServedModel(model, self._loader) for model in models}
        self._leaving: list[tuple[str, Version]] = []  # versions of models that are no longer served
        self._unread: dict[str, str] = {}  # by model: why its folder could not be read the last time
        self._updating = threading.Lock()  # one look, or one change of the models, at a time
        self._stop = threading.Event()
        self._looked = threading.Event()  # set after the first look into the folders
        self._thread: threading.Thread | None = None

    def start(self, poll_seconds: float) -> None:
        """Watches the folders from now on, in a thread of its own."""
        self._thread = threading.Thread(target=self._watch, args=(poll_seconds,), name="versions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Unloads all versions, after the requests that wait have been answered."""
        self._stop.set()
        with self._loader.changed:
            self._loader.changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._updating:  # a change of the models that has begun ends first, and may have begun to load
            for name, model in self._models.items():
                for version in newest(model.versions):
                    self._loader.let_go(name, version)
        self._loader.join()

    def update(self) -> None:
        """Loads and unloads what has changed in the folders since the last time, and waits until that is done.

        It does not wait for versions that take longer to load than they may.
        """
        with self._updating:
            self._settle(self._models)

    def reload(self, models: Sequence[ModelSettings]) -> None:
        """Serves other models, or the same ones with another policy, from now on; or nothing changes.

        Raises:
            ServingError: There is no model in the list, a folder does not answer, a model has no version that can be
                loaded, or a label names a version that is not loaded. Then the models are served that were served
                before.
        """
        if not models:
            raise ServingError(
                Code.INVALID_ARGUMENT, "The list names no model. Name at least one, or stop the server to end serving."
            )
        log.info("reload", extra={"fields": {"models": [model.name for model in models]}})
        with self._updating:
            before = self._models
            try:
                after = {
                    model.name: ServedModel(model, self._loader, newest(before[model.name].versions))
                    if model.name in before
                    else ServedModel(model, self._loader)
                    for model in models
                }
            except OSError as error:
                raise ServingError(Code.FAILED_PRECONDITION, f"{error} The models stay as they were.") from error
            self._settle(after, unload=False)
            try:
                _check(after)
            except ServingError as error:
                self._drop(after, before)
                log.error("refused reload", extra={"fields": {"error": str(error)}})
                raise
            self._models = after
            self._drop(before, after)
            self._settle(after)

    def names(self) -> list[str]:
        """The models' names, in order."""
        return sorted(self._models)

    def is_ready(self) -> bool:
        """Whether every model has a version that answers, and there is one."""
        models = self._models
        return bool(models) and all(model.available() for model in models.values())

    def waiting(self) -> int:
        """How many texts wait for their batch."""
        servables = [version.servable for model in self._models.values() for version in model.available()]
        return sum(servable.waiting() for servable in servables if servable is not None)

    def servable(self, name: str, version: int | None = None, label: str | None = None) -> Servable:
        """The version that answers a request: the one named by number or label, or else the newest.

        Raises:
            ServingError: There is no such model, or no such version that is available.
        """
        model = self._models.get(name)
        if model is None:
            raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {_what(name, version)}")
        if label is not None:
            if label not in model.settings.labels:
                raise ServingError(
                    Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label[:50]!r} of {name}."
                )
            version = model.settings.labels[label]
        with self._loader.changed:
            found = {
                entry.number: entry.servable for entry in model.versions.values() if entry.state == State.AVAILABLE
            }
        servable = found.get(max(found, default=-1) if version is None else version)
        if servable is not None:
            return servable
        if self._is_loading(model, version):
            raise ServingError(Code.UNAVAILABLE, f"The model {name} is being loaded. Send the request again later.")
        raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {_what(name, version)}")

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """The versions of a model, the newest first; or one of them.

        Raises:
            ServingError: There is no such model or version.
        """
        with self._loader.changed:
            known = newest(self._models[name].versions) if name in self._models else []
        found = [entry for entry in known if version in (None, entry.number)]
        if not found:
            asked = f"model {name}" if version is None else f"model {name}, version {version}"
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of {asked}")
        return found

    def _watch(self, poll_seconds: float) -> None:
        given_back = time.monotonic()
        while not self._stop.is_set():
            with self._updating:
                self._look(self._models)
            if time.monotonic() - given_back >= _SECONDS_OF_MEMORY:
                give_back()
                given_back = time.monotonic()
            self._wait(poll_seconds)

    def _wait(self, seconds: float) -> None:
        """Waits for some time, or until a version is loaded, let go, or overdue."""
        with self._loader.changed:
            if not self._stop.is_set():
                self._loader.changed.wait(seconds)

    def _settle(self, models: Mapping[str, ServedModel], unload: bool = True) -> None:
        """Looks into the folders until nothing is left to load or to let go."""
        while not self._stop.is_set():
            changes = self._loader.changes
            self._look(models, unload)
            with self._loader.changed:
                if self._loader.changes == changes:  # or else there may be something new to do
                    if not self._loader.is_busy():
                        return
                    self._loader.changed.wait(0.1)

    def _look(self, models: Mapping[str, ServedModel], unload: bool = True) -> None:
        for name, model in models.items():
            try:
                for number in model.look(unload):
                    self._on_forget(name, number)
                self._unread.pop(name, None)
            except Exception as error:  # such as a folder that cannot be read; the other models go on
                self._tell_unread(name, error)
        for name, version in list(self._leaving):
            if version.state == State.END:
                self._leaving.remove((name, version))
                now = models[name].versions.get(version.number) if name in models else None
                if now is None:
                    self._on_forget(name, version.number)
                else:  # another folder's version of the same number has been told last
                    self._on_change(name, now.number, now.state, now.error)
        self._looked.set()

    def _drop(self, models: Mapping[str, ServedModel], kept: Mapping[str, ServedModel]) -> None:
        """Lets go all versions of models that are not among the kept ones."""
        staying = {version for model in kept.values() for version in model.versions.values()}
        for name, model in models.items():
            for version in newest(model.versions):
                if version not in staying:
                    self._loader.let_go(name, version)
                    self._leaving.append((name, version))

    def _tell_unread(self, name: str, error: Exception) -> None:
        """Logs why the folder of a model cannot be read, once while the reason stays the same."""
        reason = str(error) or type(error).__name__
        if self._unread.get(name) != reason:
            self._unread[name] = reason
            log.error("unreadable", extra={"fields": {"model": name, "error": reason}})

    def _is_loading(self, model: ServedModel, version: int | None) -> bool:
        """Whether a version, or any version if None, may soon be available."""
        with self._loader.changed:
            entries = list(model.versions.values())
        if not entries:
            return not self._looked.is_set()
        return any(entry.is_loading and version in (None, entry.number) for entry in entries)


def _check(models: Mapping[str, ServedModel]) -> None:
    """Refuses models of which one cannot be served as its settings ask.

    Raises:
        ServingError: A model has no version that is loaded, or a label names one that is not.
    """
    lacking = [name for name, model in models.items() if not model.available()]
    if lacking:
        raise ServingError(
            Code.FAILED_PRECONDITION,
            f"No version could be loaded of: {', '.join(lacking)}. The models stay as they were.",
        )
    labels = [f"{label} of {name}" for name, model in models.items() for label in model.lacking_labels()]
    if labels:
        raise ServingError(
            Code.FAILED_PRECONDITION,
            f"Labels name versions that are not loaded: {', '.join(labels)}. The models stay as they were.",
        )


def _what(name: str, version: int | None) -> str:
    return f"Latest({name})" if version is None else f"Specific({name}, {version})"
