"""Folders for what can be made again: in `$KFORMER_CACHE`, or where the system keeps such folders, as in `~/.cache`."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator

import platformdirs

from kformer.files.writing import WriteError

# The errors of file systems without locks, such as some that mount a storage bucket.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def cache_folder(part: str) -> pathlib.Path:
    """The folder of a part of the cache. It may not exist yet, and may be deleted at any time.

    Raises:
        FileNotFoundError: The user has no home folder, and `$KFORMER_CACHE` names no other one.
    """
    chosen = os.environ.get("KFORMER_CACHE")
    if chosen:
        return pathlib.Path(chosen) / part
    try:
        own = pathlib.Path(platformdirs.user_cache_dir("kformer"))
    except RuntimeError:  # platformdirs before 4.4 gives a path that begins with ~
        own = pathlib.Path("~")
    if not own.is_absolute():
        raise FileNotFoundError("there is no home folder: HOME is not set to an absolute path")
    return own / part


@contextlib.contextmanager
def made_by_one(path: pathlib.Path, tell: Callable[[str], object], whole: pathlib.Path | None = None) -> Iterator[None]:
    """One process after another enters the block for the same path: the next one finds what the first one made.

    The lock is on the file `path.lock`, which stays. The system releases it when its process ends for any reason. What
    is made already needs no lock, so that it can be read where nothing can be written.

    Args:
        path: What is made.
        whole: What is there as soon as all is made; by default `path` itself.
        tell: Called with a note if another process is making it.

    Raises:
        OSError: Nothing can be written there, or the file system has no locks.
    """
    if (path if whole is None else whole).exists():
        yield
        return
    descriptor = _lock_file(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"Another process is making {path}: waiting for it.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            raise OSError(
                error.errno,
                f"The file system of {path.parent} has no locks, by which processes agree on who writes there. Choose "
                "a folder of another one: --cache FOLDER, or KFORMER_CACHE",
            ) from error
        yield
    finally:
        os.close(descriptor)


def _lock_file(path: pathlib.Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise WriteError(
            error.errno,
            f"Nothing can be written to {path.parent}: {error.strerror}. Make room, or choose another folder: --cache "
            "FOLDER, or KFORMER_CACHE",
        ) from error
