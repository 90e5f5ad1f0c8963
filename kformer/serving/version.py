"""One version of a model: its state, and what is known of its loading."""

import dataclasses
import enum
import pathlib
import time
from collections.abc import Mapping
from typing import TypeAlias

from kformer.runtime.c_api import SavedModelError
from kformer.serving.servable import Servable

Files: TypeAlias = list[tuple[str, int, int, int]] | int | None  # from `fingerprint`


class State(enum.Enum):
    """The state of a version, with its number in TensorFlow Serving's `ModelVersionStatus`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(eq=False)
class Version:
    """A version that is or was served, or should have been.

    Args:
        number: Its number.
        path: Its folder.
        state: Its state.
        error: Why it could not be loaded, or that loading takes too long; empty otherwise.
        servable: While it is AVAILABLE.
        files: From `fingerprint`: a version that could not be loaded is tried again when its files change.
        tries: How often it was loaded from these files.
        is_passing: Whether the error may pass without a change of the files.
        changed: When the state changed, by `time.monotonic`.
        is_dropped: Nobody wants it any more: it is let go as soon as it is loaded.
        is_outdated: Its files have changed since it was loaded, and this was told.
    """

    number: int
    path: pathlib.Path
    state: State = State.START
    error: str = ""
    servable: Servable | None = None
    files: Files = None
    tries: int = 0
    is_passing: bool = False
    changed: float = dataclasses.field(default_factory=time.monotonic)
    is_dropped: bool = False
    is_outdated: bool = False

    @property
    def is_loading(self) -> bool:
        """Whether it may soon be available: not once its loading has taken too long, or nobody wants it any more."""
        return self.state in (State.START, State.LOADING) and not self.error and not self.is_dropped

    @property
    def seconds(self) -> float:
        """How long it has been in its state."""
        return time.monotonic() - self.changed


# As TensorFlow Serving: `--max_num_load_retries` and `--load_retry_interval_micros`.
MOST_TRIES = 6
RETRY_SECONDS = 60.0
# The status codes of TensorFlow that say that the model itself cannot be loaded, now or later.
_LASTING = frozenset({3, 5, 9, 11, 12, 15})  # INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, OUT_OF_RANGE, ...


def may_pass(error: BaseException) -> bool:
    """Whether an error of loading may pass by itself: no permission, no descriptors or memory, a disk that is away.

    `ValueError`s are about the content of the files.
    """
    if isinstance(error, SavedModelError):
        return error.code not in _LASTING
    return not isinstance(error, ValueError)


def next_try(version: Version) -> Version | None:
    """A version to load in place of one that could not be loaded; None while nothing says that it may load now.

    Either the files have changed, or the error may go away by itself: then it is tried again each minute, at most five
    times.
    """
    files = fingerprint(version.path)
    if files != version.files:
        return Version(version.number, version.path, files=files)
    if version.is_passing and version.tries < MOST_TRIES and version.seconds >= RETRY_SECONDS:
        return Version(version.number, version.path, files=files, tries=version.tries)
    return None


def has_other_files(version: Version) -> bool:
    """Whether the graph or the weights were replaced after the version was loaded, by their sizes and times."""
    before, now = (_model_files(files) for files in (version.files, fingerprint(version.path)))
    return any(now.get(name, facts) != facts for name, facts in before.items())


def _model_files(files: Files) -> dict[str, tuple[int, int]]:
    if not isinstance(files, list):
        return {}
    return {name: (size, time) for name, size, time, _ in files if name.endswith(".pb") or "/variables/" in name}


def fingerprint(path: pathlib.Path) -> Files:
    """A value that changes when the files of a version change, or the rights to them."""
    try:
        return sorted(_facts(file) for file in (path, *path.rglob("*")))
    except OSError as error:  # being removed, or not readable now: the next value that can be read is another one
        return error.errno


def _facts(file: pathlib.Path) -> tuple[str, int, int, int]:
    found = file.lstat()
    return str(file), found.st_size, found.st_mtime_ns, found.st_ctime_ns


def newest(versions: Mapping[int, Version]) -> list[Version]:
    """Versions, the newest first."""
    return [versions[number] for number in sorted(versions, reverse=True)]
