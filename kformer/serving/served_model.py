"""One model that is served: its folder, which versions of it are wanted, and their states."""

import concurrent.futures
import functools
import pathlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kformer.runtime.versions import versions
from kformer.serving.loading import Loader
from kformer.serving.model_settings import ModelSettings
from kformer.serving.version import State, Version, fingerprint, has_other_files, newest, next_try

# A version that was let go stays in the status for this long, so that one can see what happened.
SECONDS_SHOWN = 600.0
# For so long a look waits for files: a network file system may never answer.
SECONDS_TO_READ = 10.0
Found = TypeVar("Found")


class ServedModel:
    """A model and its versions.

    Args:
        settings: Which versions are wanted, and where they are.
        loader: Loads them.
        known: Versions that are loaded already. Those of another folder are left out.

    Attributes:
        versions: By their numbers.

    Raises:
        OSError: The folder cannot be read.
    """

    def __init__(self, settings: ModelSettings, loader: Loader, known: Iterable[Version] = ()) -> None:
        self.settings = settings
        self._loader = loader
        self._name = settings.name
        self._reading: concurrent.futures.Future[Any] | None = None  # what was begun last
        self.versions: dict[int, Version] = {}
        if staying := [version for version in known if version.state in (State.LOADING, State.AVAILABLE)]:
            here = self._read(functools.partial(self._of_this_folder, staying))
            self.versions = {version.number: version for version in here}

    def available(self) -> list[Version]:
        """The versions that answer."""
        with self._loader.changed:
            return [version for version in self.versions.values() if version.state == State.AVAILABLE]

    def lacking_labels(self) -> list[str]:
        """Labels of versions that do not answer."""
        numbers = {version.number for version in self.available()}
        return sorted(label for label, number in self.settings.labels.items() if number not in numbers)

    def look(self, unload: bool = True) -> list[int]:
        """Looks into the folder, begins to load what is new, and lets go what is no longer wanted.

        Args:
            unload: False: nothing is let go.

        Returns:
            The numbers of versions that have long been gone, and are forgotten.

        Raises:
            OSError: The folder cannot be read.
        """
        for version in newest(self.versions):
            self._loader.tell_overdue(self._name, version)
        found = self._read(self._found)
        wanted = self._wanted(found)
        self._forget_unbegun(wanted)
        for number in sorted(wanted):
            self._note_if_new(number, found[number])
        self._load_in_order(sorted(wanted))
        if not self.settings.specific:
            self._load_an_older_one(sorted({*found} - wanted, reverse=True), found)
        for version in self._replaced(wanted) if unload else ():
            self._loader.let_go(self._name, version)
        for version in self.available():
            if version.number in found and self._read(functools.partial(has_other_files, version)):
                self._loader.tell_outdated(self._name, version)
        return self._forget(found)

    def _read(self, read: Callable[[], Found]) -> Found:
        """What a function finds in the files, which has a thread of its own, as nothing can end a call of the system.

        Raises:
            OSError: The files cannot be read, or not in time.
        """
        found: concurrent.futures.Future[Found] = concurrent.futures.Future()
        if self._reading is None or self._reading.done():
            threading.Thread(target=_tell, args=(found, read), name=f"{self._name} files", daemon=True).start()
            self._reading = found
            concurrent.futures.wait([found], SECONDS_TO_READ)
        if not found.done():
            raise TimeoutError(
                f"{self.settings.base_path} does not answer within {SECONDS_TO_READ:g} seconds. Look at its disk or "
                "network. It is read again once it answers."
            )
        return found.result()

    def _of_this_folder(self, known: Iterable[Version]) -> list[Version]:
        here = self.settings.base_path.resolve()
        return [version for version in known if version.path.parent.resolve() == here]

    def _found(self) -> dict[int, pathlib.Path]:
        """The versions in the folder."""
        if not self.settings.base_path.is_dir():
            raise FileNotFoundError(f"{self.settings.base_path} is no folder.")
        return versions(self.settings.base_path)

    def _note_if_new(self, number: int, path: pathlib.Path) -> None:
        """Notes that a version has to be loaded, unless it is loaded, or could not be loaded from the same files."""
        known = self.versions.get(number)
        if known is not None and known.state == State.END and known.error and known.path == path:
            new = self._read(functools.partial(next_try, known))
        elif known is None or known.state == State.END:
            new = Version(number, path, files=self._read(functools.partial(fingerprint, path)))
        else:
            new = None
        if new is not None:
            with self._loader.changed:
                self.versions[number] = new

    def _load_in_order(self, numbers: Iterable[int]) -> None:
        """Begins to load the versions that are noted, up to the first one that has to wait for another load.

        Those after it wait too, so that a load that ends just now does not change their order. The next look, which
        follows when a load ends, begins with them.
        """
        for version in (self.versions[number] for number in numbers):
            if version.state == State.START:
                if not self._loader.may_start(self._name):
                    return
                self._loader.start(self._name, version)

    def _load_an_older_one(self, numbers: Iterable[int], found: dict[int, pathlib.Path]) -> None:
        """Begins to load the newest other version that may work, where nothing else works or may soon."""
        for number in numbers:
            with self._loader.changed:
                if any(version.is_loading or version.state == State.AVAILABLE for version in self.versions.values()):
                    return
            self._note_if_new(number, found[number])
            self._load_in_order([number])

    def _replaced(self, wanted: set[int]) -> list[Version]:
        """The versions that answer and are wanted no longer.

        While no wanted version answers, others do: the newest, as many as are wanted. New versions may come faster than
        they can be loaded, and must not pile up.
        """
        available = sorted(self.available(), key=lambda version: version.number, reverse=True)
        others = [version for version in available if version.number not in wanted]
        if len(others) < len(available):
            return others
        number = None if self.settings.specific else self.settings.latest
        return [] if number is None else others[number:]

    def _wanted(self, found: dict[int, pathlib.Path]) -> set[int]:
        """The numbers of the versions that should be served."""
        if self.settings.specific:
            return {*self.settings.specific} & {*found}
        return {*sorted(found, reverse=True)[: self.settings.latest]}

    def _forget_unbegun(self, wanted: set[int]) -> None:
        """Forgets versions that had to wait for another load, and for which newer ones have come meanwhile."""
        with self._loader.changed:
            for number in [*self.versions]:
                if self.versions[number].state == State.START and number not in wanted:
                    del self.versions[number]

    def _forget(self, found: dict[int, pathlib.Path]) -> list[int]:
        """Forgets broken versions that somebody has removed, and those that were let go long ago."""
        gone = [
            version.number
            for version in self.versions.values()
            if version.state == State.END
            and (version.number not in found if version.error else version.seconds > SECONDS_SHOWN)
        ]
        with self._loader.changed:
            for number in gone:
                del self.versions[number]
        return gone


def _tell(found: "concurrent.futures.Future[Found]", read: Callable[[], Found]) -> None:
    try:
        found.set_result(read())
    except BaseException as error:  # raised where it is waited for
        found.set_exception(error)
