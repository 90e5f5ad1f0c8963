"""Decides which versions of models are served: watches their folders, loads new versions, and unloads old ones.

A new version is loaded and warmed up before the old one is unloaded. If it is broken, the newest that works is served.
"""

import dataclasses
import enum
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

from kformer.export.versions import versions
from kformer.serving.config_files import ModelSettings
from kformer.serving.errors import Code, ServingError
from kformer.serving.servable import Servable

log = logging.getLogger(__name__)
Load = Callable[[str, int, pathlib.Path], Servable]
OnChange = Callable[[str, int, "State", str], None]


class State(enum.Enum):
    """The state of a version, with its number in TensorFlow Serving's `ModelVersionStatus`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass
class Version:
    """A version that is or was served, or should have been.

    Args:
        number: Its number.
        state: Its state.
        error: Why it could not be loaded; empty if it could.
        servable: While it is AVAILABLE.
        files: From `_fingerprint`: a version that could not be loaded is tried again when its files change.
    """

    number: int
    state: State = State.START
    error: str = ""
    servable: Servable | None = None
    files: object = None


class ModelManager:
    """Keeps models loaded.

    Args:
        models: What is served.
        load: Loads a version from its name, number and folder. It raises an exception if it cannot.
        on_change: Called with name, number, new state and error, when a version's state changes.
    """

    def __init__(self, models: Sequence[ModelSettings], load: Load, on_change: OnChange) -> None:
        self._load = load
        self._on_change = on_change
        self._settings = {model.name: model for model in models}
        self._versions: dict[str, dict[int, Version]] = {name: {} for name in self._settings}
        self._lock = threading.Lock()  # guards the two above
        self._unread: dict[str, str] = {}  # by model: why its folder could not be read the last time
        self._updating = threading.Lock()
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
        if self._thread is not None:
            self._thread.join()
        for name in list(self._versions):
            for version in list(self._versions[name].values()):
                self._unload(name, version)

    def update(self) -> None:
        """Loads and unloads what has changed in the folders since the last time."""
        with self._updating:
            for name in list(self._versions):
                with self._lock:
                    settings = self._settings.get(name)
                try:
                    if settings is not None and not settings.base_path.is_dir():
                        raise FileNotFoundError(f"{settings.base_path} is no folder.")
                    self._update(name, settings)
                    self._unread.pop(name, None)
                except Exception as error:  # such as a folder that cannot be read; the other models go on
                    self._tell_unread(name, error)
            self._looked.set()

    def _tell_unread(self, name: str, error: Exception) -> None:
        """Logs why the folder of a model cannot be read, once while the reason stays the same."""
        reason = str(error) or type(error).__name__
        if self._unread.get(name) != reason:
            self._unread[name] = reason
            log.error("unreadable", extra={"fields": {"model": name, "error": reason}})

    def reload(self, models: Sequence[ModelSettings]) -> None:
        """Serves other models, or the same ones with another policy, from now on.

        Raises:
            ServingError: A model has no version that can be loaded.
        """
        names = [model.name for model in models]
        with self._lock:
            self._settings = {model.name: model for model in models}
            for name in names:
                self._versions.setdefault(name, {})
        log.info("reload", extra={"fields": {"models": names}})
        self.update()
        lacking = [name for name in names if not self._available(name)]
        if lacking:
            raise ServingError(Code.FAILED_PRECONDITION, f"No version could be loaded of: {', '.join(lacking)}.")

    def names(self) -> list[str]:
        """The models' names, in order."""
        return sorted(self._settings)

    def is_ready(self) -> bool:
        """Whether every model has a version that answers."""
        return all(self._available(name) for name in self.names())

    def waiting(self) -> int:
        """How many texts wait for their batch."""
        servables = [entry.servable for name in self.names() for entry in self._available(name)]
        return sum(servable.waiting() for servable in servables if servable is not None)

    def servable(self, name: str, version: int | None = None, label: str | None = None) -> Servable:
        """The version that answers a request: the one named by number or label, or else the newest.

        Raises:
            ServingError: There is no such model, or no such version that is available.
        """
        with self._lock:
            if name not in self._settings:
                raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {_what(name, version)}")
            if label is not None:
                labels = self._settings[name].labels
                if label not in labels:
                    raise ServingError(
                        Code.INVALID_ARGUMENT, f"Unrecognized servable version label: {label[:50]!r} of {name}."
                    )
                version = labels[label]
        found = {entry.number: entry.servable for entry in self._available(name)}
        servable = found.get(max(found, default=-1) if version is None else version)
        if servable is not None:
            return servable
        if self._is_loading(name, version):
            raise ServingError(Code.UNAVAILABLE, f"The model {name} is being loaded. Send the request again later.")
        raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {_what(name, version)}")

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """The versions of a model, the newest first; or one of them.

        Raises:
            ServingError: There is no such model or version.
        """
        with self._lock:
            known = list(self._versions.get(name, {}).values()) if name in self._settings else []
        found = [entry for entry in known if version in (None, entry.number)]
        if not found:
            asked = f"model {name}" if version is None else f"model {name}, version {version}"
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of {asked}")
        return sorted(found, key=lambda entry: -entry.number)

    def _watch(self, poll_seconds: float) -> None:
        while not self._stop.is_set():
            self.update()
            self._stop.wait(poll_seconds)

    def _available(self, name: str) -> list[Version]:
        with self._lock:
            return [entry for entry in self._versions.get(name, {}).values() if entry.state == State.AVAILABLE]

    def _is_loading(self, name: str, version: int | None) -> bool:
        """Whether a version, or any version if None, may soon be available."""
        with self._lock:
            entries = list(self._versions.get(name, {}).values())
        if not entries:
            return not self._looked.is_set()
        return any(entry.state in (State.START, State.LOADING) and version in (None, entry.number) for entry in entries)

    def _update(self, name: str, settings: ModelSettings | None) -> None:
        known = self._versions[name]
        found = {} if settings is None else versions(settings.base_path)
        wanted = set() if settings is None else _wanted(settings, found)
        older = [] if settings is None or settings.specific else sorted({*found} - wanted, reverse=True)
        for number in [*sorted(wanted), *older]:
            if number in wanted or not self._available(name):  # an older one only where nothing else works
                self._load_if_new(name, number, found[number])
        # While no wanted version works, the other ones that work stay.
        if settings is None or any(entry.number in wanted for entry in self._available(name)):
            for entry in [entry for entry in self._available(name) if entry.number not in wanted]:
                self._unload(name, entry)
        with self._lock:
            for entry in list(known.values()):
                if entry.state == State.END and entry.error and entry.number not in found:
                    del known[entry.number]  # a broken version that somebody has removed
            if settings is None and name not in self._settings:  # and it has not been asked for again meanwhile
                del self._versions[name]

    def _load_if_new(self, name: str, number: int, path: pathlib.Path) -> None:
        """Loads a version, unless it is loaded, or could not be loaded from the same files."""
        files = _fingerprint(path)
        known = self._versions[name].get(number)
        if known is not None and (known.state != State.END or (known.error and known.files == files)):
            return
        entry = Version(number, files=files)
        with self._lock:
            self._versions[name][number] = entry
        self._change(name, entry, State.LOADING)
        try:
            servable = self._load(name, number, path)
        except Exception as error:  # no error of a broken model may end the thread
            entry.error = str(error) or type(error).__name__
            self._change(name, entry, State.END)
            return
        entry.servable = servable
        self._change(name, entry, State.AVAILABLE)

    def _unload(self, name: str, entry: Version) -> None:
        servable = entry.servable
        if servable is None:
            return
        self._change(name, entry, State.UNLOADING)
        servable.close()
        entry.servable = None
        self._change(name, entry, State.END)

    def _change(self, name: str, entry: Version, state: State) -> None:
        with self._lock:
            entry.state = state
        self._on_change(name, entry.number, state, entry.error)


def _wanted(settings: ModelSettings, found: dict[int, pathlib.Path]) -> set[int]:
    """The numbers of the versions that should be served."""
    if settings.specific:
        return {*settings.specific} & {*found}
    return {*sorted(found, reverse=True)[: settings.latest]}


def _fingerprint(path: pathlib.Path) -> object:
    """A value that changes when the files of a version change."""
    try:
        return sorted((file.name, file.lstat().st_size, file.lstat().st_mtime_ns) for file in path.rglob("*"))
    except OSError:  # a folder that is being removed
        return time.monotonic()


def _what(name: str, version: int | None) -> str:
    return f"Latest({name})" if version is None else f"Specific({name}, {version})"
