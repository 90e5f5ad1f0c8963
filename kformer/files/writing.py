"""Files and folders that are written whole or not at all, and what counts as damage when one is read.

A file is written beside its target, forced to the disk (fsync) and then renamed: under the target's name, readers find
either all of the old content or all of the new content, even after a crash or a loss of power. If writing fails, the
target does not change, and no partial file stays.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

# The errors that readers of zip, NumPy and JSON files raise if any bytes of a file are wrong.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, AttributeError),
    *(RuntimeError, OverflowError, IndexError, OSError),
)


class WriteError(OSError):
    """A file could not be written, for example on a full disk. The previous content is undamaged."""


def check_file_path(path: str | pathlib.Path) -> None:
    """Refuses a path to which `replacing` could not write, before any work is done for it.

    Raises:
        OSError: The path is not a regular file, or no file can be made in its folder.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file, so it cannot be replaced. Name another file.")
    check_folder_path(path.parent)


def check_new_folder(path: str | pathlib.Path) -> None:
    """Refuses a path at which `new_folder` could not make a folder, before any work is done for it.

    Raises:
        FileExistsError: `path` exists.
        OSError: No folder can be made there.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists already. Name another folder.")
    check_folder_path(path)


def check_folder_path(path: str | pathlib.Path) -> None:
    """Refuses a folder that cannot be made or written to, before any work is done for it.

    Raises:
        NotADirectoryError: The path, or a folder above it, is a file.
        PermissionError: The folder, or the nearest one above it that exists, cannot be written to.
    """
    path = pathlib.Path(path)
    nearest = path
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        reason = "it is a file" if nearest == path else f"{nearest} is a file"
        raise NotADirectoryError(f"{path} cannot be a folder: {reason}. Name another folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path} cannot be written to: no permission to write in {nearest}. Change its permissions, or name "
            "another folder."
        )


@contextlib.contextmanager
def temporary_folder() -> Iterator[pathlib.Path]:
    """Gives an empty folder, which is removed with its content when the block ends.

    Raises:
        FileNotFoundError: No folder for temporary files can be written to.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="kformer-")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is no folder for temporary files: {error.strerror}. Set TMPDIR to a folder that can be written to."
        ) from error
    with folder as path:
        yield pathlib.Path(path)


@contextlib.contextmanager
def replacing(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a path to write to, in a hidden folder beside `path`. The file takes the name `path` when the block ends.

    The path given has the same name as `path`, because some writers require certain suffixes. Missing parent folders
    are made. Processes that write the same file at the same time do not disturb each other: the last one wins.
    """
    path = pathlib.Path(path)
    with staging_folder(path.parent, path.name) as folder:
        partial = folder / path.name
        yield partial
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)  # The new name itself is content of the parent folder.


def is_same_file(path: pathlib.Path, descriptor: int) -> bool:
    """Whether an open file is still the file at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def write_text(path: str | pathlib.Path, text: str) -> None:
    """Writes a UTF-8 file, whole or not at all."""
    with replacing(path) as partial:
        # Bytes of a path that are not UTF-8 become escapes, which JSON reads back.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | pathlib.Path, values: Any) -> None:
    """Writes plain values as a JSON file, whole or not at all."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def new_folder(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives an empty folder to fill, which takes the name `path` when the block ends without an error.

    Raises:
        FileExistsError: `path` exists, before or after the block.
    """
    path = pathlib.Path(path)
    check_new_folder(path)
    with staging_folder(path.parent, path.name) as fresh:
        yield fresh
        sync_tree(fresh)
        check_new_folder(path)
        fresh.rename(path)
        _sync(path.parent)


@contextlib.contextmanager
def replacing_folder(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives an empty folder to fill. At the end of the block it takes the name `path`, and replaces a former folder."""
    path = pathlib.Path(path)
    with staging_folder(path.parent, path.name) as fresh:
        yield fresh
        sync_tree(fresh)
        old = fresh.with_name("old")
        if path.exists():
            path.rename(old)
        try:
            fresh.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        _sync(path.parent)


@contextlib.contextmanager
def staging_folder(parent: pathlib.Path, name: str) -> Iterator[pathlib.Path]:
    """Gives an empty folder in a hidden folder `parent/.kformer-NAME-...`, which is removed when the block ends.

    Its process locks the hidden folder. So the next call for the same name recognizes the folders that killed processes
    left behind, and removes them. (On a file system without locks, they stay.)
    """
    parent.mkdir(parents=True, exist_ok=True)
    prefix = f".kformer-{name[:30]}-"  # file systems allow 255 bytes, some of them fewer
    _remove_abandoned(parent, prefix)
    hidden, descriptor = _locked_folder(parent, prefix)
    try:
        fresh = hidden / "new"
        fresh.mkdir()
        yield fresh
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(parent: pathlib.Path, prefix: str) -> tuple[pathlib.Path, int]:
    """A new folder, and the file descriptor of its lock. Closing it, or the end of the process, ends the lock."""
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process removed it as abandoned before it was opened
        with contextlib.suppress(OSError):  # the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_same_file(folder, descriptor):
            return folder, descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def sync_tree(folder: pathlib.Path) -> None:
    """Forces every file and folder below `folder` to the disk."""
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _remove_abandoned(parent: pathlib.Path, prefix: str) -> None:
    """Removes hidden folders of an earlier `staging_folder` whose process has ended."""
    for folder in [entry for entry in parent.iterdir() if entry.name.startswith(prefix)]:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A folder with other content is from somebody else, or holds the only copy of a folder being replaced.
            if {entry.name for entry in folder.iterdir()} <= {"new"}:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # Another process holds it, or has just removed it.
            continue
        finally:
            os.close(descriptor)


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
