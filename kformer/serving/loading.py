"""Loads and lets go versions, each in a thread of its own."""

import pathlib
import threading
import time
from collections.abc import Callable

from kformer.process.memory import give_back
from kformer.serving.servable import Servable
from kformer.serving.version import State, Version, may_pass

Load = Callable[[str, int, pathlib.Path], Servable]
OnChange = Callable[[str, int, State, str], None]

# Versions are loaded one after the other, as each needs memory and processors; but nobody waits longer for another one.
SECONDS_FOR_ITSELF = 30.0
# So many versions of a model are loaded at once. On a busy machine, new ones may come faster than they can be loaded.
MOST_OF_A_MODEL = 2


class Loader:
    """Loads and lets go versions.

    Args:
        load: Loads a version from the model's name, its number and its folder. It raises an exception if it cannot.
        on_change: Called with name, number, new state and error, when a version's state changes.
        most_seconds: How long a version may take to load. Then it counts as one that could not be loaded, until it is.

    Attributes:
        changed: Guards the states of all versions; notified when one changes.
        changes: How often the state of a version has changed.
    """

    def __init__(self, load: Load, on_change: OnChange, most_seconds: float) -> None:
        self._load = load
        self._on_change = on_change
        self._most_seconds = most_seconds
        self._loading: dict[Version, str] = {}  # and the model's name
        self._unloading: set[Version] = set()
        self._threads: set[threading.Thread] = set()
        self.changed = threading.Condition()
        self.changes = 0

    def may_start(self, name: str) -> bool:
        """Whether no other version is being loaded that a version of this model should wait for.

        Nothing waits for a version that takes too long to load.
        """
        with self.changed:
            waited_for = [version for version in self._loading if not version.error]
            of_the_model = [version for version in waited_for if self._loading[version] == name]
            alone = all(version.seconds > SECONDS_FOR_ITSELF or not version.is_loading for version in waited_for)
            return alone and len(of_the_model) < MOST_OF_A_MODEL

    def start(self, name: str, version: Version) -> None:
        """Loads a version in the background."""
        version.tries += 1
        with self.changed:
            self._loading[version] = name
        self._change(name, version, State.LOADING)
        try:
            self._begin(self._run, name, version)
        except RuntimeError as error:  # the system has no thread left, for now
            self._end_loading(name, version, None, error)

    def let_go(self, name: str, version: Version) -> None:
        """Lets a version go in the background, after the requests that wait have been answered.

        One that is still being loaded is let go when that ends.
        """
        with self.changed:
            version.is_dropped = True
            if version.state == State.START:
                version.state = State.END
            if version.state != State.AVAILABLE:
                return
            version.state = State.UNLOADING
            self._unloading.add(version)
        self._on_change(name, version.number, State.UNLOADING, "")
        try:
            self._begin(self._close, name, version)
        except RuntimeError:  # the system has no thread left
            self._close(name, version)

    def tell_overdue(self, name: str, version: Version) -> None:
        """Notes that a version takes too long to load, if it does."""
        if version.state == State.LOADING and not version.error and version.seconds > self._most_seconds:
            error = f"loading takes longer than {self._most_seconds:g} seconds; it goes on"
            with self.changed:
                if version.state != State.LOADING:
                    return
                version.error = error
                self.changed.notify_all()
            self._on_change(name, version.number, State.LOADING, error)

    def tell_outdated(self, name: str, version: Version) -> None:
        """Notes, once, that the files of a version that answers have changed."""
        if not version.is_outdated:
            version.is_outdated = True
            error = (
                f"the files in {version.path} have changed since this version was loaded, and it answers as before; "
                "give a new model a new version number"
            )
            self._on_change(name, version.number, version.state, error)

    def is_busy(self) -> bool:
        """Whether a version is being loaded or let go, other than those whose loading takes too long."""
        with self.changed:
            ending = any(version.state != State.LOADING or version.is_loading for version in self._loading)
            return bool(self._unloading) or ending

    def join(self) -> None:
        """Waits until nothing is being loaded or let go."""
        while True:
            with self.changed:
                thread = next(iter(self._threads), None)
            if thread is None:
                return
            thread.join()

    def _begin(self, function: Callable[[str, Version], None], name: str, version: Version) -> None:
        def work() -> None:
            try:
                function(name, version)
            finally:
                with self.changed:
                    self._threads.discard(threading.current_thread())
                    self.changed.notify_all()

        thread = threading.Thread(target=work, name=f"{name} {version.number}", daemon=True)
        with self.changed:  # so that it cannot end before it is noted
            thread.start()
            self._threads.add(thread)

    def _run(self, name: str, version: Version) -> None:
        try:
            servable = self._load(name, version.number, version.path)
        except Exception as error:  # no error of a broken model may end the server
            self._end_loading(name, version, None, error)
        else:
            give_back()  # the file and the graph were read into memory that is free now
            self._end_loading(name, version, servable)

    def _end_loading(
        self, name: str, version: Version, servable: Servable | None, error: Exception | None = None
    ) -> None:
        version.is_passing = error is not None and may_pass(error)
        told = "" if error is None else str(error) or type(error).__name__
        self._change(name, version, State.AVAILABLE if servable is not None else State.END, told, servable)
        with self.changed:
            self._loading.pop(version, None)
            self.changed.notify_all()
        if version.is_dropped:
            self.let_go(name, version)

    def _close(self, name: str, version: Version) -> None:
        servable, version.servable = version.servable, None
        if servable is not None:
            servable.close()
        del servable
        give_back()
        self._change(name, version, State.END)
        with self.changed:
            self._unloading.discard(version)
            self.changed.notify_all()

    def _change(
        self, name: str, version: Version, state: State, error: str = "", servable: Servable | None = None
    ) -> None:
        with self.changed:
            version.state, version.error, version.servable = state, error, servable
            version.changed = time.monotonic()
            self.changes += 1
            self.changed.notify_all()
        self._on_change(name, version.number, state, error)
