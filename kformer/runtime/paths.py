"""Names of folders from which TensorFlow cannot load a model.

TensorFlow looks for the file of a model's variables by a pattern, so `[a]` in a path stands for `a`, and a backslash
makes the next character literal. Python's TensorFlow refuses names that are not UTF-8.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from kformer.files.writing import check_folder_path

_OF_PATTERNS = "[\\"


def unreadable_part(path: str | pathlib.Path) -> str | None:
    """What TensorFlow cannot read in a path, in words; None where it can read everything."""
    name = str(path)
    found = next((character for character in name if character in _OF_PATTERNS), None)
    if found is not None:
        return f"the character {found}, which TensorFlow takes for a part of a pattern"
    if not name.isascii() and name.encode("utf-8", "surrogateescape") != name.encode("utf-8", "replace"):
        return "bytes that are not UTF-8"
    return None


def check_export_path(directory: str | pathlib.Path) -> None:
    """Refuses a base folder from which no program could load an export, or that cannot be written to.

    Raises:
        ValueError: TensorFlow cannot read the path.
        OSError: See `check_folder_path`.
    """
    part = unreadable_part(directory)
    if part is not None:
        raise ValueError(
            f"{directory} cannot be the folder of an export: its path holds {part}, so that no program could load "
            "the model. Name another folder."
        )
    check_folder_path(directory)


@contextlib.contextmanager
def readable_path(folder: str | pathlib.Path) -> Iterator[str]:
    """A path of an existing folder that TensorFlow can read while the block runs: its own one, or one without a name.

    Raises:
        ValueError: TensorFlow cannot read the path, and the system (not Linux) has no other one.
    """
    part = unreadable_part(folder)
    if part is None:
        yield str(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        alias = f"/proc/self/fd/{descriptor}"
        if not os.path.isdir(alias):
            raise ValueError(f"TensorFlow cannot load {folder}: its path holds {part}. Rename the folder.")
        yield alias
    finally:
        os.close(descriptor)
