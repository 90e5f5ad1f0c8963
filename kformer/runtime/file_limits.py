"""Which files a SavedModel may hold: regular ones of limited size and number, without links that lead out of it.

This is looked at before any of them is opened: a device or a pipe has no end. Operations: see `confinement`.
"""

import os
import pathlib
import stat

# The most bytes of what is read whole. A graph beyond 2 GiB is none that TensorFlow could read; exports of kformer have
# 0.5 to 20 MB, as their weights lie in `variables`.
MOST_GRAPH_BYTES = 512 * 1024**2
MOST_EXTRA_BYTES = 64 * 1024**2  # of a file in `assets.extra`: the warm-up requests, the description, the checksums
_MOST_FILES = 10_000


def check_files(saved_model: str | pathlib.Path) -> None:
    """Refuses a SavedModel by the kinds and sizes of its files.

    Raises:
        ValueError: There is no `saved_model.pb`, a file is no regular one or too large, or there are too many.
        OSError: The folder or a file in it cannot be read.
    """
    folder = pathlib.Path(saved_model)
    for file in _files(folder):
        found = file.stat()  # of what a link leads to
        if stat.S_ISDIR(found.st_mode):  # a link to a folder; what is in it is seen there, or see `outside_links`
            continue
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{file} is no regular file. A SavedModel has regular files only. Export the model again.")
        most = _most_bytes(file.relative_to(folder))
        if most is not None and found.st_size > most:
            raise ValueError(f"{file} may have {most:,} bytes. Received: {found.st_size:,}. Export the model again.")
    if not (folder / "saved_model.pb").exists():
        raise ValueError(f"{folder} is no SavedModel: there is no saved_model.pb. Name its folder.")


def outside_links(saved_model: str | pathlib.Path) -> list[pathlib.Path]:
    """The files of a SavedModel that are links to something outside its folder.

    Raises:
        ValueError: There are too many files to look at.
        OSError: A folder cannot be read.
    """
    folder = pathlib.Path(saved_model)
    inside = folder.resolve()
    return [file for file in _files(folder) if not file.resolve().is_relative_to(inside)]


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """All entries of the folder and of those in it that are no folders; links to folders are not followed.

    Raises:
        ValueError: There are too many. None may be left out: it could lead anywhere.
        OSError: A folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: list[pathlib.Path] = []
    number = 0
    for path, folders, files in os.walk(folder, onerror=refuse):
        number += len(files) + len(folders)
        if number > _MOST_FILES:
            raise ValueError(f"{folder} has more than {_MOST_FILES:,} files. Name the folder of one version.")
        found += [pathlib.Path(path, name) for name in files]
        # A folder that is a link has files that nobody would look at.
        found += [pathlib.Path(path, name) for name in folders if os.path.islink(os.path.join(path, name))]
    return sorted(found)


def _most_bytes(file: pathlib.PurePath) -> int | None:
    if file.name == "saved_model.pb":
        return MOST_GRAPH_BYTES
    return MOST_EXTRA_BYTES if file.parts[0] == "assets.extra" else None
