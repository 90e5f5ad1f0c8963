"""The numbered versions in a model's base folder, which TensorFlow Serving looks for.

Nothing here needs TensorFlow, so a command can refuse a wrong folder before it starts TensorFlow.
"""

import pathlib
import re

LARGEST_VERSION = 2**63 - 1  # versions are int64 numbers


def check_version(directory: pathlib.Path, version: int) -> None:
    """Refuses a version that cannot be written.

    Raises:
        ValueError: It is negative, or no int64 number.
        FileExistsError: It exists.
    """
    if not 0 <= version <= LARGEST_VERSION:
        raise ValueError(f"version must be from 0 to {LARGEST_VERSION}. Received: version={version}.")
    path = versions(directory).get(version, directory / str(version))
    if path.exists():
        raise FileExistsError(f"{path} exists already. Choose another version, or leave it out to get the next one.")


def next_version(directory: pathlib.Path) -> int:
    """One more than the last version in a base folder; 1 where there is none.

    Raises:
        ValueError: The last version is the largest that there can be.
    """
    number = max(versions(directory), default=0) + 1
    if number > LARGEST_VERSION:
        raise ValueError(f"{directory} has the largest version, {LARGEST_VERSION}. Choose a version that is free.")
    return number


def find_saved_model(path: str | pathlib.Path) -> pathlib.Path | None:
    """`path` if it is a SavedModel, else its last numbered version that is one, else None."""
    path = pathlib.Path(path)
    found = versions(path)
    for candidate in (path, *(found[number] for number in sorted(found, reverse=True))):
        if (candidate / "saved_model.pb").is_file():
            return candidate
    return None


def versions(directory: pathlib.Path) -> dict[int, pathlib.Path]:
    """The entries of a base folder whose name is a number in ASCII digits, which TensorFlow Serving takes for versions.

    As there, a name may begin with zeros. Of two names of one number, such as 01 and 1, the one with fewer zeros
    counts; TensorFlow Serving takes either of them.
    """
    if not directory.is_dir():
        return {}
    # In this order, the name with fewer zeros comes later and stays.
    entries = (entry for entry in sorted(directory.iterdir()) if re.fullmatch("[0-9]+", entry.name))
    return {int(entry.name): entry for entry in entries if int(entry.name) <= LARGEST_VERSION}
