"""Checksums of files, by which files that were damaged or edited are detected.

A folder's checksums are in its file `SHA256SUMS`, in the format of the command `sha256sum`, so
`sha256sum --check SHA256SUMS` checks them, too. A line has the path of a file relative to the folder. While a file is
being replaced, it has two lines, so that the old and the new file pass the check. Then the line of the old file is
dropped.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import time
from collections.abc import Iterable, Iterator

from kformer.files.writing import replacing, write_text

SUMS_FILE = "SHA256SUMS"
_LINE = re.compile("([0-9a-f]{64})  (.+)")
_TRIES = 3  # a file that is replaced while it is checked is read again
_SECONDS_BETWEEN = 0.2


class DamagedFileError(ValueError):
    """A file does not match its checksum, because one of the two was damaged, edited or removed."""


def note_checksums(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> None:
    """Notes the checksums of these files in the folder's `SHA256SUMS`, in place of their old lines.

    Lines of files that no longer exist are dropped.
    """
    names = {_name(folder, file) for file in files}
    kept = [line for line in _lines(folder) if line[1] not in names and (folder / line[1]).exists()]
    _write(folder, [*kept, *((checksum(folder / name), name) for name in sorted(names))])


@contextlib.contextmanager
def replacing_noted(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """As `kformer.files.writing.replacing`, and the file's checksum is noted in its folder."""
    with replacing(path) as partial:
        yield partial
        _write(path.parent, [*_lines(path.parent), (checksum(partial), path.name)])
    note_checksums(path.parent, [path])


def check_file(path: pathlib.Path, remedy: str = "Restore it from a copy.") -> None:
    """Refuses a file that does not have the checksum in its folder's `SHA256SUMS`.

    Args:
        path: The file. Its owner may replace it during the check.
        remedy: The end of the message.

    Raises:
        DamagedFileError: The file has another checksum, or none is noted.
        FileNotFoundError: There is no such file.
    """
    _check(path.parent, path.name, remedy)


def check_folder(
    folder: pathlib.Path,
    but: tuple[str, ...] = (),
    remedy: str = "Restore it from a copy.",
    within: pathlib.Path | None = None,
) -> None:
    """Checks all files that a folder's `SHA256SUMS` lists.

    Args:
        folder: The folder.
        but: Suffixes of files that are not checked.
        remedy: The end of the message.
        within: Where all the files must lie; None: anywhere.

    Raises:
        DamagedFileError: A file is missing, has another checksum, or lies elsewhere; or there is no `SHA256SUMS`.
    """
    lines = _lines(folder, remedy)
    if not lines:
        raise DamagedFileError(f"{folder / SUMS_FILE} is missing or empty. {remedy}")
    for name in sorted({name for _, name in lines}):
        if not name.endswith(but):
            if within is not None and not _is_within(folder / name, within):
                raise DamagedFileError(f"{folder / SUMS_FILE} lists {name}, which is not in {within}. {remedy}")
            if not (folder / name).is_file():
                raise DamagedFileError(f"{folder / name} is missing: {folder / SUMS_FILE} lists it. {remedy}")
            _check(folder, name, remedy)


def _is_within(file: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether the path of a file lies in a folder; links are not followed."""
    return pathlib.Path(os.path.abspath(file)).is_relative_to(os.path.abspath(folder))


def checksum(path: pathlib.Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(folder: pathlib.Path, name: str, remedy: str) -> None:
    for attempt in range(_TRIES):
        found = checksum(folder / name)  # read before the lines, because the owner writes the lines before the file
        if (found, name) in _lines(folder, remedy):
            return
        if attempt + 1 < _TRIES:
            time.sleep(_SECONDS_BETWEEN)
    raise DamagedFileError(
        f"{folder / name} does not match its checksum in {SUMS_FILE}: the file or {SUMS_FILE} was damaged or edited. "
        f"{remedy} If you edited the file on purpose, replace its line in {SUMS_FILE}: `cd {folder} && sha256sum "
        f"{name}` prints the new one."
    )


def _name(folder: pathlib.Path, file: pathlib.Path) -> str:
    return pathlib.PurePath(os.path.relpath(file, folder)).as_posix()


def _lines(folder: pathlib.Path, remedy: str = "Restore it from a copy.") -> list[tuple[str, str]]:
    """Checksum and path of every line; an empty list if there is no `SHA256SUMS`."""
    path = folder / SUMS_FILE
    if not os.path.lexists(path):
        return []
    if not path.is_file():  # a folder, a pipe, a link to nothing
        raise DamagedFileError(f"{path} is no file. {remedy}")
    text = path.read_bytes().decode("utf-8", "replace")
    found = [_LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    if not text.endswith("\n") or None in found:
        raise DamagedFileError(f"{path} is damaged: a line does not have the format of sha256sum. {remedy}")
    return [(line[1], line[2]) for line in found if line]


def _write(folder: pathlib.Path, lines: Iterable[tuple[str, str]]) -> None:
    write_text(folder / SUMS_FILE, "".join(f"{digest}  {name}\n" for digest, name in lines))
