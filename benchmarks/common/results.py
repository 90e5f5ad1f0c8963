"""Results in a file, a line of JSON each, so that what was measured is not measured again."""

import json
import pathlib
from typing import Any


def missing(file: pathlib.Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that the file of results does not have."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    done = [json.loads(line) for line in lines]
    return [row for row in rows if not any(row.items() <= other.items() for other in done)]
