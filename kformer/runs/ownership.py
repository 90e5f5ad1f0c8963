"""The lock of a run folder: one process owns it while it trains in it.

The owner holds a lock (flock) on the file `lock` in the folder, and writes its host and process id into that file. The
operating system releases the lock when the process ends for any reason. The file stays; an owner that ends normally
empties it.
"""

import contextlib
import datetime
import fcntl
import functools
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

from kformer.files.cache import NO_LOCKS
from kformer.files.writing import is_same_file

LOCK_FILE = "lock"
LOCK_SECONDS = 0.5  # how long a process tries to take the lock


class RunInUseError(OSError):
    """Another process trains in the run folder."""


class FolderLostError(RuntimeError):
    """The run folder was moved or removed while a process trained in it."""


@contextlib.contextmanager
def owned(folder: pathlib.Path, tell: Callable[[str], object] = lambda note: None) -> Iterator[Callable[[], None]]:
    """Owns a run folder while the block runs. The folder is made if it is missing, and removed if it stays empty.

    The block gets a function to call before it writes. The function raises a `FolderLostError` if the folder or its
    lock file was moved or removed, because another process may then own a folder of that name.

    Args:
        folder: The run folder.
        tell: Called with a note if the last owner was killed, or if the file system has no locks.

    Raises:
        RunInUseError: Another process owns the folder.
    """
    path = folder / LOCK_FILE
    descriptor, locked = _lock(path)
    last = _read(descriptor)
    try:
        if not locked:
            _check_ended(path, last)
    except RunInUseError:
        os.close(descriptor)
        raise
    try:
        if not locked:
            tell(f"The file system of {folder} has no locks: start no second process there while this one trains.")
        elif last:
            tell(f"The last owner of {folder}, {last}, ended without notice: it was killed. This process takes over.")
        _write(descriptor, _this_process())
        yield functools.partial(_check_there, path, descriptor)
    finally:
        _write(descriptor, "")
        with contextlib.suppress(OSError):  # somebody removed the folder, or another process has just begun there
            if is_same_file(path, descriptor) and [entry.name for entry in folder.iterdir()] == [LOCK_FILE]:
                path.unlink()
                folder.rmdir()
        os.close(descriptor)


def check_not_owned(folder: pathlib.Path) -> None:
    """Refuses a run folder that another process owns at this moment, before any work is done for it.

    Raises:
        RunInUseError: Another process owns the folder.
    """
    if (folder / LOCK_FILE).is_file():
        with contextlib.suppress(PermissionError):  # reported later, by `owned`
            os.close(_lock(folder / LOCK_FILE)[0])


def _lock(path: pathlib.Path) -> tuple[int, bool]:
    """The descriptor of the lock file, now open and locked, and whether the file system has locks."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the folder was removed meanwhile, by an owner that left it empty
            continue
        try:
            _take(descriptor)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return descriptor, False
            owner = _read(descriptor)
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise RunInUseError(
                f"Another process works in {path.parent}: {owner or 'it has just begun'}. Wait until it ends, stop "
                "it, or choose another folder."
            ) from None
        if is_same_file(path, descriptor):  # An owner that left the folder empty may just have removed this file.
            return descriptor, True
        os.close(descriptor)


def _take(descriptor: int) -> None:
    """Takes the lock, and tries for a moment before it gives up.

    `check_not_owned` in another process holds the lock for an instant. And a process that has just become the owner
    needs an instant to write its host and process id.
    """
    last_try = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > last_try:
                raise
            time.sleep(LOCK_SECONDS / 10)


def _check_there(path: pathlib.Path, descriptor: int) -> None:
    if not is_same_file(path, descriptor):
        raise FolderLostError(
            f"{path.parent}, or the file {path.name} in it, was moved or removed while this process worked there. "
            "This process has ended and writes nothing more. Its saved files are in the moved folder: go on "
            "there."
        )


def _this_process() -> str:
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": since})


def _read(descriptor: int) -> str:
    """Who owns the folder or owned it last, in words; "" where nobody is named."""
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {owner['process']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return ""


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    os.fsync(descriptor)


def _check_ended(path: pathlib.Path, owner: str) -> None:
    """Refuses a folder whose lock file names an owner, for file systems without locks: the owner may still train."""
    if owner:
        raise RunInUseError(
            f"{path} names an owner, {owner}, and its file system has no locks that tell whether that process still "
            f"trains. If it has ended, remove {path} and start again."
        )
