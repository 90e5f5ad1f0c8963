"""Hashes of the files of a corpus. A file that has not changed is not read for it again."""

import contextlib
import json
import os
import pathlib

from kformer.files.checksums import checksum
from kformer.files.writing import write_json

_KNOWN_FILE = "files.json"
_MOST_KNOWN = 1000  # files, those that were looked at last


def fingerprints(files: tuple[pathlib.Path, ...], cache: pathlib.Path) -> list[str]:
    """The SHA-256 of each file. The cache remembers it for a file of this place, size and times.

    Raises:
        FileNotFoundError: There is no such file.
    """
    known = _known(cache)
    found = []
    for file in files:
        state = os.stat(file)
        key = json.dumps([os.path.realpath(file), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino])
        sum_of_file = known.pop(key) if key in known else checksum(file)
        known[key] = sum_of_file  # as the last one
        found.append(sum_of_file)
    if known != _known(cache):
        with contextlib.suppress(OSError):  # on a disk that can only be read, the files are read again each time
            write_json(cache / _KNOWN_FILE, dict(list(known.items())[-_MOST_KNOWN:]))
    return found


def _known(cache: pathlib.Path) -> dict[str, str]:
    try:
        known = json.loads((cache / _KNOWN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is not there yet, or damaged
        return {}
    return known if isinstance(known, dict) else {}
